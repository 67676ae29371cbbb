"""Exact offset ranges of a raw topic: cutting, sharing out, and detecting loss. Pure.

`streams.compute.reclocking` decides how far an interval reaches; the range of each partition
that it takes is a `Slice` here. `Slice(p, lo, hi)` stands for the records of partition p at
offsets in [lo, hi); there may be fewer records than offsets, since transaction markers, aborted
records and compaction leave gaps.

Invariants: `windows` and `assign` put every record of the slices in exactly one piece, for any
budget and number of tasks. No offset is ever skipped: if one can no longer be read,
`impediment` returns why, until an operator acts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streams.compute.description import IngestionDescription
from streams.compute.reclocking import Ends
from streams.ids import Offset

SETTLED = 20
"""Number of equal answers in a row after which they are not considered outdated."""


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


@dataclass(frozen=True, slots=True)
class Stalled:
    """Why nothing more can be read without skipping offsets."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotYet:
    """The known ends of the topic are older than the binding: ask again."""


@dataclass(frozen=True, slots=True)
class Told:
    """The broker's last answer about a topic: its id (None: it is gone) and its ends.

    `shrunk` are partitions whose end was seen to go back under this id, which no append-only
    log does; `repeats` is how often in a row this was the answer. `asked_ms` is the wall clock
    before the ends were asked for (None: just now): whatever was acknowledged by then is below
    them. `message_bytes` is the mean size of a message, 0 if it is unknown.
    """

    id: str | None
    ends: Mapping[int, Ends]
    shrunk: tuple[int, ...] = ()
    repeats: int = field(default=0, compare=False)
    asked_ms: int | None = field(default=None, compare=False)
    message_bytes: int = field(default=0, compare=False)


def slices(ranges: Mapping[int, tuple[int, int]]) -> tuple[Slice, ...]:
    """Return the slices of the ranges of `reclocking.ranges`, in the order of partitions."""
    return tuple(
        Slice(partition, Offset(lo), Offset(hi))
        for partition, (lo, hi) in sorted(ranges.items())
        if lo < hi
    )


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


def impediment(
    source: IngestionDescription, bound: Mapping[int, int], told: Told
) -> Stalled | NotYet | None:
    """Return why the topic cannot be read on from the binding `bound`, or None.

    A partition that is not in a binding is new, and must still hold its offset 0; only an empty
    binding, that of a source which has read nothing, starts at whatever is held. An end before
    the binding is first treated as an outdated answer: another replica may have read further.
    """
    name = f'topic "{source.topic}"'
    if told.id is None:
        return Stalled(f"{name} does not exist")
    if told.id != source.topic_id:
        return Stalled(f"{name} was re-created: expected id {source.topic_id}, got {told.id}")
    if told.shrunk:
        return Stalled(f"{name} has lost records at the end of partition {told.shrunk[0]}")
    for partition in sorted(set(bound) | set(told.ends)) if bound else ():
        reason = _gap(bound.get(partition, 0), told.ends.get(partition))
        if reason is not None:
            stalled = Stalled(f"{name}, partition {partition}: {reason}")
            settled = told.repeats >= SETTLED or _overtaken(bound, told.ends)
            return stalled if settled else NotYet()
    return None


def _overtaken(bound: Mapping[int, int], ends: Mapping[int, Ends]) -> bool:
    """Whether unread records are gone: no later answer brings them back."""
    return any(bound.get(partition, 0) < each.low for partition, each in ends.items())


def _gap(expected: int, ends: Ends | None) -> str | None:
    if ends is None:
        return f"expected offset {expected}, got no such partition"
    if expected < ends.low:
        return f"offsets {expected} to {ends.low - 1} were deleted before they were read"
    if ends.high < expected:
        return f"expected to reach offset {expected}, got an end at {ends.high}"
    return None
