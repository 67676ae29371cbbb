"""A merge from end to end: read, consolidate, write, stage, Replace, read the outcome back.

Memory is bounded whatever the collection's size: chunks are fetched a few at a time, and what
does not fit goes through buckets on disk (`streams.compaction.spill`). Whoever dies on the way
leaves chunks that nothing names, and nothing else; a lost race leaves the same. Until its
Replace was read back a merge has no effect at all, so a second compactor costs time only.

New chunks have fresh keys (rule 6) and are safe from collectors as soon as they are staged
(`streams.compaction.staging`); a merge that is done in one go does not stage, and if a
collector is faster its Replace is void.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from streams.compaction.plan import Merge
from streams.compaction.reduce import Part, split, together
from streams.compaction.spill import Spill
from streams.compaction.staging import fits, is_staged, release, stage
from streams.compaction.task import Limits, Task, measured, read_parts, task_of, write_part
from streams.errors import Corrupt, Determinate, Indeterminate, InvalidUsage, SlackwaterError
from streams.ids import CollectionId, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import Antichain
from streams.storage import outcomes
from streams.storage.events import Replace
from streams.storage.outcomes import Outcome
from streams.storage.shards import Shards, fresh_uuid
from streams.trace.kernel import Kernel


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


@dataclass(frozen=True, slots=True)
class Failed:
    """A merge could not be carried out; other collections are not affected."""

    collection: CollectionId
    reason: str


log = logging.getLogger(__name__)


class Outgrown(Exception):
    """Updates are larger than foretold, so that they need more buckets: none is harmed."""


Result = Compacted | LostRace
Wanted = tuple[CollectionId, Merge]


@dataclass(frozen=True, slots=True)
class Worker:
    """Merges in this process: with a kernel, names nobody else has, and scratch space.

    Once `is_stopping` says so no merge begins, and one that is going on ends at its next piece.
    """

    shards: Shards
    kernel: Kernel
    new_id: Callable[[], str]
    scratch: Path | None = None
    limits: Limits = field(default_factory=Limits)
    is_stopping: Callable[[], bool] = lambda: False

    def compact_all(self, wanted: Sequence[Wanted]) -> list[Result | Failed]:
        """Carry out merges, one after the other."""
        return [attempt(self.compact, *each) for each in wanted if not self.is_stopping()]

    def compact(self, collection: CollectionId, merge: Merge) -> Result:
        """Carry out a merge.

        Errors: Corrupt when a chunk is damaged or missing that is still current; as
        `Shards.submit` and `Chunks.write`.
        """
        task = task_of(self.shards, collection, merge, self.limits)
        try:
            try:
                return self._compact(merge, task, self.limits.bucket_bytes * task.buckets)
            except Outgrown:
                total = measured(self.shards.chunks, task)
                buckets = max(2, -(-total // self.limits.bucket_bytes))
                return self._compact(merge, replace(task, buckets=buckets), total)
        except Corrupt as corrupt:
            return lost_or_corrupt(self.shards, collection, merge, corrupt)

    def _compact(self, merge: Merge, task: Task, foretold: int) -> Result:
        """Carry out a merge whose updates take so many bytes, twice as many at most.

        Errors: Outgrown when they are more; as `compact`.
        """
        name = self.new_id() if task.buckets > 1 else None
        try:
            written = self._write(task, name, 2 * foretold)
            if isinstance(written, LostRace):
                return written
            return swap(self.shards, task.collection, merge, written)
        finally:
            if name is not None:
                release(self.shards, [(task.collection, name)])

    def _write(
        self, task: Task, name: str | None, most_bytes: int
    ) -> tuple[ChunkRef, ...] | LostRace:
        """The chunks of the merged batch; those of several buckets are staged by the name."""
        parts = self._parts(task, most_bytes)
        if name is not None:
            with TemporaryDirectory(prefix="slackwater-", dir=self.scratch) as directory:
                spill = Spill(Path(directory), task.schema)
                for part in parts:
                    spill.add(split(part, task.buckets, self.kernel))
                return self._write_buckets(task, name, spill)
        every = list(parts)
        if not every:
            return ()
        return write_part(self.shards.chunks, task, together(every, task.schema, self.kernel))

    def _parts(self, task: Task, most_bytes: int) -> Iterator[Part]:
        """All that the task reads. Errors: Outgrown when it is more than so many bytes."""
        total = 0
        for group in range(len(task.groups)):
            self._go_on()
            room = self.limits.bucket_bytes
            for part in read_parts(self.shards.chunks, task, group, room, self.kernel):
                total += part.nbytes
                if total > most_bytes:
                    raise Outgrown
                yield part

    def _go_on(self) -> None:
        if self.is_stopping():
            raise Determinate("compaction is being stopped: the merge will be made again")

    def _write_buckets(
        self, task: Task, name: str, spill: Spill
    ) -> tuple[ChunkRef, ...] | LostRace:
        written: list[ChunkRef] = []
        for bucket in range(task.buckets):
            self._go_on()
            refs = write_part(self.shards.chunks, task, spill.take(bucket, self.kernel))
            if not refs:
                continue
            outcome = stage(self.shards, task.collection, name, refs)
            if not is_staged(outcome):
                return lost(task.collection, outcome)
            written.extend(refs)
        return tuple(written)


def attempt(
    compact: Callable[[CollectionId, Merge], Result], collection: CollectionId, merge: Merge
) -> Result | Failed:
    """What becomes of a merge, an error included: whatever its chunks hold, it fails alone."""
    try:
        return compact(collection, merge)
    except Exception as error:  # noqa: BLE001  chunks come from anybody; the next merge is of others
        log_failure(collection, error)
        return Failed(collection, reason_of(error))


def reason_of(error: Exception) -> str:
    """What failed, for people: errors that are not ours are named by their type too."""
    is_ours = isinstance(error, SlackwaterError)
    return str(error) if is_ours else f"{type(error).__name__}: {error}"


def log_failure(what: str, error: Exception) -> None:
    """Say what failed; of an error that nobody expected, where."""
    is_expected = isinstance(error, SlackwaterError)
    log.warning(
        "compaction failed; retrying",
        extra={"of": what, "cause": reason_of(error)},
        exc_info=None if is_expected else error,
    )


def swap(
    shards: Shards, collection: CollectionId, merge: Merge, chunks: tuple[ChunkRef, ...]
) -> Result:
    """Put the chunks in place of the merge's batches; what became of it is read back.

    Chunks that are more than an event can name are brought in by a stage of their own: what
    tasks have staged may hold those of one that was run twice.

    Errors: as `Shards.submit`; Indeterminate when the group has failed.
    """
    body = Replace(
        collection=collection,
        replaced=tuple(batch.name for batch in merge.batches),
        chunks=chunks,
        since=merge.since,
    )
    if fits(body):
        return decided(shards, merge, body, chunks)
    name = fresh_uuid()
    outcome = stage(shards, collection, name, chunks)
    if not is_staged(outcome):
        return lost(collection, outcome)
    try:
        return decided(shards, merge, replace(body, chunks=(), stages=(name,)), chunks)
    finally:
        release(shards, [(collection, name)])


def decided(
    shards: Shards, merge: Merge, body: Replace, chunks: tuple[ChunkRef, ...]
) -> Result:
    """What became of a Replace that brings these chunks. Errors: as `swap`."""
    collection = body.collection
    match shards.submit([(shards.group_of(collection), body)])[0]:
        case outcomes.Replaced():
            return compacted(collection, merge, chunks)
        case outcomes.Refused(reason=reason):
            raise InvalidUsage(f"collection {collection} cannot be compacted: {reason}")
        case outcomes.Unavailable(reason=reason):
            raise Indeterminate(f"collection {collection}: {reason}")
        case outcome:
            return lost(collection, outcome)


def lost(collection: CollectionId, outcome: Outcome) -> LostRace:
    """Why a merge is void, for people."""
    match outcome:
        case outcomes.BatchesChanged():
            return LostRace(collection, "another compactor was faster")
        case outcomes.ChunksReclaimed():
            return LostRace(collection, "a collector was faster: the merge will be made again")
        case outcomes.UnknownStage():
            return LostRace(collection, "its chunks were staged for too long")
        case outcomes.UnknownCollection():
            return LostRace(collection, "it was dropped")
        case _:
            return LostRace(collection, str(outcome))


def lost_or_corrupt(
    shards: Shards, collection: CollectionId, merge: Merge, corrupt: Corrupt
) -> LostRace:
    """Why a chunk could not be read: the batches were replaced, and it was reclaimed since.

    Errors: Corrupt, when all of the batches are still current.
    """
    shards.sync(collection)
    trace = shards.state(collection).batches
    if all(trace.find(batch.name) is not None for batch in merge.batches):
        raise corrupt
    return LostRace(collection, "the batches were replaced while they were read")


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
