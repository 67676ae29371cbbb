"""The bar that a shell shows while a new view hydrates.

Watching is all it does: when it is broken off the hydration goes on.
"""

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from streams.errors import SlackwaterError

POLL_S = 0.25
UNDER_WAY = {"starting", "hydrating"}
LEFT_ALONE = "it hydrates in the background; SHOW MATERIALIZED VIEWS shows its progress"

Described = Mapping[str, object]


class Watched(Protocol):
    """Where the condition of every object is to be had: the coordinator."""

    def objects(self) -> list[Described]:
        """Every object, as /status has them."""


def watch(
    watched: Watched,
    console: Console,
    view: str,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Show how far a view is, by its id, until it is through, or no progress can be seen.

    Ctrl-C ends the watching.
    """
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
        transient=True,
    )
    try:
        with bar:
            task = bar.add_task("starting", total=None, left="")
            while (found := _condition(watched, view)) is not None:
                _show(bar, task, found)
                pause(POLL_S)
    except KeyboardInterrupt:
        console.print(f"[dim]{LEFT_ALONE}[/]", highlight=False)


def _condition(watched: Watched, view: str) -> Described | None:
    """The view's condition while there is something to wait for."""
    try:
        found = [each for each in watched.objects() if each["id"] == view]
    except SlackwaterError:
        return None
    return found[0] if found and found[0]["status"] in UNDER_WAY else None


def _show(bar: Progress, task: TaskID, found: Described) -> None:
    match found["hydration"]:
        case {"done": int(done), "total": int(total), "seconds_left": left}:
            said = "" if left is None else f"{left:,} s left"
            text = f"{done:,} of {total:,} rows"
            bar.update(task, description=text, completed=done, total=total, left=said)
        case _:
            bar.update(task, description=str(found["detail"] or found["status"]), total=None)
