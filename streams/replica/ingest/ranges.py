"""Exact offset ranges of a raw topic: cutting and sharing out. Pure.

`streams.compute.reclocking` decides how far an interval reaches; the range of each partition
that it takes is a `Slice` here. `Slice(p, lo, hi)` stands for the records of partition p at
offsets in [lo, hi); there may be fewer records than offsets, since transaction markers, aborted
records and compaction leave gaps.

Invariant: `windows` and `assign` put every record of the slices in exactly one piece, for any
budget and number of tasks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streams.ids import Offset


@dataclass(frozen=True, slots=True)
class Slice:
    """The records of one partition at offsets in [lo, hi). Has at least one offset."""

    partition: int
    lo: Offset
    hi: Offset

    def __post_init__(self) -> None:
        assert self.lo < self.hi, f"empty slice of partition {self.partition} at {self.lo}"

    @property
    def length(self) -> int:
        """The number of offsets, at least the number of records."""
        return self.hi - self.lo


def slices(ranges: Mapping[int, tuple[int, int]]) -> tuple[Slice, ...]:
    """Return the slices of the ranges of `reclocking.ranges`, in the order of partitions."""
    return tuple(
        Slice(partition, Offset(lo), Offset(hi))
        for partition, (lo, hi) in sorted(ranges.items())
        if lo < hi
    )


def without(
    parts: Sequence[Slice], gaps: Mapping[int, Sequence[tuple[int, int]]]
) -> tuple[Slice, ...]:
    """Return the slices without the offsets in gaps, which are in order for each partition."""
    pieces = []
    for part in parts:
        first = part.lo
        for lo, hi in gaps.get(part.partition, ()):
            if first < min(lo, part.hi):
                pieces.append(Slice(part.partition, first, Offset(min(lo, part.hi))))
            first = Offset(max(first, hi))
        if first < part.hi:
            pieces.append(Slice(part.partition, first, part.hi))
    return tuple(pieces)


def length(parts: Sequence[Slice]) -> int:
    """Return the number of offsets in all slices."""
    return sum(part.length for part in parts)


def windows(parts: Sequence[Slice], budget: int) -> tuple[tuple[Slice, ...], ...]:
    """Cut the slices in the order of (offset, partition): the pieces of a snapshot.

    All pieces of a snapshot are at one time, and of a key's messages the one with the highest
    (offset, partition) counts. Each piece therefore takes the same window of offsets from every
    partition, so that every position in a piece is below all positions in later ones.

    Units: `budget` in offsets, at least 1. A piece holds more only when the window is a single
    offset wide.
    """
    pieces: list[tuple[Slice, ...]] = []
    rest = tuple(parts)
    while rest:
        stop = _window_end(rest, min(piece.lo for piece in rest), budget)
        pieces.append(_clip(rest, 0, stop))
        rest = _clip(rest, stop, None)
    return tuple(pieces)


def _clip(parts: Sequence[Slice], start: int, stop: int | None) -> tuple[Slice, ...]:
    """Return the part of each slice at offsets in [start, stop), without empty ones."""
    return slices(
        {
            part.partition: (
                max(part.lo, start),
                part.hi if stop is None else min(part.hi, stop),
            )
            for part in parts
        }
    )


def _window_end(parts: Sequence[Slice], start: Offset, budget: int) -> int:
    """Return the greatest end above `start` of a window of at most `budget` offsets."""
    low, high = start + 1, max(start + 1, *(int(part.hi) for part in parts))
    while low < high:
        middle = (low + high + 1) // 2
        if length(_clip(parts, start, middle)) <= budget:
            low = middle
        else:
            high = middle - 1
    return low


def assign(parts: Sequence[Slice], tasks: int) -> tuple[tuple[Slice, ...], ...]:
    """Share out the slices evenly: at most `tasks` groups of almost equal length.

    A partition's slice is cut where a group is full, so that one large partition keeps all
    tasks busy. A group may hold two slices of one partition only when given two.
    """
    total = length(parts)
    groups: list[tuple[Slice, ...]] = []
    for number in range(tasks):
        start, stop = total * number // tasks, total * (number + 1) // tasks
        if start < stop:
            groups.append(_between(parts, start, stop))
    return tuple(groups)


def _between(parts: Sequence[Slice], start: int, stop: int) -> tuple[Slice, ...]:
    """Return the range [start, stop) of all slices laid end to end."""
    pieces, passed = [], 0
    for part in parts:
        lo = max(part.lo, part.lo + start - passed)
        hi = min(part.hi, part.lo + stop - passed)
        if lo < hi:
            pieces.append(Slice(part.partition, Offset(lo), Offset(hi)))
        passed += part.length
    return tuple(pieces)
