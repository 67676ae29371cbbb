"""Reading a collection: which chunks hold an interval, what they say, snapshot and listen.

The updates in [lower, upper) are those of the batches that overlap it, each clipped to its own
interval and to [lower, upper). So a read names *pieces*: a chunk and the interval it is clipped
to. `pieces` is pure and cheap; `load` fetches and decodes and may run in another process, for a
piece says all there is to know.

    contents at as_of  =  the sum of the updates with time <= as_of   for since <= as_of < upper

Updates that were compacted stand at times up to since, so changes are exact only from since + 1
on: whoever listens from a time holds since below it (rule 5).

A reader never goes on with other batches than it began with: when a chunk of its pieces is gone
because they were compacted, it reads the whole interval again (rule 10). The first time costs
no record of the log; for the second it takes a hold with a plan, or a long read of what is
compacted all the while would never come to its end.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from schemas import chunk
from streams.errors import Corrupt, InvalidUsage, SlackwaterError
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp, Topic
from streams.kafka.log import ChunkRef, Chunks
from streams.progress import Antichain, frontier
from streams.storage.events import Acquire, Drop, Right, system_capability
from streams.storage.shards import Shards, fresh_uuid
from streams.storage.state import CollectionState

log = logging.getLogger(__name__)

READ_LEASE_MS = 600_000
"""How long the hold of one read lasts at most."""

FETCHED_BYTES = 64 << 20
"""Bytes of chunks that are fetched at once; a single one may be larger."""

LAST = Timestamp((1 << 63) - 1)
"""Where the times of a sealed collection end."""

Loaded = tuple[pa.Table, pa.Table]
"""Contents (c0 .. cn, time, diff) and errors (error, time, diff)."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk, of which the updates in [lower, upper) are meant."""

    ref: ChunkRef
    lower: Timestamp
    upper: Timestamp


def pieces(
    collection: CollectionState, lower: Timestamp, upper: Timestamp
) -> tuple[Piece, ...]:
    """What holds the updates in [lower, upper), as far as they are written.

    Takes O(log n) for n batches, and the number of batches found.
    """
    return tuple(
        Piece(ref, max(batch.lower, lower), clipped(batch.upper, upper))
        for batch in collection.batches.overlapping(lower, upper)
        for ref in batch.chunks
    )


def clipped(upper: Antichain, bound: Timestamp) -> Timestamp:
    """The lesser of a batch's upper and a bound."""
    return bound if upper.is_empty else min(upper.time, bound)


def snapshot_pieces(collection: CollectionState, as_of: Timestamp) -> tuple[Piece, ...]:
    """What holds the contents at `as_of`: every update up to it.

    Errors: SinceViolation; InvalidUsage when `as_of` is not before upper.
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
    """Errors: SinceViolation when the contents at `as_of` may be compacted away."""
    if not collection.since.less_equal(as_of):
        raise SinceViolation(collection.id, collection.since, as_of)


def is_complete(collection: CollectionState, time: Timestamp) -> bool:
    """Whether the updates at `time` are all there: it is not beyond upper."""
    return not collection.upper.less_equal(time)


class Selecting(Protocol):
    """What of a collection a reader wants; errors are for everybody (`options.Selection`)."""

    def may_match(self, chunk: ChunkRef) -> bool:
        """Whether the chunk may hold a row that is wanted; if not it is left where it is."""

    def apply(self, updates: pa.Table) -> pa.Table:
        """The rows and columns that are wanted of a chunk."""


@dataclass(frozen=True, slots=True)
class Everything:
    """For readers who leave nothing out."""

    def may_match(self, _: ChunkRef) -> bool:
        """True."""
        return True

    def apply(self, updates: pa.Table) -> pa.Table:
        """The updates as they are."""
        return updates


EVERYTHING = Everything()


def load(
    chunks: Chunks,
    topic: Topic,
    wanted: Sequence[Piece],
    selection: Selecting = EVERYTHING,
) -> Loaded:
    """The updates of the pieces, clipped; those of one chunk stay together, in order.

    What the selection leaves out goes as soon as its chunk was opened: a reader of one column
    takes the memory of one, and of the bytes that are fetched at once.

    Shape: the columns are those of the chunks, or those selected of them; without pieces there
    are time and diff alone.
    Errors: Corrupt when a chunk is missing or damaged, naming topic, partition and offset.
    """
    if not wanted:
        return chunk.contents_schema(pa.struct([])).empty_table(), chunk.ERRORS.empty_table()
    loaded: list[Loaded] = []
    for some in stretches(wanted):
        refs = list(dict.fromkeys(piece.ref for piece in some))
        by_ref = dict(zip(refs, chunks.fetch(topic, refs), strict=True))
        opened = (open_piece(topic, piece, by_ref[piece.ref]) for piece in some)
        loaded += [(selection.apply(updates), errors) for updates, errors in opened]
    return (
        pa.concat_tables([updates for updates, _ in loaded]),
        pa.concat_tables([errors for _, errors in loaded]),
    )


def stretches(wanted: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    """The pieces in their order, as many at a time as are fetched at once."""
    start = size = 0
    for at, piece in enumerate(wanted):
        size += piece.ref.size
        if size > FETCHED_BYTES and at > start:
            yield wanted[start:at]
            start, size = at, piece.ref.size
    yield wanted[start:]


def open_piece(topic: Topic, piece: Piece, body: bytes) -> Loaded:
    """The updates of one piece."""
    try:
        updates, errors = chunk.decode(body)
    except Corrupt as cause:
        place = f"{topic}/{piece.ref.partition}@{piece.ref.offset}"
        raise Corrupt(f"{place}: {cause}") from cause
    return clip(updates, piece), clip(errors, piece)


def clip(table: pa.Table, piece: Piece) -> pa.Table:
    """The rows whose time lies in the piece's interval; the table itself when all do."""
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
    selection: Selecting = EVERYTHING,
) -> Loaded:
    """The updates that make the contents at `as_of`, their times advanced to it.

    They are not consolidated. Waits until upper has passed `as_of`. The caller holds since at
    `as_of` or before.

    Errors: SinceViolation when since is beyond `as_of`, or comes to be before all is read;
    TimeoutError when upper does not come.
    """
    check_readable(shards.state(collection), as_of)
    await_upper(shards, collection, as_of, timeout_ms)
    interval = (MINIMUM_TIME, Timestamp(as_of + 1))
    updates, errors = load_stable(shards, collection, interval, as_of, selection)
    return advanced(updates, as_of), advanced(errors, as_of)


