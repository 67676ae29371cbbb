"""Reads a collection: which chunks hold an interval, their updates, snapshot and changes.

The updates in [lower, upper) are those of the batches that overlap it, each clipped to its own
interval and to [lower, upper). So a read names *pieces*: a chunk and the interval it is clipped
to. `pieces` is pure and cheap; `load` fetches and decodes, and may run in another process,
because a piece is self-contained.

    contents at as_of  =  the sum of the updates with time <= as_of   for since <= as_of < upper

Compacted updates are at times up to since, so changes are exact only from since + 1 on: a
reader that listens from a time holds since below it (rule 5).

A reader never switches batches in the middle of a read: if a chunk is gone because its batch
was compacted, it reads the whole interval again (rule 10). The first attempt takes no hold; a
retry takes one with a plan, so that constant compaction cannot starve a long read.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from schemas import chunk
from streams.errors import Corrupt, InvalidUsage, SlackwaterError
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp, Topic
from streams.kafka.log import ChunkRef, Chunks
from streams.progress import END, Antichain, end_of, frontier
from streams.storage.client.shards import Shards, fresh_uuid
from streams.storage.log.events import Acquire, Drop, Right, system_capability
from streams.storage.log.state import CollectionState

log = logging.getLogger(__name__)

READ_LEASE_MS = 600_000
"""Longest lease of the hold of one read."""

FETCHED_BYTES = 64 << 20
"""Bytes of chunks that are fetched together; a single chunk may be larger."""

PART_BYTES = 8 << 20
"""Bytes of chunks of a part, where a reader takes part by part: decoded they are several times
as many."""

Loaded = tuple[pa.Table, pa.Table]
"""Contents (c0 .. cn, time, diff) and errors (error, time, diff)."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk, clipped to the updates in [lower, upper)."""

    ref: ChunkRef
    lower: Timestamp
    upper: Timestamp


def pieces(
    collection: CollectionState, lower: Timestamp, upper: Timestamp
) -> tuple[Piece, ...]:
    """Return the pieces that hold the updates in [lower, upper), as far as they are written.

    Takes O(log n) for n batches, and the number of batches found.
    """
    return tuple(
        Piece(ref, max(batch.lower, lower), clip_upper(batch.upper, upper))
        for batch in collection.batches.overlapping(lower, upper)
        for ref in batch.chunks
    )


def clip_upper(upper: Antichain, bound: Timestamp) -> Timestamp:
    """Return the lesser of a batch's upper and a bound."""
    return bound if upper.is_empty else min(upper.time, bound)


def snapshot_pieces(collection: CollectionState, as_of: Timestamp) -> tuple[Piece, ...]:
    """Return the pieces that hold the contents at `as_of`: every update up to it.

    Errors: SinceViolation; InvalidUsage if `as_of` is not before upper.
    """
    check_readable(collection, as_of)
    if not is_complete(collection, as_of):
        raise InvalidUsage(
            f"collection {collection.id}: expected as_of before upper {collection.upper},"
            f" actual {as_of}"
        )
    return pieces(collection, MINIMUM_TIME, Timestamp(as_of + 1))


class SinceViolation(InvalidUsage):
    """Since has passed the time of a read: its contents may be compacted away."""

    def __init__(self, collection: CollectionId, since: Antichain, as_of: Timestamp) -> None:
        super().__init__(collection, since, as_of)
        self.collection, self.since, self.as_of = collection, since, as_of

    def __str__(self) -> str:
        return (
            f"collection {self.collection}: expected as_of beyond since {self.since},"
            f" actual {self.as_of}"
        )


def check_readable(collection: CollectionState, as_of: Timestamp) -> None:
    """Errors: SinceViolation if the contents at `as_of` may be compacted away."""
    if not collection.since.less_equal(as_of):
        raise SinceViolation(collection.id, collection.since, as_of)


def is_complete(collection: CollectionState, time: Timestamp) -> bool:
    """Whether all updates at `time` are written: `time` is before upper."""
    return not collection.upper.less_equal(time)


class ChunkSelection(Protocol):
    """Filter and projection of a reader; errors are always read (`options.Selection`)."""

    def may_match(self, chunk: ChunkRef) -> bool:
        """Whether the chunk may hold a selected row; if not it is not fetched."""

    def apply(self, updates: pa.Table) -> pa.Table:
        """Return the selected rows and columns of a chunk."""


