"""What commands say when they fail: one shape for people, one object for programs."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams.app.commands import app
from streams.app.error_output import FAILED, NO_ENVIRONMENT, Refused, failed
from streams.errors import Determinate, InvalidStatement, SlackwaterError

MARKUP = "expected [bold]x[/], actual [/x] and [red"
"""Half of it is markup of rich's, and `[/x]` closes nothing."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Determinate(MARKUP), f"error: {MARKUP}\n"),
        (Refused("no", "[/]", "[x]"), "error: no\n  detail: [/]\n  hint: [x]\n"),
        (InvalidStatement("no", hint=MARKUP), f"error: no\n  hint: {MARKUP}\n"),
    ],
)
def test_people_read_it_as_it_is_on_standard_error(
    error: SlackwaterError, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failed(error).exit_code == FAILED
    assert tuple(capsys.readouterr()) == ("", message)


def test_programs_read_one_object_where_the_results_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert failed(Refused("no", "because", MARKUP), 7, as_json=True).exit_code == 7
    out, err = capsys.readouterr()
    parts = {"message": "no", "detail": "because", "hint": MARKUP}
    assert (json.loads(out), err) == ({"type": "error", "error": parts}, "")


@pytest.mark.parametrize(
    "command",
    [
        ["sql", "-c", "SELECT 1"],
        ["storage"],
        ["compact"],
        ["shard", "list"],
        ["topic", "list"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_names_the_directory_where_no_environment_is(
    tmp_path: Path, command: list[str]
) -> None:
    directory = tmp_path / "[" / "x]"
    done = CliRunner().invoke(app, [*command, "--directory", str(directory)])
    assert (done.exit_code, done.exception.__class__) == (NO_ENVIRONMENT, SystemExit)
    assert str(directory) in done.stderr.replace("\n", "")
