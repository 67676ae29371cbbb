"""The tasks of a backfill: read chunks, write one key range.

    read     some chunks of a collection: fetched, at the backfill's time, consolidated, divided
             by the hash of their keys
    stalled  whether the rows of one key range are contents at all
    write    all rows of one key range, in a session of its own and one commit

A binding that stalls in any range is written in none: it has no contents at that time. All are
given all that they need, so they run in any process. A task that runs twice does no
harm: a session of a range takes it over from every older one, so that of two attempts the older
cannot commit any more, and the newer is told what is committed already.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from connectors.backfill.plan import Gap
from connectors.driver import Driver, Stream
from connectors.protocol import messages
from connectors.runtime import checkpoints
from connectors.runtime.documents import Encoder
from connectors.runtime.error_rows import NO_ERRORS
from connectors.runtime.key_hasher import KeyHasher
from connectors.runtime.lane import Lane
from connectors.runtime.ranges import Hashes, Reach, places_of
from connectors.runtime.session import ONE_SHARD
from connectors.runtime.spill import Spill
from connectors.runtime.task_setup import AppliedTask
from connectors.runtime.transactions import Part, Position
from streams.errors import InvalidUsage
from streams.ids import Timestamp, Topic
from streams.storage.read.reader import Loaded, Piece
from streams.storage.sinks.sink import Integers
from streams.temporary import temporary_directory
from streams.trace.kernel.kernel import Kernel
from streams.trace.updates import advance, consolidate, flatten

Loading = Callable[[Topic, Sequence[Piece]], Loaded]
"""Fetches chunks of a topic. Errors: Corrupt if one is missing, Determinate."""


class TaskServices(NamedTuple):
    """The services that a task uses."""

    load: Loading
    driver: Driver


Accessing = Callable[[], AbstractContextManager[TaskServices]]
"""Opens the services of a task, in any process."""

BLOB_BYTES = 4 << 20
"""About so many bytes of rows are sent to a range together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A backfill: of which task, at which time, of what."""

    prepared: AppliedTask
    topics: tuple[Topic, ...]
    """For each binding, with the chunks of its collection."""
    as_of: Timestamp
    gaps: tuple[Gap, ...]
    spill: str
    """A directory for rows that wait to be written; empty: the system's."""

    @property
    def frontier(self) -> Timestamp:
        """The frontier up to which the ranges are written."""
        return Timestamp(self.as_of + 1)

    def without(self, bindings: Iterable[int]) -> "Plan":
        """The same gaps, of which some bindings are not written."""
        gone = frozenset(bindings)
        gaps = [replace(gap, bindings=gap.bindings - gone) for gap in self.gaps]
        return replace(self, gaps=tuple(gaps))