@dataclass(frozen=True, slots=True)
class SelectEverything:
    """No filter and no projection."""

    def may_match(self, _: ChunkRef) -> bool:
        """Return True."""
        return True

    def apply(self, updates: pa.Table) -> pa.Table:
        """Return the updates unchanged."""
        return updates


EVERYTHING = SelectEverything()


def load(
    chunks: Chunks,
    topic: Topic,
    wanted: Sequence[Piece],
    selection: ChunkSelection = EVERYTHING,
) -> Loaded:
    """Return the updates of the pieces, clipped and in order; chunks stay contiguous.

    The selection is applied to each chunk as it is decoded: a reader of one column needs memory
    for that column, and for the bytes that are fetched together.

    Shape: the columns are those of the chunks, or those selected of them; without pieces there
    are time and diff alone. Errors: Corrupt if a chunk is missing or damaged, naming topic,
    partition and offset.
    """
    if not wanted:
        return chunk.contents_schema(pa.struct([])).empty_table(), chunk.ERRORS.empty_table()
    loaded: list[Loaded] = []
    for some in split_by_bytes(wanted, FETCHED_BYTES):
        refs = list(dict.fromkeys(piece.ref for piece in some))
        by_ref = dict(zip(refs, chunks.fetch(topic, refs), strict=True))
        opened = (open_piece(topic, piece, by_ref[piece.ref]) for piece in some)
        loaded += [(selection.apply(updates), errors) for updates, errors in opened]
    return (
        pa.concat_tables([updates for updates, _ in loaded]),
        pa.concat_tables([errors for _, errors in loaded]),
    )


def split_by_bytes(wanted: Sequence[Piece], most: int) -> Iterator[Sequence[Piece]]:
    """Yield the pieces in order, in parts of at most so many bytes, fetched together."""
    start = size = 0
    for at, piece in enumerate(wanted):
        size += piece.ref.size
        if size > most and at > start:
            yield wanted[start:at]
            start, size = at, piece.ref.size
    yield wanted[start:]


def open_piece(topic: Topic, piece: Piece, body: bytes) -> Loaded:
    """Return the updates of one piece."""
    try:
        updates, errors = chunk.decode(body)
    except Corrupt as cause:
        place = f"{topic}/{piece.ref.partition}@{piece.ref.offset}"
        raise Corrupt(f"{place}: {cause}") from cause
    return clip(updates, piece), clip(errors, piece)


def clip(table: pa.Table, piece: Piece) -> pa.Table:
    """Return the rows whose times lie in the piece's interval; the table itself if all do."""
    if not table.num_rows:
        return table
    times = table.column("time")
    ends = pc.min_max(times)
    if ends["min"].as_py() >= piece.lower and ends["max"].as_py() < piece.upper:
        return table
    inside = pc.and_(pc.greater_equal(times, piece.lower), pc.less(times, piece.upper))
    return table.filter(inside)


def snapshot(
    shards: Shards,
    collection: CollectionId,
    as_of: Timestamp,
    timeout_ms: int = 60_000,
    selection: ChunkSelection = EVERYTHING,
) -> Loaded:
    """Return the contents at `as_of` as updates with their times advanced to it.

    They are not consolidated. Waits until upper is beyond `as_of`. The caller holds since at
    `as_of` or before.

    Errors: SinceViolation if since is beyond `as_of`, or passes it during the read;
    TimeoutError if upper does not pass `as_of` in time.
    """
    check_readable(shards.state(collection), as_of)
    await_upper(shards, collection, as_of, timeout_ms)
    interval = (MINIMUM_TIME, Timestamp(as_of + 1))
    updates, errors = load_stable(shards, collection, interval, as_of, selection)
    return advance_times(updates, as_of), advance_times(errors, as_of)


def await_upper(
    shards: Shards, collection: CollectionId, time: Timestamp, timeout_ms: int
) -> None:
    """Wait until upper is beyond `time`.

    Errors: TimeoutError.
    """
    home = (shards.group_of(collection),)
    if not shards.wait(lambda: is_complete(shards.state(collection), time), timeout_ms, home):
        upper = shards.state(collection).upper
        raise TimeoutError(
            f"collection {collection}: expected upper beyond {time}, actual {upper}"
        )


