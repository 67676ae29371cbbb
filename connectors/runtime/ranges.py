"""Key ranges: how the keys of a task are divided, and up to which frontier each is written.

A task of several shards writes through as many concurrent streams, each for a range of key
hashes. They commit the same transactions, but one after another, so after a crash parts of the
keys are at different times. Each part continues from its own time, also if the number of shards
has changed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.flow_hash import FIRST, LAST
from streams.ids import Timestamp

KeyRange = tuple[int, int]
"""Hashes of keys, both ends inclusive."""
Hashes = NDArray[np.uint32]
EVERY_KEY: KeyRange = (FIRST, LAST)


def divided(count: int) -> list[KeyRange]:
    """All keys in ranges of about the same size."""
    begins = [number * (LAST + 1) // count for number in range(count)]
    return list(zip(begins, [*(begin - 1 for begin in begins[1:]), LAST], strict=True))


@dataclass(frozen=True, slots=True)
class Reach:
    """A part of the keys of a binding, and the frontier that it is written up to.

    None if nothing of it was written.
    """

    key_begin: int
    key_end: int
    frontier: Timestamp | None


def joined(reaches: Iterable[Reach]) -> tuple[Reach, ...]:
    """The same reaches sorted, with adjacent ones of equal frontier merged."""
    parts: list[Reach] = []
    for reach in sorted(reaches, key=lambda reach: reach.key_begin):
        if parts and parts[-1].frontier == reach.frontier:
            parts[-1] = replace(parts[-1], key_end=reach.key_end)
        else:
            parts.append(reach)
    return tuple(parts)


def within(reaches: Sequence[Reach], key_range: KeyRange) -> tuple[Reach, ...]:
    """The reaches clipped to a range."""
    begin, end = key_range
    inside = [reach for reach in reaches if reach.key_begin <= end and reach.key_end >= begin]
    return joined(
        Reach(max(begin, reach.key_begin), min(end, reach.key_end), reach.frontier)
        for reach in inside
    )


def raised(reaches: Sequence[Reach], frontier: Timestamp) -> tuple[Reach, ...]:
    """Once all of them are written up to a frontier at least; none if all stand at it."""
    moved = joined(
        replace(reach, frontier=max(reach.frontier or frontier, frontier)) for reach in reaches
    )
    return moved if len(moved) > 1 else ()


def places_of(begins: Sequence[int], hashes: Hashes) -> NDArray[np.int64]:
    """In which of several ranges, which begin so and cover all keys, each hash is."""
    return np.searchsorted(np.array(begins, np.uint32), hashes, side="right") - 1


def standing_at(
    reaches: Sequence[Reach], frontier: Timestamp, hashes: Hashes
) -> NDArray[np.bool_]:
    """Flags the hashes whose part is written up to exactly a frontier."""
    places = places_of([reach.key_begin for reach in reaches], hashes)
    inside: NDArray[np.bool_] = np.array([reach.frontier == frontier for reach in reaches])
    return inside[places]


def unwritten(reaches: Sequence[Reach], hashes: Hashes, times: NDArray[np.int64]) -> pa.Array:
    """Flags the changes that are not written yet, by key hash and time."""
    lowest = np.iinfo(np.int64).min
    frontiers = np.array(
        [lowest if reach.frontier is None else reach.frontier for reach in reaches], np.int64
    )
    places = places_of([reach.key_begin for reach in reaches], hashes)
    return pa.array(times >= frontiers[places])