@dataclass(frozen=True, slots=True)
class Cell:
    """Chunks of a binding's collection that are read together."""

    binding: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a binding in a gap, by its number, and errors of the collection."""

    gap: int
    binding: int
    updates: pa.RecordBatch
    errors: pa.Table


def read(plan: Plan, cell: Cell, load: Loading, kernel: Kernel) -> Iterator[Rows]:
    """The rows of a cell, by gap. Errors: as `Loading`."""
    bound = plan.prepared.bounds[cell.binding]
    updates, errors = load(plan.topics[cell.binding], cell.pieces)
    rows = consolidate(advance(flatten([updates], bound.schema), plan.as_of), kernel)
    hashes = KeyHasher(bound.key_columns, kernel).hashes(
        [rows.column(place) for place in bound.places]
    )
    numbers = numbers_of(plan.gaps, hashes)
    order = np.argsort(numbers, kind="stable")
    ordered = rows.take(pa.array(order))
    starts = np.searchsorted(numbers[order], np.arange(len(plan.gaps) + 1))
    for number, gap in enumerate(plan.gaps):
        if cell.binding not in gap.bindings:
            continue
        begin, end = int(starts[number]), int(starts[number + 1])
        for some in sliced(ordered.slice(begin, end - begin)):
            yield Rows(number, cell.binding, some, NO_ERRORS)
        if errors.num_rows:
            yield Rows(number, cell.binding, ordered.slice(0, 0), errors)


def numbers_of(gaps: Sequence[Gap], hashes: Hashes) -> Integers:
    """The gap of each hash; as many as there are gaps where it is in none."""
    places = places_of([gap.key_begin for gap in gaps], hashes)
    ends = np.array([gap.key_end for gap in gaps], np.uint32)
    return np.where((places >= 0) & (hashes <= ends[places]), places, len(gaps))


def sliced(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows in parts of about `BLOB_BYTES`."""
    count = -(-rows.nbytes // BLOB_BYTES)
    size = max(1, -(-rows.num_rows // max(1, count)))
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)


@contextmanager
def decided(
    plan: Plan, number: int, rows: Iterable[Rows], kernel: Kernel
) -> Iterator[Mapping[int, Spill]]:
    """The rows of a gap on disk, by binding, with their net effect."""
    place = Path(plan.spill) if plan.spill else None
    with temporary_directory("slackwater-", place) as directory:
        spills = {
            binding: Spill(
                plan.prepared.bounds[binding],
                Position(plan.as_of, is_begun=False),
                kernel,
                Path(directory) / str(binding),
            )
            for binding in sorted(plan.gaps[number].bindings)
        }
        for some in rows:
            if some.binding in spills:
                spills[some.binding].add(pa.Table.from_batches([some.updates]), some.errors)
        for spill in spills.values():
            spill.decide(plan.frontier)
        yield spills


def stalled(plan: Plan, number: int, rows: Iterable[Rows], kernel: Kernel) -> Mapping[int, str]:
    """The bindings that have no contents in a gap, and why: a violated key, or an error."""
    with decided(plan, number, rows, kernel) as spills:
        return {binding: spill.reason for binding, spill in spills.items() if spill.reason}


def write(plan: Plan, number: int, rows: Iterable[Rows], driver: Driver, kernel: Kernel) -> int:
    """Write a gap, unless it is written; return how many rows. Errors: as `Stream`.

    No binding of the gap is stalled in it.
    """
    gap = plan.gaps[number]
    if not gap.bindings:
        return 0
    with decided(plan, number, rows, kernel) as spills:
        reasons = [spill.reason for spill in spills.values() if spill.reason]
        assert not reasons, f"stalled bindings were taken out: {reasons}"
        message = opening(plan.prepared, gap)
        with driver.open(message, plan.prepared.extensions) as stream:
            written = Writing(plan, gap, stream, kernel).write(spills)
            stream.finish()
            return written


def opening(prepared: AppliedTask, gap: Gap) -> messages.Open:
    """The Open message of the session of a gap."""
    return messages.Open(
        materialization=prepared.spec,
        version=prepared.version,
        key_begin=gap.key_begin,
        key_end=gap.key_end,
        driver_checkpoint=b"{}",
        extensions=prepared.extensions,
    )


def reaches_of(prepared: AppliedTask, stream: Stream) -> Sequence[Sequence[Reach]]:
    """For each binding, the reaches of the keys of a session.

    Errors: InvalidUsage if the connector does not say it.
    """
    if not stream.checkpoint and not stream.subranges:
        raise InvalidUsage(ONE_SHARD)
    parts = stream.subranges or [
        messages.Subrange(*stream.session.range, stream.checkpoint),
    ]
    decoded = [
        checkpoints.decode(part.checkpoint, prepared.names, (part.key_begin, part.key_end))
        for part in parts
    ]
    return [[reach for part in decoded for reach in part[name]] for name in prepared.names]


class Writing:
    """A session of one gap. One thread."""

    def __init__(self, plan: Plan, gap: Gap, stream: Stream, kernel: Kernel) -> None:
        self._plan, self._gap, self._stream = plan, gap, stream
        self._acknowledges = plan.prepared.extensions.acknowledge
        prepared = plan.prepared
        self._marks = not prepared.extensions.delete
        encoders = [
            Encoder(bound, binding.field_selection, kernel, marks=self._marks)
            for bound, binding in zip(prepared.bounds, prepared.spec.bindings, strict=True)
        ]
        self._lane = Lane(stream, prepared.bounds, encoders)

    def write(self, spills: Mapping[int, Spill]) -> int:
        """All rows in one transaction, of bindings that have nothing; return how many."""
        if self._acknowledges:
            self._stream.acknowledge()
        reaches = reaches_of(self._plan.prepared, self._stream)
        wanted = {
            number: spills[number]
            for number, parts in enumerate(reaches)
            if number in spills and any(reach.frontier is None for reach in parts)
        }
        if not wanted:
            return 0
        for number, place, piece in pieces_of(wanted):
            if self._marks and not self._plan.prepared.bounds[number].delta:
                self._lane.load_unknown((number, place), piece)
        self._lane.flush(self._checkpoint(reaches))
        if self._lane.flushed(frozenset()).checkpoint:
            raise InvalidUsage(ONE_SHARD)
        for number, place, piece in pieces_of(wanted):
            self._lane.store((number, place), piece)
        self._stream.commit()
        if self._acknowledges:
            self._stream.acknowledge()
        return sum(spill.count for spill in wanted.values())

    def _checkpoint(self, reaches: Sequence[Sequence[Reach]]) -> bytes:
        """With what had nothing of the gap at the backfill's time, and all else where it is."""
        names = self._plan.prepared.names
        written = {
            names[number]: [
                replace(reach, frontier=reach.frontier or self._plan.frontier)
                for reach in parts
            ]
            if number in self._gap.bindings
            else parts
            for number, parts in enumerate(reaches)
        }
        return checkpoints.encode(written, self._gap.range, {})


def pieces_of(spills: Mapping[int, Spill]) -> Iterator[tuple[int, int, Part]]:
    """The rows to write: binding, number, rows."""
    for binding, spill in spills.items():
        for number, piece in enumerate(spill.pieces()):
            yield binding, number, piece
