"""`slackwater doctor`: what is looked at, what is printed, and the exit code."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams.app.commands import app
from streams.app.doctor import collect
from streams.app.doctor.collect import Target, durability_of
from streams.app.doctor.facts import Verdict
from streams.app.environment_access import write_file
from streams.app.service_config import Service
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import SINGLE_BROKER, Durability

FINE = Verdict(check="java", status="ok", found="Java 17")
UNKNOWN = Verdict(check="clock", status="unknown", found="not compared")
WRONG = Verdict(check="disk", status="wrong", found="[full]", do="make room")


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> list[Target]:
    seen: list[Target] = []

    def verdicts(target: Target) -> Iterator[Verdict]:
        seen.append(target)
        yield from (FINE, UNKNOWN, *([WRONG] if target.kafka else []))

    monkeypatch.setattr(collect, "verdicts", verdicts)
    return seen


def test_without_an_environment_the_machine_alone_is_looked_at(
    targets: list[Target], tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, ["doctor", "--directory", str(tmp_path)])
    assert done.exit_code == 0, "what is unknown is not wrong"
    assert targets == [Target(directory=tmp_path)]
    assert done.output.splitlines() == [
        "ok      java            Java 17",
        "unknown clock           not compared",
    ]


def test_what_is_wrong_is_said_with_what_to_do_and_is_the_exit_code(
    targets: list[Target],
) -> None:
    options = ["--brokers", "a:1", "--namespace", "shop", "--read-only"]
    done = CliRunner().invoke(app, ["doctor", *options, "--topic", "replication.factor=2"])
    assert done.exit_code == 1
    assert done.output.splitlines()[2:] == [
        "wrong   disk            [full]",
        f"{'':23} -> make room",
    ]
    (target,) = targets
    assert target.kafka == ClientSettings("a:1")
    assert (target.namespace, target.may_write, target.url) == ("shop", False, "")
    assert durability_of(target, 3) == Durability(2, 2)


def test_programs_read_an_object_a_line(targets: list[Target]) -> None:
    done = CliRunner().invoke(app, ["doctor", "--brokers", "a:1", "--json"])
    assert done.exit_code == 1
    lines = [json.loads(line) for line in done.output.splitlines()]
    assert lines[2] == {
        "type": "check",
        "check": "disk",
        "status": "wrong",
        "found": "[full]",
        "do": "make room",
    }


def test_an_environment_is_looked_at_as_it_was_started(
    targets: list[Target], tmp_path: Path
) -> None:
    kafka = ClientSettings("b:2", (("linger.ms", "7"),))
    write_file(tmp_path, kafka, "shop", 8470)
    service = Service(bootstrap="b:2", directory="d", topics={"replication.factor": "1"})
    service.write(tmp_path / "coordinator.json")
    done = CliRunner().invoke(app, ["doctor", "--directory", str(tmp_path)])
    assert done.exit_code == 1
    (target,) = targets
    assert (target.kafka, target.namespace) == (kafka, "shop")
    assert target.url == "http://127.0.0.1:8470"
    assert durability_of(target, 3) == SINGLE_BROKER


def test_copies_are_the_defaults_where_nothing_was_chosen(tmp_path: Path) -> None:
    target = Target(directory=tmp_path)
    assert durability_of(target, 1) == SINGLE_BROKER
    assert durability_of(target, 3) == Durability()
    (tmp_path / "coordinator.json").write_text("{")
    assert durability_of(target, 3) == Durability()


def test_a_damaged_environment_is_said(targets: list[Target], tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text("{")
    done = CliRunner().invoke(app, ["doctor", "--directory", str(tmp_path), "--json"])
    assert done.exit_code == 1
    assert "cannot be read" in json.loads(done.output)["error"]["message"]
    assert targets == []
