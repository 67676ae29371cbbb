"""The terminal page: what the views hold now, how fast it comes, and how fresh it is."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from streams.demo.postgres import TableFacts
from streams.demo.views import View
from streams.demo.watch import Followed
from streams.trace.kernel.kernel import Kernel

ROWS = 8
"""Maximum of rows of a view."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The line above the views.

    Units: `published` and `total` count messages, `per_second` messages a second, freshness
    in milliseconds; `lag_ms` is how far the slowest view is behind the wall clock.
    """

    published: int
    total: int
    per_second: float
    freshness_p50_ms: float
    freshness_p90_ms: float
    moment: str


def render(
    numbers: Headline,
    views: Sequence[tuple[View, Followed]],
    collections: Sequence[Followed],
    kernel: Kernel,
    *,
    tables: TableFacts | None = None,
) -> RenderableType:
    """The whole page; `tables` are those of PostgreSQL, where there are some."""
    columns = Table.grid(padding=(0, 1), expand=True)
    columns.add_column(ratio=1)
    columns.add_column(ratio=1)
    panels = [_view(view, followed, kernel, tables) for view, followed in views]
    for left in range(0, len(panels), 2):
        columns.add_row(*panels[left : left + 2])
    parts: list[RenderableType] = [_head(numbers), columns, _frontiers(collections)]
    if tables is not None:
        parts.insert(1, Panel(Text(tables.text, "red" if tables.wrong else "green")))
    return Group(*parts)


def _head(numbers: Headline) -> RenderableType:
    line = Table.grid(padding=(0, 3))
    line.add_row(
        "[bold]slackwater demo[/]",
        f"New York, [cyan]{numbers.moment}[/]",
        f"[green]{numbers.published:,}[/] of {numbers.total:,} messages",
        f"[green]{numbers.per_second:,.0f}[/] events/s",
        f"fresh in [green]{numbers.freshness_p50_ms:,.0f}[/] ms"
        f" (p90 {numbers.freshness_p90_ms:,.0f} ms)",
    )
    return Panel(
        Group(line, ProgressBar(total=max(numbers.total, 1), completed=numbers.published))
    )


def _view(
    view: View, followed: Followed, kernel: Kernel, tables: TableFacts | None
) -> RenderableType:
    table = Table(expand=True, box=None, header_style="dim")
    for name in followed.names:
        table.add_column(name)
    count = 0
    if followed.contents is not None:
        count = followed.contents.num_rows
        for row in zip(*_top(view, followed, kernel), strict=True):
            table.add_row(*(_text(value) for value in row))
    text = f"{count} rows"
    if tables is not None and view.key:
        text += f", {tables.rows.get(view.name, 0)} in PostgreSQL"
    return Panel(table, title=f"{view.title} [dim]({text})[/]", title_align="left")


def _top(view: View, followed: Followed, kernel: Kernel) -> list[list[object]]:
    assert followed.contents is not None
    types = followed.contents.schema.types
    names = ", ".join(f'c{i} AS "{name}"' for i, name in enumerate(followed.names))
    shown = ", ".join(map(_shown, followed.names, types))
    top: pa.Table = kernel.query(
        f"SELECT {shown} FROM (SELECT {names} FROM contents) "
        f"ORDER BY {view.order} LIMIT {ROWS}",
        contents=followed.contents,
    )
    return [column.to_pylist() for column in top.columns]


def _shown(name: str, kind: pa.DataType) -> str:
    """A column as SQL for the eye; Arrow has no value of its own for a HUGEINT."""
    return f'"{name}"::VARCHAR' if isinstance(kind, pa.BaseExtensionType) else f'"{name}"'


def _text(value: object) -> str:
    if value is None:
        return "[dim]null[/]"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def _frontiers(collections: Sequence[Followed]) -> RenderableType:
    table = Table(expand=True, box=None, header_style="dim")
    for title in ("collection", "id", "since", "upper", "updates read"):
        table.add_column(title, justify="left" if title == "collection" else "right")
    for collection in collections:
        name = collection.title or collection.collection
        read = "" if collection.contents is None else f"{collection.rows:,}"
        table.add_row(
            name, collection.collection, str(collection.since), str(collection.upper), read
        )
    return Panel(table, title="Frontiers", title_align="left")
