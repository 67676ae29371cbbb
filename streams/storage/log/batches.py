"""The trace of a collection in the log: batches of chunks, each over an interval of times.

The updates of a batch are the rows of its chunks whose times lie in [lower, upper). A chunk may
hold more: a writer that lost a race links its chunks again for the part of the interval that is
still open. The collection is the sum of its batches. Batches of one write capability follow one
another; those of different capabilities may overlap (rule 2).

`Trace` is a persistent value: adding a batch shares everything but O(sqrt n) pointers with the
trace before, so the fold stays pure and appends in practically constant time. Batches are kept
in *lanes*; in a lane they are sorted and do not overlap, so the batches of an interval are
found by bisection. There are as many lanes as batches that overlap: usually one. The assignment
to lanes is not part of the state: two traces are equal if their `ordered` are.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter

from streams.ids import Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import Antichain
from streams.storage.log.events import BatchName, Offsets
from streams.values import value

BLOCK = 128


@value(frozen=True, slots=True)
class Batch:
    """Chunks over [lower, upper).

    `offset` and `part` say which event made it, or last widened it when it is empty. Times in
    the chunks were advanced to `since` (0 as written). `source` is the source binding as of
    `upper`, None for what no source feeds.
    """

    lower: Timestamp
    upper: Antichain
    chunks: tuple[ChunkRef, ...]
    offset: Offset
    part: int
    since: Timestamp
    source: Offsets | None

    @property
    def name(self) -> BatchName:
        """The name of the batch in a Replace."""
        return BatchName(self.offset, self.part, self.lower, self.upper)


_lower = attrgetter("lower")


def _first_lower(block: tuple[Batch, ...]) -> Timestamp:
    return block[0].lower


@value(frozen=True, slots=True)
class Lane:
    """Batches in order of time that do not overlap: full blocks, then the tail."""

    blocks: tuple[tuple[Batch, ...], ...] = ()
    tail: tuple[Batch, ...] = ()

    def __iter__(self) -> Iterator[Batch]:
        return chain(chain.from_iterable(self.blocks), self.tail)

    @property
    def count(self) -> int:
        """How many batches there are: every block is full."""
        return len(self.blocks) * BLOCK + len(self.tail)

    @property
    def last(self) -> Batch:
        """The latest batch; a lane has one."""
        return self.tail[-1] if self.tail else self.blocks[-1][-1]

    def push(self, batch: Batch) -> "Lane":
        """The lane with `batch`, which begins where the last one ends or later, at its end."""
        tail = (*self.tail, batch)
        return Lane((*self.blocks, tail), ()) if len(tail) >= BLOCK else Lane(self.blocks, tail)

    def swap_last(self, batch: Batch) -> "Lane":
        """Return the lane with `batch` in place of its last one."""
        if self.tail:
            return Lane(self.blocks, (*self.tail[:-1], batch))
        return Lane(self.blocks[:-1], (*self.blocks[-1][:-1], batch))

    def from_time(self, time: Timestamp) -> Iterator[Batch]:
        """Yield the batches with times at or after `time`, in order."""
        blocks = (*self.blocks, self.tail) if self.tail else self.blocks
        first = max(bisect_right(blocks, time, key=_first_lower) - 1, 0)
        for number in range(first, len(blocks)):
            block = blocks[number]
            start = max(bisect_right(block, time, key=_lower) - 1, 0) if number == first else 0
            for index in range(start, len(block)):
                if not _ends_by(block[index], time):
                    yield block[index]


def _ends_by(batch: Batch, time: Timestamp) -> bool:
    """Whether all times of the batch are before `time`."""
    return not batch.upper.is_empty and batch.upper.time <= time


def lane_of(batches: Iterable[Batch]) -> Lane:
    """Return a lane of batches that are given in order."""
    every = tuple(batches)
    full = len(every) - len(every) % BLOCK
    blocks = tuple(every[start : start + BLOCK] for start in range(0, full, BLOCK))
    return Lane(blocks, every[full:])


@value(frozen=True, slots=True)
class Trace:
    """All batches of a collection."""

    lanes: tuple[Lane, ...] = ()

    def __iter__(self) -> Iterator[Batch]:
        return chain.from_iterable(self.lanes)

    @property
    def count(self) -> int:
        """The number of batches."""
        return sum(lane.count for lane in self.lanes)

    def ordered(self) -> list[Batch]:
        """The batches in the order of the events that made them; equal for all folds."""
        return sorted(self, key=attrgetter("offset", "part"))

    def overlapping(self, lower: Timestamp, upper: Timestamp) -> Iterator[Batch]:
        """The batches which hold some time of [lower, upper). Takes O(log n + their number)."""
        for lane in self.lanes:
            for batch in lane.from_time(lower):
                if batch.lower >= upper:
                    break
                yield batch

    def add(self, batch: Batch) -> "Trace":
        """The trace with one more batch. An empty batch extends an empty one before it."""
        if not batch.chunks:
            neighbour = self._empty_before(batch)
            if neighbour is not None:
                return self._widen(neighbour, batch)
        for number, lane in enumerate(self.lanes):
            if _ends_by(lane.last, batch.lower):
                return self._with_lane(number, lane.push(batch))
        return Trace((*self.lanes, Lane(tail=(batch,))))

    def find(self, name: BatchName) -> Batch | None:
        """Return the batch of this name if it is still current; else None."""
        for lane in self.lanes:
            batch = next(lane.from_time(name.lower), None)
            if batch is not None and batch.name == name:
                return batch
        return None

    def replace(self, gone: Iterable[Batch], new: Batch) -> "Trace":
        """The trace without some of its batches, and with `new`."""
        names = {(batch.offset, batch.part) for batch in gone}
        remaining = [batch for batch in self if (batch.offset, batch.part) not in names]
        return trace_of([*remaining, new])

    def _with_lane(self, number: int, lane: Lane) -> "Trace":
        return Trace((*self.lanes[:number], lane, *self.lanes[number + 1 :]))

    def _empty_before(self, batch: Batch) -> Batch | None:
        """The newest empty batch that ends where `batch` begins, with the same binding."""
        first = None
        for lane in self.lanes:
            candidate = _ending_at(lane, batch.lower)
            if candidate is None or candidate.chunks or candidate.source != batch.source:
                continue
            if first is None or (candidate.offset, candidate.part) > (first.offset, first.part):
                first = candidate
        return first

    def _widen(self, old: Batch, by: Batch) -> "Trace":
        since = max(old.since, by.since)
        wide = Batch(old.lower, by.upper, (), by.offset, by.part, since, by.source)
        for number, lane in enumerate(self.lanes):
            if lane.last is old:
                return self._with_lane(number, lane.swap_last(wide))
        return self.replace((old,), wide)


def _ending_at(lane: Lane, time: Timestamp) -> Batch | None:
    """Return the batch of `lane` whose upper is `time`."""
    last = lane.last
    if not last.upper.is_empty and last.upper.time == time:
        return last
    if last.lower < time:
        return None
    before = Timestamp(time - 1)
    batch = next(lane.from_time(before), None)
    return batch if batch is not None and _ends_by(batch, time) else None


def trace_of(batches: Iterable[Batch]) -> Trace:
    """Return a trace of the given batches, in as few lanes as possible."""
    lanes: list[list[Batch]] = []
    for batch in sorted(batches, key=attrgetter("lower", "offset", "part")):
        fitting = next((lane for lane in lanes if _ends_by(lane[-1], batch.lower)), None)
        if fitting is None:
            lanes.append([batch])
        else:
            fitting.append(batch)
    return Trace(tuple(lane_of(lane) for lane in lanes))
