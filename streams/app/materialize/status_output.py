"""Prints the status of a materialization: a live line, log lines, or JSON."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner

from connectors.runtime.runner import Status
from streams.app.shard.formatting import count_text, date_of, duration_text

EVERY_S = 1.0
"""The least time between two lines of JSON that tell of progress alone."""


class Shown(Protocol):
    """Shows what a runner reports."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, status: Status) -> None:
        """A status that differs from the one before."""


BAR_WIDTH = 40


class Lines:
    """For people: what changed the state is said once; on a terminal the last line moves.

    A bar below it shows how far the first contents are.
    """

    def __init__(self, console: Console) -> None:
        self._console, self._last = console, ""
        self._line = Spinner("dots", "starting")
        self._live = Live(self._line, console=console, transient=True)
        self._is_live = console.is_terminal

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_live:
            self._live.stop()

    def show(self, status: Status) -> None:
        """A line where the state has changed, or who stands still."""
        if self._is_live:
            self._line.update(text=progress(status))
            self._live.update(Group(self._line, *bar(status)))
        news = "\n".join(said(status))
        if news != self._last:
            self._last = news
            self._console.print(news, highlight=False, markup=False)


class Objects:
    """For programs: an object a line, once a second where nothing but numbers changes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: tuple[object, ...] = ()
        self._at = 0.0
        self._unsaid: Status | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._unsaid is not None:
            self._say(self._unsaid)

    def show(self, status: Status) -> None:
        """An object, unless one was shown a moment ago and only numbers differ."""
        key = (status.state, status.message, tuple(status.stalls.items()))
        if key == self._last and time.monotonic() - self._at < EVERY_S:
            self._unsaid = status
            return
        self._last = key
        self._say(status)

    def _say(self, status: Status) -> None:
        self._at, self._unsaid = time.monotonic(), None
        text = json.dumps(as_json(status), ensure_ascii=False)
        self._console.out(text, highlight=False)


def shown(console: Console, *, is_json: bool) -> Shown:
    """The status as shown."""
    return Objects(console) if is_json else Lines(console)


def behind_ms(status: Status) -> int | None:
    """The lag of the endpoint behind the common frontier of the collections."""
    if status.time is None or status.upper is None:
        return None
    return max(0, status.upper - 1 - status.time)


def bar(status: Status) -> list[ProgressBar]:
    """A bar while first contents are written."""
    backfill = status.backfill
    if backfill is None:
        return []
    return [ProgressBar(backfill.total, backfill.done, width=BAR_WIDTH)]


def as_json(status: Status) -> Mapping[str, object]:
    """A status for programs."""
    return {
        "type": "status",
        "task": status.task,
        "state": status.state,
        "message": status.message,
        "time": status.time,
        "at_one_time": status.at_one_time,
        "behind_ms": behind_ms(status),
        "rows": status.rows,
        "commits": status.commits,
        "errors": status.errors,
        "committed_ms": status.committed_ms,
        "backfill": None if status.backfill is None else asdict(status.backfill),
        "dead_letters": dict(status.dead_letters),
        "left_out": dict(status.left_out),
        "stalls": dict(status.stalls),
    }


def progress(status: Status) -> str:
    """The line that moves."""
    parts = [
        status.state,
        count_text(status.rows, "row", "rows"),
        count_text(status.commits, "commit", "commits"),
    ]
    if status.backfill is not None:
        fill = status.backfill
        parts.append(f"{fill.done:,} of {fill.total:,} {fill.unit} of first contents")
    behind = behind_ms(status)
    if status.time is not None:
        parts.append(f"at {date_of(status.time) or status.time}")
    if behind:
        parts.append(f"{duration_text(behind)} behind")
    return ", ".join(parts)


def said(status: Status) -> list[str]:
    """The facts worth a line of their own."""
    lines = [f"{status.task}: {status.state}"]
    if status.message:
        lines[0] += f": {status.message}"
    if status.state in {"done", "stopped"}:
        lines[0] = f"{status.task}: {progress(status)}"
    return [*lines, *(f"  {name}: {reason}" for name, reason in status.stalls.items())]