def load_stable(
    shards: Shards,
    collection: CollectionId,
    interval: tuple[Timestamp, Timestamp],
    as_of: Timestamp,
    selection: ChunkSelection = EVERYTHING,
    *,
    may_hold: bool = True,
) -> Loaded:
    """Return the updates in [lower, upper) from one state of the collection, exact at `as_of`.

    `as_of` is the earliest time at which sums have to be exact: a snapshot's own time, or lower
    - 1 for changes. Chunks without selected rows are not fetched. After a chunk went missing
    the retry takes a hold, unless the read may not write to the log.

    Errors: SinceViolation if since is beyond `as_of` in that state: without a hold, since may
    pass a read in progress. Corrupt if a chunk is missing that the newest state still names.
    """
    topic = shards.data_topic(collection)

    def found() -> tuple[Piece, ...]:
        state = shards.state(collection)
        check_readable(state, as_of)
        every = pieces(state, *interval)
        return tuple(piece for piece in every if selection.may_match(piece.ref))

    wanted = found()
    while True:
        try:
            return load(shards.chunks, topic, wanted, selection)
        except Corrupt:
            shards.sync(collection)
            newest = found()
            if newest == wanted:
                raise
        if may_hold:
            with protected_chunks(shards, collection, as_of):
                return load_stable(
                    shards, collection, interval, as_of, selection, may_hold=False
                )
        wanted = newest


def load_parts(
    shards: Shards,
    collection: CollectionId,
    interval: tuple[Timestamp, Timestamp],
    as_of: Timestamp,
    selection: ChunkSelection = EVERYTHING,
) -> Iterator[Loaded]:
    """Yield what `load_stable` returns, in parts of at most `PART_BYTES` of chunks.

    A hold keeps the chunks while they are read, so that memory need not hold them together.

    Errors: as `load_stable`.
    """
    with protected_chunks(shards, collection, as_of):
        state = shards.state(collection)
        check_readable(state, as_of)
        every = pieces(state, *interval)
        wanted = [piece for piece in every if selection.may_match(piece.ref)]
        topic = shards.data_topic(collection)
        for some in split_by_bytes(wanted, PART_BYTES) if wanted else ():
            yield load(shards.chunks, topic, some, selection)


@contextmanager
def protected_chunks(
    shards: Shards, collection: CollectionId, as_of: Timestamp
) -> Iterator[Callable[[], None]]:
    """Protect the current chunks from the collector while the block runs.

    Yields what renews the lease, for who reads for longer than `READ_LEASE_MS`. Errors: as
    `Shards.submit`. A collection that was dropped meanwhile is not kept.
    """
    group = shards.group_of(collection)
    hold = system_capability(collection, "read", fresh_uuid())
    body = Acquire(
        collection=collection,
        capability=hold,
        right=Right.READ,
        frontier=as_of,
        lease_ms=READ_LEASE_MS,
        plan=shards.group_state(group).upto,
    )

    def renew() -> None:
        shards.submit([(group, body)])

    renew()
    try:
        yield renew
    finally:
        try:
            shards.submit([(group, Drop(collection, hold))])
        except SlackwaterError as error:
            log.warning("a read's hold ends with its lease", extra={"cause": str(error)})


def advance_times(table: pa.Table, time: Timestamp) -> pa.Table:
    """Return the table with every time advanced to `time`; none is later."""
    index = table.schema.get_field_index("time")
    same = pa.repeat(pa.scalar(time, pa.int64()), table.num_rows)
    return table.set_column(index, "time", same)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of [lower, upper) and the errors of them; none if only time has passed.

    `reached` is upper as a frontier, empty if the collection is complete.
    """

    lower: Timestamp
    upper: Timestamp
    reached: Antichain
    updates: pa.Table
    errors: pa.Table


def changes(
    shards: Shards,
    collection: CollectionState,
    lower: Timestamp,
    *,
    until: Timestamp = END,
    selection: ChunkSelection = EVERYTHING,
    may_hold: bool = True,
) -> Changes:
    """Return the changes from `lower` on that are final in this state, before `until`.

    Not consolidated. The caller has waited for upper to pass `lower`, holds since below
    `lower`, and may downgrade to upper - 1 afterwards.

    Errors: as `load_stable`; SinceViolation if since has reached `lower`, because changes may
    stand there that history was advanced to (rule 5).
    """
    upper = min(end(collection), until)
    is_cut = upper < end(collection)
    updates, errors = load_stable(
        shards,
        collection.id,
        (lower, upper),
        Timestamp(lower - 1),
        selection,
        may_hold=may_hold,
    )
    reached = frontier(upper) if is_cut else collection.upper
    return Changes(lower, upper, reached, updates, errors)


def end(collection: CollectionState) -> Timestamp:
    """Return the upper of the collection as a time."""
    return end_of(collection.upper)
