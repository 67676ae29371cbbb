"""One merge from end to end: read, consolidate, write, stage, Replace, read the outcome back.

Memory is bounded whatever the collection's size: chunks are fetched a few at a time, and what
does not fit goes through buckets on disk (`streams.compaction.spill`). Whoever dies on the way
leaves chunks that nothing names, and nothing else; a lost race leaves the same. Until its
Replace was read back a merge has no effect at all, so a second compactor costs time only.

New chunks have fresh keys (rule 6) and are safe from collectors as soon as they are staged; a
merge that is done in one go does not stage, and if a collector is faster its Replace is void.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from streams.compaction.plan import Merge
from streams.compaction.reduce import Part, reduced, split, together
from streams.compaction.spill import Spill
from streams.errors import Corrupt, Indeterminate, InvalidUsage
from streams.ids import CollectionId, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import Antichain
from streams.storage import outcomes, read
from streams.storage.description import loads
from streams.storage.events import Replace, Stage
from streams.storage.read import Piece
from streams.storage.shards import Shards
from streams.trace.kernel import Kernel, arrow_schema

FETCH_BYTES = 16 << 20
"""Bytes of chunks, compressed, that are fetched at once."""

BUCKET_BYTES = 128 << 20
"""Bytes of a bucket, not compressed, as far as they can be foretold."""

EXPANSION = 4
"""How much larger updates are in memory than in a chunk, roughly."""

ROW_BYTES = 64
"""The least that an update takes while it is being consolidated."""

LEASE_MS = 600_000
"""How long staged chunks are safe after each bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """One batch stands for many. Bytes are those of chunks, compressed."""

    collection: CollectionId
    lower: Timestamp
    upper: Antichain
    batches: int
    bytes_read: int
    bytes_written: int
    rows_read: int
    rows_written: int


@dataclass(frozen=True, slots=True)
class LostRace:
    """Somebody else changed the batches first; what was written is garbage."""

    collection: CollectionId
    reason: str


Result = Compacted | LostRace


@dataclass(frozen=True, slots=True)
class Worker:
    """What a merge needs: a client, a kernel, names nobody else has, and scratch space."""

    shards: Shards
    kernel: Kernel
    new_id: Callable[[], str]
    scratch: Path | None = None
    bucket_bytes: int = BUCKET_BYTES
    fetch_bytes: int = FETCH_BYTES

    def compact(self, collection: CollectionId, merge: Merge) -> Result:
        """Carry out a merge.

        Errors: Corrupt when a chunk is damaged or missing that is still current; as
        `Shards.submit` and `Shards.write`.
        """
        try:
            written = self._write(collection, merge)
        except Corrupt:
            self.shards.sync(collection)
            if is_current(self.shards, collection, merge):
                raise
            return LostRace(collection, "the batches were replaced while they were read")
        if isinstance(written, LostRace):
            return written
        return self._replace(collection, merge, written)

    def _replace(
        self, collection: CollectionId, merge: Merge, chunks: tuple[ChunkRef, ...]
    ) -> Result:
        group = self.shards.group_of(collection)
        names = tuple(batch.name for batch in merge.batches)
        body = Replace(collection=collection, replaced=names, chunks=chunks, since=merge.since)
        match self.shards.submit([(group, body)])[0]:
            case outcomes.Replaced():
                return compacted(collection, merge, chunks)
            case outcomes.Refused(reason=reason):
                raise InvalidUsage(f"collection {collection} cannot be compacted: {reason}")
            case outcomes.Unavailable(reason=reason):
                raise Indeterminate(f"collection {collection}: {reason}")
            case outcome:
                return LostRace(collection, str(outcome))

    def _write(self, collection: CollectionId, merge: Merge) -> tuple[ChunkRef, ...] | LostRace:
        """The chunks of the merged batch."""
        buckets = bucket_count(merge, self.bucket_bytes)
        if buckets > 1:
            with TemporaryDirectory(prefix="slackwater-", dir=self.scratch) as directory:
                spill = Spill(Path(directory), self._schema(collection))
                for part in self._parts(collection, merge):
                    spill.add(split(part, buckets, self.kernel))
                return self._write_buckets(collection, spill, buckets)
        parts = list(self._parts(collection, merge))
        whole = together(parts, self._schema(collection), self.kernel)
        return self._write_part(collection, whole)

    def _write_buckets(
        self, collection: CollectionId, spill: Spill, buckets: int
    ) -> tuple[ChunkRef, ...] | LostRace:
        stage = self.new_id()
        written: list[ChunkRef] = []
        for bucket in range(buckets):
            refs = self._write_part(collection, spill.take(bucket, self.kernel))
            body = Stage(stage=stage, chunks=refs, lease_ms=LEASE_MS)
            outcome = self.shards.submit([(self.shards.group_of(collection), body)])[0]
            if not isinstance(outcome, outcomes.Staged):
                return LostRace(collection, str(outcome))
            written.extend(refs)
        return tuple(written)

    def _schema(self, collection: CollectionId) -> pa.Schema:
        return arrow_schema(loads(self.shards.state(collection).description).types)

    def _parts(self, collection: CollectionId, merge: Merge) -> Iterator[Part]:
        """What the merge reads, chunk by chunk, each part consolidated; at least one."""
        shards, topic = self.shards, self.shards.data_topic(collection)
        schema = self._schema(collection)
        for group in grouped(pieces(merge), self.fetch_bytes):
            loaded = [read.load(shards.chunks, topic, group)] if group else []
            yield reduced(loaded, schema, merge.advance_to, self.kernel)

    def _write_part(self, collection: CollectionId, part: Part) -> tuple[ChunkRef, ...]:
        updates, errors = part.tables
        return self.shards.write(collection, updates, errors) if part.rows else ()


def is_current(shards: Shards, collection: CollectionId, merge: Merge) -> bool:
    """Whether the batches of the merge are all still there."""
    trace = shards.state(collection).batches
    return all(trace.find(batch.name) is not None for batch in merge.batches)


def pieces(merge: Merge) -> tuple[Piece, ...]:
    """What the merge reads: each chunk clipped to its batch's interval."""
    return tuple(
        Piece(ref, batch.lower, read.clipped(batch.upper, read.LAST))
        for batch in merge.batches
        for ref in batch.chunks
    )


def grouped(wanted: Sequence[Piece], most_bytes: int) -> Iterator[tuple[Piece, ...]]:
    """The pieces in groups of so many bytes, or of one; without any, one empty group."""
    group: list[Piece] = []
    total = 0
    for piece in wanted:
        if group and total + piece.ref.size > most_bytes:
            yield tuple(group)
            group, total = [], 0
        group.append(piece)
        total += piece.ref.size
    yield tuple(group)


def bucket_count(merge: Merge, bucket_bytes: int) -> int:
    """In how many buckets to consolidate, so that one of them fits."""
    foretold = max(merge.size * EXPANSION, merge.rows * ROW_BYTES)
    return max(1, -(-foretold // bucket_bytes))


def compacted(collection: CollectionId, merge: Merge, chunks: Sequence[ChunkRef]) -> Compacted:
    """What a merge has done."""
    return Compacted(
        collection=collection,
        lower=merge.lower,
        upper=merge.upper,
        batches=len(merge.batches),
        bytes_read=merge.size,
        bytes_written=sum(chunk.size for chunk in chunks),
        rows_read=merge.rows,
        rows_written=sum(chunk.rows for chunk in chunks),
    )
