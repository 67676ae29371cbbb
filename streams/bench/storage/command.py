"""`slackwater bench storage`: its parts, which of them, and at what scale."""

from collections.abc import Callable, Mapping, Sequence

import typer
from rich.console import Console

from streams.bench.figures import Outcome
from streams.bench.storage.bulk import bulk
from streams.bench.storage.cold_open import cold
from streams.bench.storage.growth import growth
from streams.bench.storage.latency import append, create, listen
from streams.bench.storage.many_collections import many
from streams.bench.storage.rig import StorageRig, rig
from streams.bench.storage.sinks import sinks

PARTS: Mapping[str, Callable[[StorageRig], Outcome]] = {
    "create": create,
    "append": append,
    "listen": listen,
    "bulk": bulk,
    "sinks": sinks,
    "cold": cold,
    "compaction": growth,
    "many": many,  # last, for its topics are a burden to others
}


def chosen(only: str) -> tuple[str, ...]:
    """The parts named, separated by commas; all of them when none is.

    Errors: typer.BadParameter for one that there is not.
    """
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    for name in names:
        if name not in PARTS:
            raise typer.BadParameter(f"expected some of {', '.join(PARTS)}, actual {name}")
    return names or tuple(PARTS)


def storage(
    names: Sequence[str], scale: float, console: Console, collections: int | None = None
) -> list[Outcome]:
    """Run the parts, in their order, on a broker of their own."""
    outcomes = []
    with rig(scale, console, collections) as bench:
        for name in (part for part in PARTS if part in names):
            bench.say(name)
            outcomes.append(PARTS[name](bench))
    return outcomes
