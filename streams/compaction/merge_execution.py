"""Executes a merge: read, consolidate, write, stage, Replace, read the outcome back.

Memory is bounded, independent of the collection's size: chunks are fetched a few at a time, and
what does not fit goes through buckets on disk (`streams.compaction.spill`). A crash leaves only
unnamed chunks, and so does a lost race. A merge has no effect before its Replace, so a second
compactor costs only time.

New chunks have fresh keys (rule 6) and are safe from collectors as soon as they are staged
(`streams.compaction.staging`); a merge in one part does not stage, and if a collector is faster
its Replace is void.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from streams.compaction.consolidation import Part, split, together
from streams.compaction.merge_task import (
    Limits,
    Task,
    measured,
    read_parts,
    task_of,
    write_part,
)
from streams.compaction.plan import Merge
from streams.compaction.read_ahead import Fetch, Wanted, fetched, lots
from streams.compaction.spill import Spill
from streams.compaction.staging import fits, is_staged, release, stage
from streams.errors import Corrupt, Determinate, Indeterminate, InvalidUsage, SlackwaterError
from streams.ids import CollectionId, Timestamp, Topic
from streams.kafka.log import ChunkRef
from streams.progress import Antichain
from streams.storage.client.shards import Shards, fresh_uuid
from streams.storage.log import outcomes
from streams.storage.log.events import Replace
from streams.storage.log.outcomes import Outcome
from streams.temporary import temporary_directory
from streams.trace.kernel.kernel import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """Success: one batch replaces many. Units: bytes of compressed chunks."""

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
    """Another process changed the batches first; the written chunks are garbage."""

    collection: CollectionId
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The merge failed; other collections are not affected."""

    collection: CollectionId
    reason: str


log = logging.getLogger(__name__)


class BucketsTooFew(Exception):
    """Updates are larger than estimated, so more buckets are needed; nothing was changed."""


Result = Compacted | LostRace


