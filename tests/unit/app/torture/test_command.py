"""`slackwater torture storage`: seed first, figures, evidence, exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams.app.commands import app
from streams.app.torture.entries import parse
from tests.model.storage_mutations import PATCHES, Mutation

COMMAND = ["torture", "storage", "--memory", "--seed", "3", "--steps", "60"]


def test_a_run_without_a_wrong_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*COMMAND, "--json", "out.json"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("seed 3\n")
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["seed"] == 3
    assert found["wrong"] == []
    assert found["appends"]
    assert found["again"] == "slackwater torture storage --memory --steps 60 --seed 3"
    assert [each.name for each in tmp_path.iterdir()] == ["out.json"]


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
    assert all(parse(each) for each in entries)
    assert len(entries) > 100


def test_a_run_has_its_own_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(app, [*COMMAND[:3], "--steps", "1"])
    assert done.exit_code == 0
    assert done.output.startswith("seed ")
