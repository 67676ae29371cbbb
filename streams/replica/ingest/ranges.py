"""Which offsets of a raw topic an ingestion reads next, and how they are shared out. Pure.

A *binding* is a map from partition to the next offset to read. `Slice(p, lo, hi)` stands for
the records of partition p at offsets in [lo, hi); there may be fewer records than offsets,
since transaction markers, aborted records and compaction leave gaps.

Invariant: for a binding B and the slices S that `news` gives for it, cut by `take` in any way,
`bind(B, S)` is where the next step starts. No offset is ever passed over: when one can no
longer be read, the answer is `Stalled` and it stays so until a person acts.

Shape: ends are `{partition: (low, high)}`, low the first offset still held, high the last
stable offset (rule 30).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streams.ids import Offset, Topic


@dataclass(frozen=True, slots=True)
class Slice:
    """The records of one partition at offsets in [lo, hi)."""

    partition: int
    lo: Offset
    hi: Offset

    def __post_init__(self) -> None:
        assert self.lo <= self.hi, f"slice of partition {self.partition} runs backwards"

    @property
    def length(self) -> int:
        """The number of offsets, at least the number of records."""
        return self.hi - self.lo


@dataclass(frozen=True, slots=True)
class Stalled:
    """Why nothing can be read any more without leaving something out."""

    reason: str


Binding = Mapping[int, Offset]
Ends = Mapping[int, tuple[Offset, Offset]]


def same_topic(topic: Topic, expected_id: str, current_id: str | None) -> Stalled | None:
    """Stalled when the topic is gone, or is another one of the same name."""
    if current_id is None:
        return Stalled(f'topic "{topic}" does not exist')
    if expected_id and current_id != expected_id:
        return Stalled(
            f'topic "{topic}" was re-created: expected id {expected_id}, got {current_id}'
        )
    return None


def news(topic: Topic, bound: Binding, ends: Ends) -> tuple[Slice, ...] | Stalled:
    """Everything there is to read beyond `bound`, one slice for each partition that is there.

    An empty `bound` is a source that has read nothing yet: it starts at the first offset that
    is still held. Later a partition that is not in `bound` is new, and is read from offset 0.
    Partitions without news come as empty slices, so that `bind` records them.
    """
    slices = []
    for partition in sorted(set(bound) | set(ends)):
        if partition not in ends:
            return Stalled(f'topic "{topic}" has lost partition {partition}')
        low, high = ends[partition]
        lo = bound.get(partition, Offset(0)) if bound else low
        if lo < low:
            return Stalled(
                f'topic "{topic}", partition {partition}: the records from offset {lo} '
                f"to {low} were deleted before they were read"
            )
        if high < lo:
            return Stalled(
                f'topic "{topic}", partition {partition}: expected to end at offset {lo} or '
                f"later, got {high}"
            )
        slices.append(Slice(partition, lo, high))
    return tuple(slices)


def length(slices: Sequence[Slice]) -> int:
    """The number of offsets in all slices together."""
    return sum(each.length for each in slices)


def take(slices: Sequence[Slice], budget: int) -> tuple[Slice, ...]:
    """The first part of the slices, about `budget` offsets in all and never none of many.

    Every partition gives in proportion to what it has, so that none falls behind the others.
    Units: `budget` in offsets, at least 1.
    """
    total = length(slices)
    if total <= budget:
        return tuple(slices)
    return tuple(
        Slice(each.partition, each.lo, Offset(each.lo - (-each.length * budget // total)))
        for each in slices
    )


def windows(slices: Sequence[Slice], budget: int) -> tuple[tuple[Slice, ...], ...]:
    """Cuts of the slices whose order is that of (offset, partition): the pieces of a snapshot.

    All pieces of a snapshot happen at one time, where of a key's messages the one with the
    highest (offset, partition) counts. Each piece therefore takes the same window of offsets
    from every partition, and every position in a piece is below all positions in later ones.
    Units: `budget` in offsets, at least 1; no piece has more unless a single window of one
    offset does.
    """
    pieces: list[tuple[Slice, ...]] = []
    rest = tuple(each for each in slices if each.length)
    while rest:
        stop = _window_end(rest, min(each.lo for each in rest), budget)
        piece = tuple(_below(each, stop) for each in rest if each.lo < stop)
        pieces.append(piece)
        rest = tuple(kept for each in rest if (kept := _from(each, stop)).length)
    return tuple(pieces)


def _below(piece: Slice, stop: int) -> Slice:
    return Slice(piece.partition, piece.lo, Offset(min(piece.hi, max(piece.lo, stop))))


def _from(piece: Slice, start: int) -> Slice:
    return Slice(piece.partition, Offset(max(piece.lo, min(piece.hi, start))), piece.hi)


def _window_end(slices: Sequence[Slice], start: Offset, budget: int) -> int:
    """The greatest end above `start` of a window that holds at most `budget` offsets."""
    low: int = start + 1
    high: int = max(each.hi for each in slices)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(_below(each, middle).length for each in slices) <= budget:
            low = middle
        else:
            high = middle - 1
    return low


def assign(slices: Sequence[Slice], tasks: int) -> tuple[tuple[Slice, ...], ...]:
    """The slices shared out evenly: at most `tasks` non-empty groups of almost equal length.

    A partition's slice is cut where a group is full, so one large partition keeps all tasks
    busy. Groups without records are left out.
    """
    total = length(slices)
    groups: list[tuple[Slice, ...]] = []
    pending = [each for each in slices if each.length]
    taken = 0
    for number in range(1, tasks + 1):
        group: list[Slice] = []
        goal = total * number // tasks
        while pending and taken < goal:
            head = pending.pop(0)
            part = Slice(head.partition, head.lo, Offset(min(head.hi, head.lo + goal - taken)))
            group.append(part)
            taken += part.length
            if part.hi < head.hi:
                pending.insert(0, Slice(head.partition, part.hi, head.hi))
        if group:
            groups.append(tuple(group))
    return tuple(groups)


def bind(bound: Binding, slices: Sequence[Slice]) -> dict[int, Offset]:
    """The binding after the slices have been read."""
    return {**bound, **{each.partition: each.hi for each in slices}}
