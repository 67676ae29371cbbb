"""The functions of the Spark job, with the shuffle as a plain loop: as good as in process."""

import itertools
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from streams.compaction import job, plan, staging
from streams.compaction.collector import Collector
from streams.compaction.job import SparkWorker
from streams.compaction.merge_execution import Compacted, Failed, LostRace
from streams.compaction.merge_task import Limits, Task, task_of
from streams.compaction.read_ahead import Wanted
from streams.compaction.staging import release, renewed, stage
from streams.ids import CollectionId, Timestamp, Topic
from streams.kafka.log import ChunkRef, ChunkWrite, Truncated
from streams.kafka.memory.faulty import Fault, FaultyChunks
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryRawReader
from streams.kafka.settings import ClientSettings
from streams.progress import frontier
from streams.storage.client import maintenance
from streams.storage.client.shards import Shards
from streams.storage.log.events import Downgrade
from streams.storage.policy import catalog_hold
from streams.storage.read import reader as read
from tests.support.shard_clients import DESCRIPTION, U1, append, broker, client, names, rows

NOWHERE = ClientSettings("nowhere:9092")


def without_spark(
    monkeypatch: pytest.MonkeyPatch, kafka: MemoryBroker, one: Shards, bucket_bytes: int
) -> SparkWorker:
    """A worker whose two stages run here, over the broker in memory."""
    monkeypatch.setattr(job, "broker", lambda _: kafka)

    def run(self: SparkWorker, tasks: job.Tasks, stages: job.Stages) -> list[pa.RecordBatch]:
        headless = {number: replace(task, groups=()) for number, task in tasks.items()}
        cells = [
            {"merge": number, "pieces": pickle.dumps(group)}
            for number, task in tasks.items()
            for group in task.groups
        ]
        schema = pa.schema([("merge", pa.int32()), ("pieces", pa.binary())])
        batches = [pa.RecordBatch.from_pylist([cell], schema=schema) for cell in cells]
        parts = pa.Table.from_batches(list(job.reader(headless, self.kafka)(iter(batches))))
        key = lambda row: (row["merge"], row["bucket"])  # noqa: E731  what Spark shuffles by
        shuffled = sorted(parts.to_pylist(), key=key)
        write = job.writer(headless, stages, self.kafka)
        return [
            batch
            for _, some in itertools.groupby(shuffled, key)
            for batch in write(pa.Table.from_pylist(list(some), parts.schema)).to_batches()
        ]

    monkeypatch.setattr(SparkWorker, "_run", run)
    return SparkWorker(one, None, NOWHERE, Limits(bucket_bytes, 1000))


def filled(one: Shards) -> Sequence[Wanted]:
    """Twelve batches of which half of the rows are retracted, and the merge of all."""
    one.create("u1", U1, DESCRIPTION, Timestamp(0), read=catalog_hold(U1))
    for at in range(12):
        deletions = [rows(f"r{at - 1}", time=at, diff=-1)] if at % 2 else []
        append(one, at, at + 1, rows(f"r{at}", time=at), *deletions)
    hold = catalog_hold(U1)
    one.submit([("u1", Downgrade(collection=U1, capability=hold, frontier=frontier(11)))])
    return [(U1, merge) for merge in plan.whole(one.state(U1))]


@pytest.mark.parametrize("bucket_bytes", [1 << 30, 2000])
def test_what_tasks_write_is_what_one_process_writes(
    monkeypatch: pytest.MonkeyPatch, bucket_bytes: int
) -> None:
    kafka = broker()
    with client(kafka) as one:
        wanted_rows = filled(one)
        worker = without_spark(monkeypatch, kafka, one, bucket_bytes)
        [done] = worker.compact_all(wanted_rows)
        assert isinstance(done, Compacted)
        assert (done.rows_read, done.rows_written) == (18, 6)
        assert one.state(U1).batches.count == 1
        expected = sorted(f"r{at}" for at in range(12) if at % 2)
        assert names(read.snapshot(one, U1, Timestamp(11))[0]) == expected


def test_a_missing_chunk_fails_its_merge_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = broker()
    with client(kafka) as one:
        merges = filled(one)
        first = next(iter(one.state(U1).batches))
        one.chunks.forget(one.data_topic(U1), first.chunks)
        [failed] = without_spark(monkeypatch, kafka, one, 1 << 30).compact_all(merges)
        assert isinstance(failed, Failed)
        assert "sw.u1.data" in failed.reason


def test_a_race_that_was_lost_while_tasks_read_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = broker()
    with client(kafka) as one:
        merges = filled(one)
        worker = without_spark(monkeypatch, kafka, one, 1 << 30)
        assert isinstance(worker.compact_all(merges)[0], Compacted)
        assert isinstance(worker.compact_all(merges)[0], LostRace)  # all chunks were there
        maintenance.collect(one, "u1")
        assert isinstance(worker.compact_all(merges)[0], LostRace)


def test_a_write_that_fails_in_a_task_fails_its_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = broker()
    with client(kafka) as one:
        merges = filled(one)
        worker = without_spark(monkeypatch, kafka, one, 1 << 30)
        monkeypatch.setattr(kafka, "chunks", FaultyChunks(kafka.chunks, [Fault.BEFORE]))
        [failed] = worker.compact_all(merges)
        assert failed == Failed(U1, "injected before the write")
        assert len(list(one.state(U1).batches)) == 12


