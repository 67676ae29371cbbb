"""The bar that a shell shows while a new view hydrates, or a new source reads its topic.

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
LEFT_ALONE = "it hydrates in the background; SHOW shows its progress"

Described = Mapping[str, object]


class Watched(Protocol):
    """The source of every object's condition: the coordinator."""

    def objects(self) -> list[Described]:
        """Every object, as /status has them."""


def watch(
    watched: Watched,
    console: Console,
    id_: str,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Show how far an object is, by its id, until it runs, or no progress can be seen.

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
            while (condition := _condition(watched, id_)) is not None:
                _show(bar, task, condition)
                pause(POLL_S)
    except KeyboardInterrupt:
        console.print(f"[dim]{LEFT_ALONE}[/]", highlight=False)


def _condition(watched: Watched, id_: str) -> Described | None:
    """The object's condition while there is something to wait for."""
    try:
        conditions = [object_ for object_ in watched.objects() if object_["id"] == id_]
    except SlackwaterError:
        return None
    return conditions[0] if conditions and conditions[0]["status"] in UNDER_WAY else None


def _show(bar: Progress, task: TaskID, condition: Described) -> None:
    match condition["hydration"]:
        case {"done": int(done), "total": int(total), "unit": unit, "seconds_left": left}:
            said = "" if left is None else f"{left:,} s left"
            text = f"{done:,} of {total:,} {unit}"
            bar.update(task, description=text, completed=done, total=total, left=said)
        case _:
            bar.update(
                task, description=str(condition["detail"] or condition["status"]), total=None
            )
