"""The page of `slackwater top`. Pure."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from streams.app.printable import printable
from streams.app.top.snapshot import (
    UNDER_WAY,
    WRONG,
    MaterializationLine,
    ObjectLine,
    ReplicaStatus,
    Snapshot,
)

_BAR = 10
"""Characters of the bar of a hydration."""
_BESIDE_ROWS = 3
"""Lines of a section beside its rows: a blank one, the header, and how many are left out."""
_STEPS = ((3_600_000, "h"), (60_000, "min"), (1_000, "s"))


Cells = tuple[str | Text, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A table: its columns, of which those that begin with > are numbers, and its rows."""

    columns: tuple[str, ...]
    rows: Sequence[Cells]

    def table(self, most: int) -> Table:
        """The first `most` rows."""
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        for column in self.columns:
            justify: JustifyMethod = "right" if column.startswith(">") else "left"
            table.add_column(column.removeprefix(">"), justify=justify, no_wrap=True)
        for cells in self.rows[:most]:
            table.add_row(*cells)
        return table


def page(seen: Snapshot, url: str, height: int | None = None, trouble: str = "") -> Group:
    """The page, of at most `height` lines; `trouble` is why it is not of now."""
    parts: list[RenderableType] = [_headline(seen, url, trouble)]
    left = sys.maxsize if height is None else height - 1
    for section in (_replicas(seen), _materializations(seen), _objects(seen)):
        if not section.rows:
            continue
        most = max(0, min(len(section.rows), left - _BESIDE_ROWS))
        parts += [Text(), section.table(most)]
        if most < len(section.rows):
            parts.append(Text(f"and {len(section.rows) - most} more", "dim"))
        left -= most + _BESIDE_ROWS
    return Group(*parts)


def _headline(seen: Snapshot, url: str, trouble: str) -> Text:
    at = datetime.fromtimestamp(seen.at_ms / 1000, UTC)
    text = Text.assemble(
        ("slackwater ", "bold"), f"{printable(url)}  epoch {seen.epoch}  {at:%H:%M:%S} UTC  "
    )
    if trouble:
        return text.append(printable(trouble), "red")
    count = len(seen.wrong)
    if count:
        return text.append(f"{count} wrong", "red")
    if not seen.replicas:
        return text.append("no replica", "red")
    return text.append("all is well", "green")


def _objects(seen: Snapshot) -> Section:
    columns = ("object", "kind", "status", ">lag", ">speed", "", "detail")
    return Section(columns, [_object(line) for line in seen.objects])


def _object(line: ObjectLine) -> Cells:
    return (
        printable(line.name),
        line.kind,
        _status(line.status),
        duration(line.lag_ms),
        "" if line.speed is None else f"{line.speed:.1f}x",
        _bar(line.done),
        printable(line.detail),
    )


def _replicas(seen: Snapshot) -> Section:
    states = (">owns", ">running", ">hydrating", ">stalled", ">failed")
    return Section(
        ("cluster", "replica", ">heard", *states, "process"),
        [_replica(line) for line in seen.replicas],
    )


def _replica(status: ReplicaStatus) -> Cells:
    return (
        printable(status["cluster"]),
        printable(status["replica"]),
        duration(status["silent_ms"]),
        str(status["owns"]),
        str(status["running"]),
        str(status["hydrating"]),
        str(status["stalled"]),
        str(status["failed"]),
        printable(status["process"]),
    )


def _materializations(seen: Snapshot) -> Section:
    columns = ("materialization", "connector", "status", ">behind", ">rows/s", "detail")
    return Section(columns, [_materialization(line) for line in seen.materializations])


def _materialization(line: MaterializationLine) -> Cells:
    return (
        printable(line.name),
        printable(line.connector),
        _status(line.status),
        duration(line.behind_ms),
        "" if line.rows_per_s is None else f"{line.rows_per_s:,}",
        printable(line.detail),
    )


def _status(status: str) -> Text:
    style = "red" if status in WRONG else "yellow" if status in UNDER_WAY else "green"
    return Text(status, style)


def _bar(done: float | None) -> str:
    if done is None:
        return ""
    full = round(done * _BAR)
    return f"{'#' * full}{'.' * (_BAR - full)} {done:4.0%}"


def duration(milliseconds: int | None) -> str:
    """A duration in its largest unit, with a digit behind the point; empty for none."""
    if milliseconds is None:
        return ""
    for size, unit in _STEPS:
        if milliseconds >= size:
            return f"{milliseconds / size:.1f} {unit}"
    return f"{milliseconds} ms"