class Slow:
    """Chunks; after each write a collector takes all that nothing names, in its own time."""

    def __init__(self, kafka: MemoryBroker, act: Callable[[], object]) -> None:
        self._inner, self._act = kafka.chunks, act

    def write(
        self, topic: Topic, bodies: Sequence[tuple[bytes, int]], headers: Mapping[str, bytes]
    ) -> tuple[ChunkRef, ...]:
        self._act()
        return self._inner.write(topic, bodies, headers)

    def write_all(self, chunks: Sequence[ChunkWrite]) -> list[tuple[ChunkRef, ...]]:
        return [self.write(*write) for write in chunks]

    def __getattr__(self, name: str):
        return getattr(self._inner, name)


def test_a_collector_takes_nothing_of_a_slow_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 7: what a task wrote is staged before the next bucket, however long that takes."""
    kafka = broker()
    with client(kafka) as one, client(kafka) as other:
        wanted_rows = filled(one)
        other.open("u1")
        collector = Collector(other, MemoryRawReader(kafka.store), lambda: 0)
        worker = without_spark(monkeypatch, kafka, one, 2000)
        floors: list[dict[int, int]] = []

        def collect() -> None:
            assert collector.reclaim("u1", collector.ends("u1")) == ()
            floors.append(dict(other.group_state("u1").floor))

        monkeypatch.setattr(kafka, "chunks", Slow(kafka, collect))
        [done] = worker.compact_all(wanted_rows)
        assert isinstance(done, Compacted)
        assert len(floors) > 2
        assert floors[-1] != floors[0]
        expected = sorted(f"r{at}" for at in range(12) if at % 2)
        assert names(read.snapshot(one, U1, Timestamp(11))[0]) == expected


def test_what_a_lost_merge_staged_is_garbage_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = broker()
    with client(kafka) as one:
        merges = filled(one)
        worker = without_spark(monkeypatch, kafka, one, 2000)
        assert isinstance(worker.compact_all(merges)[0], Compacted)
        live = {chunk.key for batch in one.state(U1).batches for chunk in batch.chunks}
        assert isinstance(worker.compact_all(merges)[0], LostRace)
        append(one, 12, 13)  # the log's clock moves on
        collector = Collector(one, MemoryRawReader(kafka.store), lambda: 0)
        collector.reclaim("u1", collector.ends("u1"))
        assert one.group_state("u1").stages == {}
        assert {chunk.key for chunk in one.group_state("u1").chunks()} == live


def test_leases_are_renewed_as_long_as_a_merge_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = broker()  # each record moves the log's clock on by 10 ms
    with client(kafka, pump=True) as one:
        filled(one)
        chunks = one.write(U1, rows("x", time=0))
        stage(one, U1, "slow", chunks)
        monkeypatch.setattr(staging, "RENEWAL_S", 0.01)
        with renewed(one, [(U1, "slow")]):
            until = one.group_state("u1").stages["slow"].expires_ms
            later = lambda: one.group_state("u1").stages["slow"].expires_ms > until  # noqa: E731
            assert one.wait(later, 10_000)
        append(one, 12, 13)
        assert one.group_state("u1").stages == {}


@pytest.mark.parametrize("heals", [False, True])
def test_a_group_that_fails_before_it_is_staged_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
    *,
    heals: bool,
) -> None:
    """A group whose log is sound heals after half a second: its merge has failed already."""
    kafka = broker()
    with client(kafka) as one:
        merges = filled(one)
        other = CollectionId("u2")
        one.create("u2", other, DESCRIPTION, Timestamp(0))

        def failing(shards: Shards, collection: CollectionId, *more: Any) -> Task:
            task = task_of(shards, collection, *more)
            if collection == other:
                log = shards.names("u2").log
                shards.following.fail(log, Truncated(log, 0, "it is gone"))
            return task

        monkeypatch.setattr(job, "task_of", failing)
        worker = without_spark(monkeypatch, kafka, one, 1 << 30)
        run = SparkWorker._run

        def running(self: SparkWorker, *what: Any) -> list[pa.RecordBatch]:
            if heals:
                one.following.heal("u2")
            return run(self, *what)

        monkeypatch.setattr(SparkWorker, "_run", running)
        done, failed = worker.compact_all([*merges, (other, merges[0][1])])
        assert isinstance(done, Compacted)
        assert isinstance(failed, Failed)
        assert "it is gone" in failed.reason


def test_stages_end_whatever_became_of_others() -> None:
    kafka = broker()
    with client(kafka) as one:
        filled(one)
        stage(one, U1, "kept", one.write(U1, rows("x", time=0)))
        release(one, [(CollectionId("gone"), "lost"), (U1, "kept")])
        append(one, 12, 13)  # the log's clock moves on
        assert one.group_state("u1").stages == {}


def test_a_description_that_is_none_fails_its_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = broker()
    with client(kafka) as one:
        one.create("u1", U1, "{}", Timestamp(0))
        append(one, 0, 1)
        append(one, 1, 2)
        [batch] = one.state(U1).batches
        merge = plan.Merge((batch,), Timestamp(0))
        monkeypatch.setattr(SparkWorker, "_run", lambda *_: [])
        worker = SparkWorker(one, None, NOWHERE)
        [failed] = worker.compact_all([(U1, merge)])
        assert isinstance(failed, Failed)
        assert "expected columns, keys, kind" in failed.reason