@dataclass(frozen=True, slots=True)
class Worker:
    """Merges in this process, with a kernel, fresh names, and scratch space.

    Once `is_stopping` is true no merge begins, and a running one ends at its next piece.
    """

    shards: Shards
    kernel: Kernel
    new_id: Callable[[], str]
    scratch: Path | None = None
    limits: Limits = field(default_factory=Limits)
    is_stopping: Callable[[], bool] = lambda: False

    def compact_all(self, wanted: Sequence[Wanted]) -> list[Result | Failed]:
        """Execute merges, one after the other; chunks of small ones are fetched together."""
        results: list[Result | Failed] = []
        for topic, merges in lots(wanted, self._data_topic):
            fetch: Fetch | None = None
            for merge in merges:
                if self.is_stopping():
                    return results
                fetch = fetch or self._read_ahead(topic, merges)
                results.append(attempt(partial(self.compact, fetch=fetch), *merge))
        return results

    def _data_topic(self, collection: CollectionId) -> Topic | None:
        """Return the topic of a collection's chunks; None if its merge will fail."""
        try:
            return self.shards.data_topic(collection)
        except SlackwaterError:
            return None

    def _read_ahead(self, topic: Topic | None, merges: Sequence[Wanted]) -> Fetch:
        fetch = self.shards.chunks.fetch
        if topic is None or len(merges) == 1:
            return fetch
        return fetched(fetch, topic, [merge for _, merge in merges]).fetch

    def compact(
        self, collection: CollectionId, merge: Merge, *, fetch: Fetch | None = None
    ) -> Result:
        """Execute a merge; `fetch` may have its chunks already.

        Errors: Corrupt if a current chunk is damaged or missing; as `Shards.submit` and
        `Chunks.write`.
        """
        task = task_of(self.shards, collection, merge, self.limits)
        fetch = fetch or self.shards.chunks.fetch
        try:
            try:
                return self._compact(
                    merge, task, fetch, self.limits.bucket_bytes * task.buckets
                )
            except BucketsTooFew:
                total = measured(fetch, task)
                buckets = max(2, -(-total // self.limits.bucket_bytes))
                return self._compact(merge, replace(task, buckets=buckets), fetch, total)
        except Corrupt as corrupt:
            return lost_or_corrupt(self.shards, collection, merge, corrupt)

    def _compact(self, merge: Merge, task: Task, fetch: Fetch, foretold: int) -> Result:
        """Execute a merge with an estimate of its updates' bytes, at most doubled.

        Errors: Outgrown if they are larger; as `compact`.
        """
        name = self.new_id() if task.buckets > 1 else None
        try:
            written = self._write(task, fetch, name, 2 * foretold)
            if isinstance(written, LostRace):
                return written
            return swap(self.shards, task.collection, merge, written)
        finally:
            if name is not None:
                release(self.shards, [(task.collection, name)])

    def _write(
        self, task: Task, fetch: Fetch, name: str | None, most_bytes: int
    ) -> tuple[ChunkRef, ...] | LostRace:
        """Return the chunks of the merged batch; those of several buckets are staged."""
        parts = self._parts(task, fetch, most_bytes)
        if name is not None:
            with temporary_directory("slackwater-", self.scratch) as directory:
                spill = Spill(Path(directory), task.schema)
                for part in parts:
                    spill.add(split(part, task.buckets, self.kernel))
                return self._write_buckets(task, name, spill)
        every = list(parts)
        if not every:
            return ()
        return write_part(self.shards.chunks, task, together(every, task.schema, self.kernel))

    def _parts(self, task: Task, fetch: Fetch, most_bytes: int) -> Iterator[Part]:
        """Yield all that the task reads. Errors: Outgrown if it exceeds the estimate."""
        total = 0
        for group in range(len(task.groups)):
            self._go_on()
            room = self.limits.bucket_bytes
            for part in read_parts(fetch, task, group, room, self.kernel):
                total += part.nbytes
                if total > most_bytes:
                    raise BucketsTooFew
                yield part

    def _go_on(self) -> None:
        if self.is_stopping():
            raise Determinate("compaction is stopping: the merge will be retried")

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
    """Run a merge and return its result; an exception becomes `Failed`."""
    try:
        return compact(collection, merge)
    except Exception as error:  # noqa: BLE001  any client may write chunks; other merges continue
        log_failure(collection, error)
        return Failed(collection, reason_of(error))


def reason_of(error: Exception) -> str:
    """Return the reason as text; foreign exceptions are named by their type too."""
    is_ours = isinstance(error, SlackwaterError)
    return str(error) if is_ours else f"{type(error).__name__}: {error}"


def log_failure(what: str, error: Exception) -> None:
    """Log a failure, with a traceback if it was unexpected."""
    is_expected = isinstance(error, SlackwaterError)
    log.warning(
        "compaction failed; retrying",
        extra={"of": what, "cause": reason_of(error)},
        exc_info=None if is_expected else error,
    )


def swap(
    shards: Shards, collection: CollectionId, merge: Merge, chunks: tuple[ChunkRef, ...]
) -> Result:
    """Replace the merge's batches by one with these chunks; return the outcome as read back.

    More chunks than an event can name are linked by a stage of their own: the tasks' stage may
    also hold chunks of a task that ran twice.

    Errors: as `Shards.submit`; Indeterminate if the group has failed.
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
    """Return the outcome of a Replace with these chunks. Errors: as `swap`."""
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
    """Return the reason why a merge is void, as text."""
    match outcome:
        case outcomes.BatchesChanged():
            return LostRace(collection, "another compactor was faster")
        case outcomes.ChunksReclaimed():
            return LostRace(collection, "a collector was faster: the merge will be retried")
        case outcomes.UnknownStage():
            return LostRace(collection, "its chunks were staged for too long")
        case outcomes.UnknownCollection():
            return LostRace(collection, "it was dropped")
        case _:
            return LostRace(collection, str(outcome))


def lost_or_corrupt(
    shards: Shards, collection: CollectionId, merge: Merge, corrupt: Corrupt
) -> LostRace:
    """Return the lost race that explains an unreadable chunk: its batch was replaced.

    Errors: Corrupt if all of the batches are still current.
    """
    shards.sync(collection)
    trace = shards.state(collection).batches
    if all(trace.find(batch.name) is not None for batch in merge.batches):
        raise corrupt
    return LostRace(collection, "the batches were replaced while they were read")


def compacted(collection: CollectionId, merge: Merge, chunks: Sequence[ChunkRef]) -> Compacted:
    """Return the result of a successful merge."""
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
