"""Selects the as_of of a dataflow when it is born or its controller starts. Pure.

An as_of is bounded from both sides. Hard bounds keep answers right; soft ones keep a start
cheap, and give way to hard ones:

    hard, at least     the since of each import, and each hold on one: before it, history is
                       compacted
    hard, at most      one less than the upper of a durable export that exists: its contents at
                       later times follow from state at that time
    soft, at most      one less than the upper of each import: a later snapshot is waited for
    soft, at most      the since of the export: from there on it can be read

The as_of is the greatest time within them: a later one needs less history. Where a soft bound
cannot be met, it is the least time that the hard ones allow. If these conflict, an import has
lost what the export still lacks: the as_of is that of the export, and the replica reports that
it cannot be read, unless it has a checkpoint.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from streams.ids import MINIMUM_TIME, Timestamp
from streams.progress import Antichain, end_of

Side = Literal["at least", "at most"]


@dataclass(frozen=True, slots=True)
class ReadableInterval:
    """The interval in which a collection can be read. `name` is the user's."""

    name: str
    since: Antichain
    upper: Antichain


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of an as_of; `why` is for display."""

    side: Side
    time: Timestamp
    why: str
    is_hard: bool = True


@dataclass(frozen=True, slots=True)
class AsOf:
    """The selected time, what decided it, and the hard bounds that it cannot meet."""

    time: Timestamp
    decided_by: str
    unmet: tuple[Bound, ...] = ()


def newborn(imports: Iterable[ReadableInterval]) -> list[Bound]:
    """Return the bounds of a dataflow that is born, whose imports are held at their sinces."""
    return [bound for read in imports for bound in (_readable(read), _complete(read))]


def continued(
    imports: Iterable[ReadableInterval], export: ReadableInterval, born: Timestamp
) -> list[Bound]:
    """Return the bounds of a dataflow whose export is in a shard, from the time `born` on."""
    bounds = newborn(imports)
    if not export.since.is_empty:
        why = f"since of {export.name}"
        bounds.append(Bound("at most", export.since.time, why, is_hard=False))
    if not export.upper.is_empty:
        time = max(born, Timestamp(export.upper.time - 1))
        bounds.append(Bound("at most", time, f"upper of {export.name}"))
    return bounds


def select(bounds: Sequence[Bound]) -> AsOf:
    """Return the as_of within the bounds."""
    least = max((b for b in bounds if b.side == "at least"), key=_time, default=NOTHING)
    most = min((b for b in bounds if b.side == "at most"), key=_time, default=NOTHING)
    hard = [b for b in bounds if b.side == "at most" and b.is_hard and b.time < least.time]
    if hard:
        kept = min(hard, key=_time)
        unmet = tuple(b for b in bounds if b.side == "at least" and b.time > kept.time)
        return AsOf(kept.time, kept.why, unmet)
    decisive = least if most is NOTHING or most.time < least.time else most
    return AsOf(decisive.time, decisive.why)


NOTHING = Bound("at least", MINIMUM_TIME, "nothing")
"""The bound where there is none."""


def _time(bound: Bound) -> Timestamp:
    return bound.time


def _readable(read: ReadableInterval) -> Bound:
    return Bound("at least", read.since.time, f"since of {read.name}")


def _complete(read: ReadableInterval) -> Bound:
    time = Timestamp(end_of(read.upper) - 1)
    return Bound("at most", time, f"upper of {read.name}", is_hard=False)
