import io
from collections.abc import Iterator

import pytest
from rich.console import Console
from typer.testing import CliRunner

from streams.app.client import Client, Message
from streams.app.commands import app
from streams.app.printer import Printer
from streams.app.signals import asked_for
from streams.app.sql import run, statements
from streams.errors import Determinate


def typed(*lines: str | type[BaseException]) -> list[str]:
    source = iter(lines)

    def ask(prompt: str) -> str:
        line = next(source, EOFError)
        if not isinstance(line, str):
            raise line
        return line

    return list(statements(ask))


def test_a_statement_ends_with_a_semicolon() -> None:
    assert typed("", "SELECT 1", "", "  + 1;", "SHOW SINKS;") == [
        "SELECT 1\n\n  + 1;",
        "SHOW SINKS;",
    ]


def test_ctrl_c_throws_away_what_was_typed() -> None:
    assert typed("SELECT 1", KeyboardInterrupt, "SELECT 2;") == ["SELECT 2;"]


@pytest.mark.parametrize("word", ["exit", "quit", "\\q"])
def test_words_that_leave(word) -> None:
    assert typed("SELECT 1;", word, "SELECT 2;") == ["SELECT 1;"]


class Scripted(Client):
    def stream(self, text: str) -> Iterator[Message]:
        yield {"type": "notice", "message": text}
        if text == "fail":
            yield {"type": "error", "error": {"message": "no", "detail": "", "hint": ""}}
        if text == "gone":
            raise Determinate("no coordinator answers")
        if text == "subscribe":
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("text", "succeeded"), [("ok", True), ("fail", False), ("gone", False), ("subscribe", True)]
)
def test_whether_a_text_succeeded(text, succeeded) -> None:
    printer = Printer(Console(file=io.StringIO()), as_json=False)
    assert run(Scripted("http://nowhere"), text, printer) is succeeded


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["sql", "-c", "SELECT 1"], 3),
        (["sql", "--nonsense"], 2),
        (["sql", "missing.sql"], 2),
        (["nonsense"], 2),
    ],
)
def test_exit_codes(arguments, code, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, arguments).exit_code == code


@pytest.mark.parametrize("arguments", [["empty.sql"], ["-c", ""], []])
def test_an_empty_script_is_done_at_once(arguments, tmp_path, monkeypatch) -> None:
    """And no shell is opened: standard input is not a terminal, or nobody sits at it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.sql").touch()
    client = Scripted("http://nowhere")
    monkeypatch.setattr("streams.app.sql.find", lambda _: (client, None, None))
    monkeypatch.setattr("streams.app.sql._shell", lambda *_: pytest.fail("a shell"))
    result = CliRunner().invoke(app, ["sql", *arguments])
    assert (result.exit_code, result.output) == (0, "")


def test_each_command_that_is_given_runs(tmp_path, monkeypatch) -> None:
    client = Scripted("http://nowhere")
    monkeypatch.setattr("streams.app.sql.find", lambda _: (client, None, None))
    arguments = ["-c", "SHOW SOURCES -- all of them", "-c", "SHOW SINKS;"]
    result = CliRunner().invoke(app, ["sql", *arguments])
    assert result.exit_code == 0
    assert result.output == "notice: SHOW SOURCES -- all of them\n;\nSHOW SINKS;\n"


def test_the_command_that_is_asked_for() -> None:
    assert asked_for(["--help"]) == ""
    assert asked_for(["-v", "sql", "-c", "up"]) == "sql"
