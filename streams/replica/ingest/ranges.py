"""Exact ranges of a raw topic, how they are cut up, and what makes reading impossible. Pure.

`streams.compute.reclocking` decides how far an interval reaches; the range of each partition
that it takes is a `Slice` here. `Slice(p, lo, hi)` stands for the records of partition p at
offsets in [lo, hi); there may be fewer records than offsets, since transaction markers, aborted
records and compaction leave gaps.

Invariants: `windows` and `assign` give every record of the slices to one piece and no more, for
any budget and number of tasks. No offset is ever passed over: when one can no longer be
read, `impediment` says why, and it stays so until a person acts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streams.compute.description import IngestionDescription
from streams.compute.reclocking import Ends
from streams.ids import Offset

SETTLED = 20
"""An answer given so many times in a row is not an old one."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The records of one partition at offsets in [lo, hi). Holds at least one offset."""

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
    """Why nothing can be read any more without leaving something out."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotYet:
    """What is known of the topic is older than the binding: ask again."""


@dataclass(frozen=True, slots=True)
class Told:
    """A topic as the broker had it when last asked: its id (None: it is gone) and its ends.

    `shrunk` are partitions whose end was seen to go back under this id, which no append-only
    log does; `repeats` is how often in a row this was the answer. `asked_ms` is the wall clock
    before the ends were asked for (None: just now): whatever was acknowledged by then is below
    them.
    """

    id: str | None
    ends: Mapping[int, Ends]
    shrunk: tuple[int, ...] = ()
    repeats: int = field(default=0, compare=False)
    asked_ms: int | None = field(default=None, compare=False)


def slices(ranges: Mapping[int, tuple[int, int]]) -> tuple[Slice, ...]:
    """The ranges that `reclocking.ranges` gives, in the order of partitions."""
    return tuple(
        Slice(partition, Offset(lo), Offset(hi))
        for partition, (lo, hi) in sorted(ranges.items())
        if lo < hi
    )


def length(parts: Sequence[Slice]) -> int:
    """The number of offsets in all slices together."""
    return sum(each.length for each in parts)


def windows(parts: Sequence[Slice], budget: int) -> tuple[tuple[Slice, ...], ...]:
    """Cuts of the slices whose order is that of (offset, partition): the pieces of a snapshot.

    All pieces of a snapshot happen at one time, where of a key's messages the one with the
    highest (offset, partition) counts. Each piece therefore takes the same window of offsets
    from every partition, so that every position in a piece is below all positions in later
    ones.

    Units: `budget` in offsets, at least 1. A piece holds more only when the window is a single
    offset wide.
    """
    pieces: list[tuple[Slice, ...]] = []
    rest = tuple(parts)
    while rest:
        stop = _window_end(rest, min(each.lo for each in rest), budget)
        pieces.append(_clip(rest, 0, stop))
        rest = _clip(rest, stop, None)
    return tuple(pieces)


def _clip(parts: Sequence[Slice], start: int, stop: int | None) -> tuple[Slice, ...]:
    """The part of each slice at offsets in [start, stop), without those that have none."""
    return slices(
        {
            each.partition: (
                max(each.lo, start),
                each.hi if stop is None else min(each.hi, stop),
            )
            for each in parts
        }
    )


def _window_end(parts: Sequence[Slice], start: Offset, budget: int) -> int:
    """The greatest end above `start` of a window that holds at most `budget` offsets."""
    low, high = start + 1, max(start + 1, *(int(each.hi) for each in parts))
    while low < high:
        middle = (low + high + 1) // 2
        if length(_clip(parts, start, middle)) <= budget:
            low = middle
        else:
            high = middle - 1
    return low


def assign(parts: Sequence[Slice], tasks: int) -> tuple[tuple[Slice, ...], ...]:
    """The slices shared out evenly: at most `tasks` groups of almost equal length.

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
    """What lies at [start, stop) when all slices are laid end to end."""
    found, passed = [], 0
    for each in parts:
        lo = max(each.lo, each.lo + start - passed)
        hi = min(each.hi, each.lo + stop - passed)
        if lo < hi:
            found.append(Slice(each.partition, Offset(lo), Offset(hi)))
        passed += each.length
    return tuple(found)


def impediment(
    source: IngestionDescription, bound: Mapping[int, int], told: Told
) -> Stalled | NotYet | None:
    """Why the topic cannot be read on from the binding `bound`, or None.

    A partition that is not in a binding is new, and must still hold its offset 0; only an
    empty binding, that of a source which has read nothing, starts at whatever is held. An end
    before the binding is first taken for an old answer: another replica may know of more.
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
    """Whether records are gone that were not read: no later answer brings them back."""
    return any(bound.get(partition, 0) < each.low for partition, each in ends.items())


def _gap(expected: int, ends: Ends | None) -> str | None:
    if ends is None:
        return f"expected offset {expected}, got no such partition"
    if expected < ends.low:
        return f"offsets {expected} to {ends.low - 1} were deleted before they were read"
    if ends.high < expected:
        return f"expected to reach offset {expected}, got an end at {ends.high}"
    return None
