"""Prints results: tables for people, lines of JSON for programs."""

import json
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from streams.app.client import Message
from streams.app.printable import printable_lines

ROWS_AT_ONCE = 200
"""The number of rows of a long answer shown together; a table is laid out for all its rows."""

PICTURE = "SVG"
"""The type of a column that holds the text of a picture."""

WIDE = 10_000
"""Columns of an output that is no terminal: nothing is folded."""


def console_for(stream_is_terminal: bool) -> Console:  # noqa: FBT001  a fact of the stream
    """Standard output, as wide as it is."""
    return Console() if stream_is_terminal else Console(width=WIDE)


class Printer:
    """Shows messages as they come. One text at a time."""

    def __init__(self, console: Console, *, as_json: bool) -> None:
        self._console, self._as_json = console, as_json
        self._columns: Sequence[Mapping[str, str]] = []
        self._rows: list[Sequence[object]] = []
        self._frontier: object = -1

    def show(self, message: Message) -> bool:
        """Show one message; False when it tells of a failure."""
        if self._as_json:
            text = json.dumps(message, ensure_ascii=False)
            self._console.out(text, highlight=False)
            return message["type"] != "error"
        return self._show(message)

    def _pictures(self) -> bool:
        """Whether rows are pictures, which are shown alone, for a file to hold nothing else."""
        return [column["type"] for column in self._columns] == [PICTURE]

    def fail(self, message: str, detail: str = "", hint: str = "") -> None:
        """Show a failure of our own."""
        error = {"message": message, "detail": detail, "hint": hint}
        self.show({"type": "error", "error": error})

    def flush(self) -> None:
        """Show the rows that have come."""
        if self._columns and self._rows:
            self._console.print(self._table())
        self._rows = []

    def _show(self, message: Message) -> bool:
        match message:
            case {"type": "columns", "columns": list(columns)}:
                self._columns = columns
            case {"type": "rows", "rows": list(rows)}:
                self._add(rows)
            case {"type": "progress", "frontier": time}:
                self._progress(time)
            case {"type": "notice", "message": str(text)}:
                self._console.print(f"[yellow]notice:[/] {escape(text)}", highlight=False)
            case {"type": "complete", "tag": str(tag)}:
                self._complete(tag)
            case {"type": "error", "error": dict(error)}:
                self._error(error)
            case _:
                pass
        return message["type"] != "error"

    def _add(self, rows: Sequence[Sequence[object]]) -> None:
        if self._pictures():
            for (picture,) in rows:
                self._console.out(picture, highlight=False)
            return
        self._rows += rows
        if len(self._rows) >= ROWS_AT_ONCE:
            self.flush()

    def _progress(self, time: object) -> None:
        self.flush()
        if time != self._frontier:
            said = "complete" if time is None else f"complete before {time}"
            self._console.print(f"[dim]-- {said}[/]", highlight=False)
        self._frontier = time

    def _complete(self, tag: str) -> None:
        if self._columns and not self._rows and tag.endswith(" 0"):
            self._console.print(self._table())
        self.flush()
        if not self._pictures():
            self._console.print(f"[dim]{escape(tag)}[/]", highlight=False)
        self._columns, self._frontier = [], -1

    def _error(self, error: Mapping[str, str]) -> None:
        self.flush()
        self._columns, self._frontier = [], -1
        said = {part: escape(printable_lines(text)) for part, text in error.items()}
        lines = [f"[red]error:[/] {said['message']}"]
        lines += [f"{part}: {said[part]}" for part in ("detail", "hint") if said[part]]
        self._console.print("\n  ".join(lines), highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        table = Table(header_style="bold")
        for index, column in enumerate(self._columns):
            numbers = all(isinstance(row[index], int | float) for row in self._rows)
            table.add_column(
                escape(column["name"]),
                justify="right" if numbers and self._rows else "left",
                overflow="fold",
            )
        for row in self._rows:
            table.add_row(*(_cell(value) for value in row))
        return table


def _cell(value: object) -> str:
    if value is None:
        return "[dim]null[/]"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return escape(printable_lines(text))
