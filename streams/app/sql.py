"""`slackwater sql`: a shell against a running environment."""

import contextlib
import json
import readline
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from streams.app.client import Client, Message
from streams.app.environment import find
from streams.app.up import DIRECTORY
from streams.errors import Determinate, InvalidUsage

NO_ENVIRONMENT = 3
_ROWS_AT_ONCE = 200


def sql(
    file: Annotated[
        Path | None, typer.Argument(help="Statements to run.", exists=True, dir_okay=False)
    ] = None,
    command: Annotated[str, typer.Option("-c", help="Statements to run.")] = "",
    directory: Annotated[Path, typer.Option(help="The environment's files.")] = DIRECTORY,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, for machines.")
    ] = False,
) -> None:
    """Run SQL: one text, a file, or a shell when neither is given.

    Exit code 1 when a statement fails, 3 when no environment answers.

    Examples:

        slackwater sql

        slackwater sql -c "SELECT * FROM revenue AS OF 1785000000000"

        slackwater sql --json -c "SUBSCRIBE revenue"
    """
    if file is not None and command:
        raise typer.BadParameter("expected a file or -c, got both")
    try:
        client, _, _ = find(directory.absolute())
    except InvalidUsage as error:
        Console(stderr=True).print(f"[red]error:[/] {error}", highlight=False)
        raise typer.Exit(NO_ENVIRONMENT) from error
    printer = Printer(Console(), as_json=as_json)
    text = file.read_text() if file is not None else command
    if not text and not sys.stdin.isatty():
        text = sys.stdin.read()
    if text:
        raise typer.Exit(0 if printer.run(client, text) else 1)
    _shell(client, printer, directory.absolute() / "history")


class Printer:
    """Shows results as they come: tables for people, lines for machines."""

    def __init__(self, console: Console, *, as_json: bool) -> None:
        self._console, self._as_json = console, as_json
        self._columns: list[Mapping[str, str]] = []
        self._rows: list[list[object]] = []

    def run(self, client: Client, text: str) -> bool:
        """Run the text and show what comes; whether all of it succeeded."""
        try:
            return all([self._show(message) for message in client.stream(text)])
        except KeyboardInterrupt:
            self._flush()
            return True
        except Determinate as error:
            self._error({"message": str(error), "detail": "", "hint": ""})
            return False

    def _show(self, message: Message) -> bool:
        if self._as_json:
            print(json.dumps(message), flush=True)  # noqa: T201  the output is the product
            return message["type"] != "error"
        match message:
            case {"type": "columns", "columns": list(columns)}:
                self._columns = columns
            case {"type": "rows", "rows": list(rows)}:
                self._rows += rows
                if len(self._rows) >= _ROWS_AT_ONCE:
                    self._flush()
            case {"type": "progress", "frontier": time}:
                self._flush()
                self._console.print(f"[dim]-- complete before {time}[/]")
            case {"type": "notice", "message": text}:
                self._console.print(f"[yellow]notice:[/] {text}", highlight=False)
            case {"type": "complete", "tag": tag}:
                self._flush(final=True)
                self._console.print(f"[dim]{tag}[/]")
            case {"type": "error", "error": dict(error)}:
                self._error(error)
                return False
            case _:
                pass
        return True

    def _flush(self, *, final: bool = False) -> None:
        if self._columns and (self._rows or final):
            table = Table(header_style="bold")
            for column in self._columns:
                table.add_column(column["name"], overflow="fold")
            for row in self._rows:
                table.add_row(*("[dim]null[/]" if v is None else _plain(v) for v in row))
            self._console.print(table)
        self._rows = []
        if final:
            self._columns = []

    def _error(self, error: Mapping[str, str]) -> None:
        self._rows, self._columns = [], []
        if self._as_json:
            print(json.dumps({"type": "error", "error": dict(error)}), flush=True)  # noqa: T201
            return
        self._console.print(f"[red]error:[/] {_plain(error['message'])}", highlight=False)
        for part in ("detail", "hint"):
            if error[part]:
                self._console.print(f"  {part}: {_plain(error[part])}", highlight=False)


def _plain(value: object) -> str:
    """Text for a table, with what rich would read as markup left as it is."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("[", "\\[")


def _shell(client: Client, printer: Printer, history: Path) -> None:
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    try:
        for text in _statements():
            printer.run(client, text)
    finally:
        with contextlib.suppress(OSError):
            readline.write_history_file(history)


def _statements() -> Iterator[str]:
    """What the user types, up to each semicolon."""
    lines: list[str] = []
    while True:
        try:
            line = input("slackwater> " if not lines else "        ... ")
        except EOFError:
            return
        except KeyboardInterrupt:
            lines = []
            continue
        if not lines and line.strip() in {"exit", "quit", "\\q"}:
            return
        lines.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(lines)
            lines = []
        elif not "".join(lines).strip():
            lines = []
