"""`slackwater torture storage`: seed first, figures, evidence, exit codes."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streams.app import signals
from streams.app.commands import app
from streams.app.signals import Stop
from streams.torture import command
from streams.torture.journal import Entry, parse
from streams.torture.oracle import Verdict
from tests.model.storage_mutations import PATCHES, Mutation

COMMAND = ["torture", "storage", "--memory", "--seed", "3", "--steps", "60"]


@pytest.fixture(autouse=True)
def _not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """No signal that another test sent to this process counts here."""
    monkeypatch.setattr(signals, "stopping", Stop())


def test_a_run_without_a_wrong_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*COMMAND, "--json", "out.json"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("seed 3\n")
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["seed"] == 3
    assert report["wrong"] == []
    assert report["appends"]
    assert report["again"] == "slackwater torture storage --memory --steps 60 --seed 3"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_wrong_answer_is_told_with_its_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    PATCHES[Mutation.LOWER](monkeypatch)
    done = CliRunner().invoke(app, [*COMMAND[:-1], "150", "--evidence", "what.jsonl"])
    assert done.exit_code == 1, done.output
    assert "wrong: " in done.output
    assert "again: slackwater torture storage --memory --steps 150 --seed 3" in done.output
    first, *entries = (tmp_path / "what.jsonl").read_text().splitlines()
    assert json.loads(first)["wrong"]
    assert all(parse(entry) for entry in entries)
    assert len(entries) > 100


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("what", ["storage", "input", "compute"])
def test_a_run_that_is_told_to_end_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, number: signal.Signals
) -> None:
    monkeypatch.setattr(signals, "stopping", Stop())

    def soaked(seed: int, seconds: float, stopping: Stop) -> tuple[Verdict, list[Entry]]:
        signal.raise_signal(number)
        return Verdict({"rounds": 7}, ()), []

    def assaulted(*arguments: Any) -> tuple[object, Verdict]:
        verdict, _ = soaked(1, 1, arguments[-1])
        return None, verdict

    monkeypatch.setattr(command, "soaked", soaked)
    monkeypatch.setattr(command, "assaulted", assaulted)
    monkeypatch.setattr(command, "maintained", lambda *arguments: assaulted(*arguments)[1])
    done = CliRunner().invoke(app, ["torture", what, "--json", str(tmp_path / "out.json")])
    assert done.exit_code == 0
    assert f"ended early, by {number.name}" in done.output
    report = json.loads((tmp_path / "out.json").read_text())
    assert (report["rounds"], report["ended_by"]) == (7, number.name)


def test_a_run_that_is_told_to_end_before_it_begins_has_nothing_to_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "stopping", Stop())

    def stopped(*arguments: Any) -> tuple[object, Verdict]:
        signal.raise_signal(signal.SIGTERM)
        arguments[-1].check()
        raise AssertionError

    monkeypatch.setattr(command, "assaulted", stopped)
    done = CliRunner().invoke(app, ["torture", "input", "--json", str(tmp_path / "out.json")])
    assert done.exit_code == 128 + signal.SIGTERM
    assert not (tmp_path / "out.json").exists()


def test_a_run_has_its_own_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(app, [*COMMAND[:3], "--steps", "1"])
    assert done.exit_code == 0
    assert done.output.startswith("seed ")
