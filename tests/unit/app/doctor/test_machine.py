"""What is wrong with a machine: one test for each fact that can be wrong."""

from dataclasses import replace
from pathlib import Path

import pytest

from streams.app.doctor import collect, machine
from streams.app.doctor.facts import DiskFacts, JavaFacts, SparkFacts, Verdict

DISK = DiskFacts(directory="/d", free=50 << 30, total=100 << 30)


def wrong(verdict: Verdict, expected: str, do: str) -> None:
    assert verdict.status == "wrong"
    assert expected in verdict.found
    assert do in verdict.do


@pytest.mark.parametrize(("version", "status"), [((3, 10), "wrong"), ((3, 11), "ok")])
def test_an_old_python_is_wrong(version: tuple[int, int], status: str) -> None:
    verdict = machine.python(version)
    assert verdict.status == status
    assert bool(verdict.do) == (status == "wrong")


def test_no_java_is_wrong() -> None:
    wrong(
        machine.java(JavaFacts(problem="no java: expected 17")), "no java", "install a JRE 17"
    )


def test_an_old_java_is_wrong() -> None:
    facts = JavaFacts(path="/j", version=11)
    wrong(machine.java(facts), "/j is version 11", "JAVA_HOME")
    wrong(machine.java(replace(facts, version=None)), "version None", "JAVA_HOME")
    assert machine.java(replace(facts, version=17)).status == "ok"


def test_a_spark_that_cannot_be_imported_is_wrong() -> None:
    facts = SparkFacts(problem="ModuleNotFoundError: No module named 'pyspark'")
    wrong(machine.spark(facts), "No module named 'pyspark'", "pip install 'pyspark>=4.2'")


def test_an_old_spark_is_wrong() -> None:
    facts = SparkFacts(version="3.5.9", has_jars=True)
    wrong(machine.spark(facts), "PySpark 3.5.9", "pyspark>=4.2")
    assert machine.spark(replace(facts, version="4.2.0.dev1")).status == "ok"
    assert machine.spark(replace(facts, version="4.10")).status == "ok"


def test_a_spark_without_jars_is_wrong() -> None:
    wrong(machine.spark(SparkFacts(version="4.3.0")), "without Spark's jars", "pyspark-client")


def test_a_directory_that_cannot_be_used_is_wrong() -> None:
    facts = replace(DISK, problem="/d cannot be written")
    wrong(machine.disk(facts), "/d cannot be written", "--directory")


def test_a_full_disk_is_wrong() -> None:
    facts = replace(DISK, free=256 << 20)
    wrong(machine.disk(facts), "the reserve of 256 MiB", "make room")
    assert machine.disk(replace(DISK, free=(256 << 20) + 1)).status == "ok"
    small = replace(DISK, free=5 << 20, total=100 << 20)
    wrong(machine.disk(small), "the reserve of 5 MiB", "make room")


@pytest.mark.parametrize(
    ("text", "version"),
    [("4.3.0", (4, 3)), ("4", (4, 0)), ("4.x", (4, 0)), ("", (0, 0)), ("x", (0, 0))],
)
def test_versions_of_every_form_are_read(text: str, version: tuple[int, int]) -> None:
    assert machine.numbers(text) == version


def test_a_directory_is_looked_at_where_it_would_be_made(tmp_path: Path) -> None:
    facts = collect.disk_facts(tmp_path / "a" / "b")
    assert facts.problem == ""
    assert 0 <= facts.free <= facts.total
    (tmp_path / "file").write_text("")
    assert "is no directory" in collect.disk_facts(tmp_path / "file").problem
    assert "is no directory" in collect.disk_facts(tmp_path / "file" / "under").problem


def test_a_broken_spark_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ImportError(f"{name} is broken")

    monkeypatch.setattr(collect, "import_module", broken)
    assert collect.spark_facts().problem == "ImportError: pyspark is broken"
