"""Archives of classes: their names, the options of a JVM, and what is pruned."""

import os
import subprocess
from pathlib import Path

import pytest

from streams import class_archives
from streams.class_archives import prune, quoted, spark_archive, with_archive, writing_archive
from streams.java import find_java


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `java` laid out as a runtime, a PySpark of two jars and a cache: all empty files."""
    java = tmp_path / "runtime" / "bin" / "java"
    lib, jars = tmp_path / "runtime" / "lib", tmp_path / "pyspark" / "jars"
    parts = (lib / "modules", lib / "server" / "classes.jsa")
    for file in (java, *parts, jars / "a.jar", jars / "b.jar"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    monkeypatch.setattr(class_archives, "package_directory", lambda _: tmp_path / "pyspark")
    monkeypatch.setattr(class_archives, "user_cache", lambda: tmp_path / "a cache")
    return java


def test_an_archive_is_of_one_java_and_one_spark(java: Path, tmp_path: Path) -> None:
    first = spark_archive(java)
    assert first is not None
    assert first == spark_archive(java)
    assert first.parent == tmp_path / "a cache"
    (tmp_path / "pyspark" / "jars" / "b.jar").write_bytes(b"another")
    second = spark_archive(java)
    (tmp_path / "runtime" / "lib" / "modules").write_bytes(b"another")
    assert len({first, second, spark_archive(java)}) == 3


def test_a_link_to_java_is_followed(java: Path, tmp_path: Path) -> None:
    (tmp_path / "java").symlink_to(java)
    assert spark_archive(tmp_path / "java") == spark_archive(java)


def test_no_archive_for_a_trimmed_java_or_without_spark(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runtime" / "lib" / "server" / "classes.jsa").unlink()
    assert spark_archive(java) is None
    assert with_archive(java, ("-Xa",)) == ("-Xa",)
    (tmp_path / "runtime" / "lib" / "server" / "classes.jsa").touch()
    assert spark_archive(java) is not None
    monkeypatch.setattr(class_archives, "package_directory", lambda _: None)
    assert spark_archive(java) is None


def test_an_archive_is_used_when_it_is_there(java: Path) -> None:
    archive = spark_archive(java)
    assert archive is not None
    assert with_archive(java, ("-Xa",)) == ("-Xa",)
    assert with_archive(None, ("-Xa",)) == ("-Xa",)
    archive.parent.mkdir()
    archive.touch()
    options = quoted(with_archive(java, ("-Xa",)))
    assert options == f'-Xa "-XX:SharedArchiveFile={archive}" -Xlog:cds*=off'


def test_the_newest_archives_stay(tmp_path: Path) -> None:
    for age, name in enumerate(("spark-d", "spark-b", "spark-e", "spark-a", "spark-c")):
        (tmp_path / f"{name}.jsa").touch()
        os.utime(tmp_path / f"{name}.jsa", (1000 - age, 1000 - age))
    (tmp_path / "kafka.jsa").touch()
    prune(tmp_path / "spark-d.jsa")
    left = sorted(file.stem for file in tmp_path.iterdir())
    assert left == ["kafka", "spark-b", "spark-d", "spark-e"]


def test_java_knows_the_options(tmp_path: Path) -> None:
    """And starts without an archive that is none, without a word."""
    archive = tmp_path / "spark.jsa"
    subprocess.run(  # the default archive is what it is written on top of
        [find_java(), *writing_archive(archive, ()), "-version"],
        capture_output=True,
        check=True,
    )
    archive.unlink(missing_ok=True)
    archive.write_bytes(b"no archive")
    options = (f"-XX:SharedArchiveFile={archive}", class_archives._SILENT)
    done = subprocess.run([find_java(), *options, "-version"], capture_output=True, check=True)
    assert b"openjdk" in done.stderr.lower() or b"java" in done.stderr.lower()
    assert done.stdout == b""
