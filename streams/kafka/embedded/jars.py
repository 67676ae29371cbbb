"""Downloads Kafka's jars once from the Maven registry and caches them for all environments.

Invariant: the returned directory is complete. Jars are downloaded into a separate directory
that is renamed into place at the end, so neither an interrupted download nor a concurrent
process can leave a part of them.

PySpark's Ivy downloads them. A Java runtime from a wheel does not know private certificate
authorities: if Ivy fails, it is retried with the authorities that this machine trusts, then
with each other Java, and finally `mvn` is tried.
"""

import contextlib
import logging
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from streams.errors import Determinate
from streams.java import find_javas, package_directory
from streams.kafka.embedded.trust import write_trust_store
from streams.temporary import temporary_directory

log = logging.getLogger(__name__)

KAFKA_VERSION = "4.2.0"
_LOG4J_VERSION = "2.25.3"  # the one that Kafka is built with; its slf4j binding is left to us

_DEPENDENCIES = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", _LOG4J_VERSION),
)
_MARK = f"kafka_2.13-{KAFKA_VERSION}.jar"
_FETCH_TIMEOUT_S = 600


def kafka_jars(cache: Path) -> Path:
    """Return the directory of all jars that a broker needs; downloads them if needed.

    Errors: Determinate if they cannot be downloaded, with the output of each attempt.
    """
    place = cache / f"kafka-{KAFKA_VERSION}"
    if (place / _MARK).exists():
        return place
    cache.mkdir(parents=True, exist_ok=True)
    said: list[str] = []
    log.info("fetching the broker's jars, once", extra={"cache": str(cache)})
    for name, fetch in _ways():
        with temporary_directory("fetching-", cache) as scratch:
            libs = Path(scratch) / "libs"
            problem = fetch(Path(scratch), libs)
            if not problem and (libs / _MARK).exists():
                with contextlib.suppress(OSError):  # another process was faster
                    libs.rename(place)
                return place
            said.append(f"{name}: {problem or 'nothing fetched'}")
    raise Determinate(
        f"the jars of kafka {KAFKA_VERSION} cannot be fetched from the maven registry; "
        + "; ".join(said)
    )


_Fetch = Callable[[Path, Path], str]


def _ways() -> Iterator[tuple[str, _Fetch]]:
    """Return the ways to download jars, best first. Errors: Determinate if there is no Java."""
    ivy = _ivy_jar()
    if ivy is not None:
        for java in find_javas():
            yield f"ivy with {java}", _ivy(java, ivy)
            yield f"ivy with {java} and this machine's certificates", _trusting(java, ivy)
    maven = shutil.which("mvn")
    if maven is not None:
        yield "mvn", _maven(maven)


def _ivy_jar() -> Path | None:
    spark = package_directory("pyspark")
    return None if spark is None else next(iter((spark / "jars").glob("ivy-*.jar")), None)


def _trusting(java: Path, ivy: Path) -> _Fetch:
    def fetch(scratch: Path, libs: Path) -> str:
        store = write_trust_store(scratch / "authorities.jks")
        return _ivy(java, ivy, f"-Djavax.net.ssl.trustStore={store}")(scratch, libs)

    return fetch


def _ivy(java: Path, ivy: Path, *options: str) -> _Fetch:
    def fetch(scratch: Path, libs: Path) -> str:
        wanted = "".join(
            f'<dependency org="{group}" name="{name}" rev="{version}" conf="default"/>'
            for group, name, version in _DEPENDENCIES
        )
        module = scratch / "ivy.xml"
        module.write_text(
            '<ivy-module version="2.0"><info organisation="slackwater" module="broker"/>'
            f"<dependencies>{wanted}</dependencies></ivy-module>"
        )
        pattern = f"{libs}/[artifact]-[revision](-[classifier]).[ext]"
        jvm = [str(java), "-XX:TieredStopAtLevel=1", *options]
        program = [*jvm, "-cp", str(ivy), "org.apache.ivy.Main"]
        what = ["-ivy", str(module), "-confs", "default", "-types", "jar", "bundle"]
        return _run([*program, "-cache", str(scratch / "ivy"), *what, "-retrieve", pattern])

    return fetch


def _maven(maven: str) -> _Fetch:
    def fetch(scratch: Path, libs: Path) -> str:
        wanted = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
            f"<version>{version}</version></dependency>"
            for group, name, version in _DEPENDENCIES
        )
        project = scratch / "pom.xml"
        project.write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>slackwater</groupId>"
            "<artifactId>broker</artifactId><version>1</version>"
            f"<dependencies>{wanted}</dependencies></project>"
        )
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        return _run([maven, "-B", "-q", "-f", str(project), *goal, f"-DoutputDirectory={libs}"])

    return fetch


def _run(command: Sequence[str]) -> str:
    """Run a command. Return "" on success, else the lines that explain the failure."""
    try:
        done = subprocess.run(  # noqa: S603 -- our own command line, no shell
            command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else telling_lines(done.stdout + done.stderr)


def telling_lines(output: str) -> str:
    """A failed tool's output in one line: its error lines if any, else its last lines."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if "ERROR" in line or "Exception" in line]
    return " | ".join((telling or lines)[-3:]) or "it failed without output"
