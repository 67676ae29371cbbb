"""A merge as a self-contained value that can be sent to another process.

    read_parts    a few chunks of the merge: fetched, clipped, advanced, consolidated
    write_part    updates of one bucket: encoded and written as chunks

The same two functions run in process (`streams.compaction.merge_execution`) and in the tasks of
a Spark job (`streams.compaction.job`). Chunks have no effect until the driver's Replace names
them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas import chunk, stream
from streams.compaction import chunk_sizes
from streams.compaction.chunk_sizes import MOST_EXPANSION
from streams.compaction.consolidation import Part, reduced
from streams.compaction.plan import Merge
from streams.compaction.read_ahead import Fetch
from streams.errors import Corrupt
from streams.ids import CollectionId, Timestamp, Topic
from streams.kafka.log import ChunkRef, Chunks
from streams.progress import END
from streams.storage.client.shards import Shards
from streams.storage.description import loads
from streams.storage.log.column_stats import with_ranges
from streams.storage.read import reader as read
from streams.storage.read.reader import Loaded, Piece
from streams.trace.kernel.kernel import Kernel, arrow_schema

FETCH_BYTES = 16 << 20
"""Bytes of compressed chunks that are fetched together."""

FETCH_PIECES = 256
"""Maximum of chunks that are fetched together, whatever their stated size."""

BUCKET_BYTES = 128 << 20
"""Estimated bytes of a bucket, uncompressed."""

EXPANSION = 4
"""Minimum expansion of a chunk in memory."""

ROW_BYTES = 64
"""Minimum of bytes per update during consolidation."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the memory of a merge, independent of the collection's size."""

    bucket_bytes: int = BUCKET_BYTES
    fetch_bytes: int = FETCH_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to read, how to consolidate it, and where to write it.

    Each of `groups` is fetched together; `names` and `types` are the collection's columns, with
    DuckDB's types; `headers` are the headers of each chunk. Equal rows of one time fall into
    the same of `buckets`.
    """

    collection: CollectionId
    topic: Topic
    headers: Mapping[str, bytes]
    names: tuple[str, ...]
    types: tuple[str, ...]
    advance_to: Timestamp
    groups: tuple[tuple[Piece, ...], ...]
    buckets: int

    @property
    def schema(self) -> pa.Schema:
        """The schema of the contents: c0 .. cn, time, diff."""
        return arrow_schema(self.types)


def task_of(shards: Shards, collection: CollectionId, merge: Merge, limits: Limits) -> Task:
    """Return the task of a merge. Errors: as `Shards.state`."""
    description = loads(shards.state(collection).description)
    topic = shards.data_topic(collection)
    expansion = expansion_of(shards.chunks, topic, merge, limits.bucket_bytes)
    fetch_bytes = min(limits.fetch_bytes, limits.bucket_bytes // expansion)
    return Task(
        collection=collection,
        topic=topic,
        headers=shards.headers(collection),
        names=description.names,
        types=description.types,
        advance_to=merge.advance_to,
        groups=tuple(grouped(pieces(merge), fetch_bytes)),
        buckets=bucket_count(merge, expansion, limits.bucket_bytes),
    )


def pieces(merge: Merge) -> tuple[Piece, ...]:
    """Return the pieces of a merge: each chunk clipped to its batch's interval."""
    return tuple(
        Piece(ref, batch.lower, read.clip_upper(batch.upper, END))
        for batch in merge.batches
        for ref in batch.chunks
    )


def grouped(wanted: Sequence[Piece], most_bytes: int) -> Iterator[tuple[Piece, ...]]:
    """Group the pieces by bytes, `FETCH_PIECES` at most, at least one."""
    group: list[Piece] = []
    total = 0
    for piece in wanted:
        size = chunk_sizes.bytes_of(piece.ref)
        if group and (total + size > most_bytes or len(group) >= FETCH_PIECES):
            yield tuple(group)
            group, total = [], 0
        group.append(piece)
        total += size
    if group:
        yield tuple(group)


def expansion_of(chunks: Chunks, topic: Topic, merge: Merge, bucket_bytes: int) -> int:
    """Estimate the expansion of the merge's updates in memory.

    Wide similar rows are a hundred times as large in memory, which the log does not say. So two
    chunks are sampled, the largest and the one with most rows per byte, unless the result would
    not matter.

    Errors: Determinate; a missing chunk is reported by the read of all chunks.
    """
    if merge.size * MOST_EXPANSION <= bucket_bytes:
        return EXPANSION
    refs = [piece.ref for piece in pieces(merge)]
    densest = max(refs, key=lambda ref: chunk_sizes.rows_of(ref) / chunk_sizes.bytes_of(ref))
    samples = tuple({densest, max(refs, key=chunk_sizes.bytes_of)})
    try:
        bodies = chunks.fetch(topic, samples)
        return max(EXPANSION, *map(expansion, bodies))
    except Corrupt:
        return EXPANSION


def expansion(body: bytes) -> int:
    """Return the expansion of a chunk's updates in memory. Errors: Corrupt."""
    updates, errors = chunk.decode(body)
    return -(-int(updates.nbytes + errors.nbytes) // len(body))


def bucket_count(merge: Merge, expansion: int, bucket_bytes: int) -> int:
    """Return the number of buckets such that one of them fits in memory."""
    foretold = max(merge.size * expansion, merge.rows * ROW_BYTES)
    return max(1, -(-foretold // bucket_bytes))


def read_parts(
    fetch: Fetch, task: Task, group: int, room: int, kernel: Kernel
) -> Iterator[Part]:
    """Yield the updates of one group of chunks, in parts that decode to `room` bytes.

    Errors: Corrupt if a chunk is missing or damaged, naming topic, partition and offset.
    """
    pieces_ = task.groups[group]
    refs = tuple(dict.fromkeys(piece.ref for piece in pieces_))
    bodies = dict(zip(refs, fetch(task.topic, refs), strict=True))
    loaded: list[Loaded] = []
    total = 0
    for piece in pieces_:
        size = decoded_bytes(task.topic, piece.ref, bodies[piece.ref])
        if loaded and total + size > room:
            yield reduced(loaded, task.schema, task.advance_to, kernel)
            loaded, total = [], 0
        loaded.append(read.open_piece(task.topic, piece, bodies[piece.ref]))
        total += size
    if loaded:
        yield reduced(loaded, task.schema, task.advance_to, kernel)


def decoded_bytes(topic: Topic, ref: ChunkRef, body: bytes) -> int:
    """Return the bytes of a chunk in memory, as its header declares. Errors: Corrupt."""
    try:
        return stream.decoded_bytes(body)
    except Corrupt as cause:
        raise Corrupt(f"chunk {topic}/{ref.partition}@{ref.offset}: {cause}") from cause


def measured(fetch: Fetch, task: Task) -> int:
    """The bytes of all of the task's chunks in memory. Errors: Corrupt, as `read_parts`."""
    total = 0
    for group in task.groups:
        refs = tuple(dict.fromkeys(piece.ref for piece in group))
        bodies = fetch(task.topic, refs)
        total += sum(
            decoded_bytes(task.topic, ref, body) for ref, body in zip(refs, bodies, strict=True)
        )
    return total


def write_part(chunks: Chunks, task: Task, part: Part) -> tuple[ChunkRef, ...]:
    """Write updates as chunks under fresh keys, with ranges unless there are errors.

    Errors: as `Chunks.write`.
    """
    updates, errors = part.tables
    bodies = chunk.encode(updates, task.names, errors, chunk.THOROUGH)
    if not bodies:
        return ()
    refs = chunks.write(task.topic, bodies, task.headers)
    return with_ranges(refs, updates)
