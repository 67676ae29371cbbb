"""Plans a backfill: which key ranges to write, and as of which time. Pure."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from connectors.runtime.ranges import KeyRange, Reach, divided, within
from schemas.flow_hash import LAST
from streams.ids import Timestamp

Written = Sequence[Sequence[Reach]]
"""For each binding, the reaches of all keys."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A key range of which the bindings of these numbers have nothing yet."""

    key_begin: int
    key_end: int
    bindings: frozenset[int]

    @property
    def range(self) -> KeyRange:
        """Both ends inclusive."""
        return self.key_begin, self.key_end


def gaps_of(
    written: Written, count: int, stalled: AbstractSet[int] = frozenset()
) -> tuple[Gap, ...]:
    """The gaps of a division of all keys into at least `count` ranges.

    Ranges are cut where something begins to be written too, so that each binding has all of a
    gap, or nothing. What a stalled binding misses is no gap.
    """
    begins = {begin for begin, _ in divided(count)}
    begins |= {reach.key_begin for reaches in written for reach in reaches}
    ordered = sorted(begins)
    ends = [*(begin - 1 for begin in ordered[1:]), LAST]
    gaps = [
        Gap(*bounds, missing(written, bounds) - stalled)
        for bounds in zip(ordered, ends, strict=True)
    ]
    return tuple(gap for gap in gaps if gap.bindings)


def missing(written: Written, key_range: KeyRange) -> frozenset[int]:
    """The bindings that have nothing of a part of a range."""
    return frozenset(
        number
        for number, reaches in enumerate(written)
        if any(reach.frontier is None for reach in within(reaches, key_range))
    )


def time_of(
    written: Written, holds: Sequence[Timestamp], uppers: Sequence[Timestamp]
) -> Timestamp | None:
    """The time whose contents are to be written; None if they are not complete yet.

    Where something is written already, by an attempt before or of other bindings, it is the
    time of that; the latest time that is complete, if nothing is.
    """
    begun = [
        Timestamp(reach.frontier - 1)
        for reaches in written
        for reach in reaches
        if reach.frontier is not None
    ]
    start = max([*holds, *begun])
    latest = Timestamp(min(uppers) - 1)
    time = start if begun else max(start, latest)
    return time if time <= latest else None
