"""`slackwater bench compute`: its parts, and which of them."""

from collections.abc import Callable, Mapping, Sequence

import typer

from streams.bench.compute.many_dataflows import controller, create_dataflows, idle
from streams.bench.compute.peeks import peeks
from streams.bench.compute.restart import restart
from streams.bench.compute.scale import ComputeScale
from streams.bench.compute.subscribe import subscribe
from streams.bench.figures import Outcome
from streams.bench.rig import Rig, Say, rig

Part = Callable[[Rig, ComputeScale], Outcome]

ALONE: Mapping[str, Part] = {"peeks": peeks, "subscribe": subscribe, "restart": restart}
"""Each has an environment of its own."""

OF_MANY: Mapping[str, Part] = {"idle": idle, "controller": controller}
"""They share one with many dataflows; the last one takes it over."""

PARTS = (*ALONE, *OF_MANY)


def chosen(only: str) -> tuple[str, ...]:
    """The parts named, separated by commas; all of them when none is.

    Errors: typer.BadParameter for one that there is not.
    """
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    for name in names:
        if name not in PARTS:
            raise typer.BadParameter(f"expected some of {', '.join(PARTS)}; actual {name}")
    return tuple(part for part in PARTS if part in names) or PARTS


def compute(say: Say, names: Sequence[str], scale: ComputeScale) -> list[Outcome]:
    """Run the parts, in their order. Errors: Determinate."""
    outcomes = []
    for name in (part for part in ALONE if part in names):
        say(name)
        with rig(say) as bench:
            outcomes.append(ALONE[name](bench, scale))
    parts = [part for part in OF_MANY if part in names]
    if parts:
        say(" and ".join(parts))
        with rig(say) as bench:
            create_dataflows(bench, scale.dataflows)
            outcomes += [OF_MANY[name](bench, scale) for name in parts]
    return outcomes