def await_upper(
    shards: Shards, collection: CollectionId, time: Timestamp, timeout_ms: int
) -> None:
    """Return when the updates at `time` are all there.

    Errors: TimeoutError.
    """
    home = (shards.group_of(collection),)
    if not shards.wait(lambda: is_complete(shards.state(collection), time), timeout_ms, home):
        upper = shards.state(collection).upper
        raise TimeoutError(f"collection {collection}: expected upper beyond {time}, is {upper}")


def load_stable(
    shards: Shards,
    collection: CollectionId,
    interval: tuple[Timestamp, Timestamp],
    as_of: Timestamp,
    selection: Selecting = EVERYTHING,
    *,
    may_hold: bool = True,
) -> Loaded:
    """The updates in [lower, upper), from one state of the collection, exact at `as_of`.

    That is the first time at which they have to add up: of a snapshot its own, of changes
    lower - 1. Chunks that hold nothing selected are not fetched. A read that was overtaken is
    protected from then on by a hold, unless it is to leave no trace in the log.

    Errors: SinceViolation when since is beyond `as_of` in that state: whoever reads without a
    hold may be passed in the middle. Corrupt when a chunk is missing that the newest state
    still names.
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
            with planned(shards, collection, as_of):
                return load_stable(
                    shards, collection, interval, as_of, selection, may_hold=False
                )
        wanted = newest


@contextmanager
def planned(shards: Shards, collection: CollectionId, as_of: Timestamp) -> Iterator[None]:
    """Keep from collectors what is current now and readable at `as_of`, while the block runs.

    Errors: as `Shards.submit`. A collection that was dropped meanwhile is not kept.
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
    shards.submit([(group, body)])
    try:
        yield
    finally:
        try:
            shards.submit([(group, Drop(collection, hold))])
        except SlackwaterError as error:
            log.warning("a read's hold ends with its lease", extra={"cause": str(error)})


def advanced(table: pa.Table, time: Timestamp) -> pa.Table:
    """The table with every time moved up to `time`; none was beyond it."""
    index = table.schema.get_field_index("time")
    same = pa.repeat(pa.scalar(time, pa.int64()), table.num_rows)
    return table.set_column(index, "time", same)


def listen(
    shards: Shards, collection: CollectionId, start: Timestamp, timeout_ms: int = 60_000
) -> Iterator[tuple[Antichain, Antichain, pa.Table, pa.Table]]:
    """Every change from `start` on, interval by interval: (lower, upper, updates, errors).

    An interval may be empty: it says that time has passed. Ends when the collection is sealed.
    The caller holds since below `start`, and may downgrade to lower - 1 as it goes.

    Errors: SinceViolation when since has reached an interval's lower, TimeoutError when upper
    stands still for so long.
    """
    lower = start
    while True:
        await_upper(shards, collection, lower, timeout_ms)
        state = shards.state(collection)
        upper = end(state)
        held = Timestamp(lower - 1)
        updates, errors = load_stable(shards, collection, (lower, upper), held)
        yield frontier(lower), state.upper, updates, errors
        if state.upper.is_empty:
            return
        lower = upper


def end(collection: CollectionState) -> Timestamp:
    """The time before which every update of the collection is known."""
    return LAST if collection.upper.is_empty else collection.upper.time
