"""The collector: what nothing names goes, what anybody may still read stays."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streams.compaction import plan
from streams.compaction.collector import RESCAN_MS, Collector
from streams.compaction.merge_execution import Compacted, Worker
from streams.errors import Determinate
from streams.ids import CapabilityId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.kafka.memory.faulty import FaultyChunks
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryPositions, MemoryRawReader
from streams.kafka.memory.store import Store
from streams.progress import frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.log.events import Acquire, Append, Downgrade, Drop, Part, Right, Stage
from streams.storage.log.outcomes import Appended, ChunksReclaimed
from streams.storage.read import reader as read
from streams.trace.kernel.kernel import Kernel
from tests.support.shard_clients import DESCRIPTION, U1, append, broker, client, names, rows

HOLD, READER = CapabilityId("u1.catalog"), CapabilityId("reader")
KERNEL = Kernel()


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@contextmanager
def collected(kafka: MemoryBroker) -> Iterator[tuple[Shards, Collector, Clock]]:
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0), read=HOLD)
        clock = Clock()
        yield one, Collector(one, MemoryRawReader(kafka.store), clock, grace_ms=100), clock


def alive(kafka: MemoryBroker, one: Shards) -> set[str]:
    """The keys in the data topic that have no tombstone."""
    topic = kafka.store.topic(one.data_topic(U1))
    return {
        (record.key or b"").decode()
        for partition in topic.partitions
        for record in partition.records
        if record.value is not None
    }


def named(one: Shards) -> set[str]:
    return {chunk.key for chunk in one.group_state("u1").chunks()}


def compact(one: Shards) -> tuple[ChunkRef, ...]:
    """Everything as one batch; the chunks it replaced."""
    upper = one.state(U1).upper.time
    to = frontier(upper - 1)
    one.submit([("u1", Downgrade(collection=U1, capability=HOLD, frontier=to))])
    old = tuple(ref for batch in one.state(U1).batches for ref in batch.chunks)
    [merge] = plan.whole(one.state(U1))
    numbers = itertools.count()
    done = Worker(one, KERNEL, lambda: f"s{next(numbers)}").compact(U1, merge)
    assert isinstance(done, Compacted)
    return old


def test_superseded_chunks_go_at_once() -> None:
    kafka = broker()
    with collected(kafka) as (one, collector, _):
        append(one, 0, 1, rows("a", time=0))
        append(one, 1, 2, rows("b", time=1))
        old = compact(one)
        assert set(collector.collect("u1")) == set(old)
        assert alive(kafka, one) == named(one)
        assert collector.collect("u1") == ()
        assert names(read.snapshot(one, U1, Timestamp(1))[0]) == ["a", "b"]


def test_a_superseded_chunk_stays_while_a_plan_is_not_beyond() -> None:
    """Rule 10: a reader in the middle of a batch reads it to its end."""
    kafka = broker()
    with collected(kafka) as (one, collector, _):
        append(one, 0, 1, rows("a", time=0))
        append(one, 1, 2, rows("b", time=1))
        began = one.group_state("u1").upto
        hold = Acquire(collection=U1, capability=READER, right=Right.READ, plan=began)
        one.submit([("u1", hold)])
        reading = read.snapshot_pieces(one.state(U1), Timestamp(1))
        moved = Downgrade(collection=U1, capability=READER, frontier=frontier(1), plan=began)
        one.submit([("u1", moved)])
        old = compact(one)
        assert collector.collect("u1") == ()
        assert names(read.load(one.chunks, one.data_topic(U1), reading)[0]) == ["a", "b"]
        one.submit([("u1", Drop(U1, READER))])
        assert set(collector.collect("u1")) == set(old)


def test_orphans_go_when_the_floor_has_passed_them() -> None:
    kafka = broker()
    with collected(kafka) as (one, collector, clock):
        append(one, 0, 1, rows("a", time=0))
        orphans = one.write(U1, rows("x", "y", time=0))
        assert collector.collect("u1") == ()
        late = one.write(U1, rows("z", time=0))
        clock.now_ms = 99
        assert collector.collect("u1") == ()
        clock.now_ms = 100
        assert [chunk.key for chunk in collector.collect("u1")] == [
            orphan.key for orphan in orphans
        ]
        assert alive(kafka, one) == named(one) | {chunk.key for chunk in late}
        clock.now_ms = 200
        assert [chunk.key for chunk in collector.collect("u1")] == [chunk.key for chunk in late]
        assert names(read.snapshot(one, U1, Timestamp(0))[0]) == ["a"]


def test_a_writer_that_links_too_late_is_told_so() -> None:
    """Rule 7: it writes the chunk again; what it wrote at first may be gone."""
    with collected(broker()) as (one, collector, _):
        chunks = one.write(U1, rows("a", time=0))
        assert collector.reclaim("u1", collector.ends("u1")) != ()
        part = Part(
            collection=U1,
            capability=write_capability(U1),
            lower=frontier(0),
            upper=frontier(1),
            chunks=chunks,
        )
        assert one.submit([("u1", Append((part,)))]) == [ChunksReclaimed()]
        assert isinstance(append(one, 0, 1, rows("a", time=0)), Appended)


def test_staged_chunks_stay_until_their_lease_is_over() -> None:
    kafka = broker()
    with collected(kafka) as (one, collector, _):
        chunks = one.write(U1, rows("a", time=0))
        stage = Stage(stage="load", chunks=chunks, lease_ms=50)
        one.submit([("u1", stage)])
        assert collector.reclaim("u1", collector.ends("u1")) == ()
        for at in range(6):  # each event moves the log's clock by 10 ms
            append(one, at, at + 1)
        [reclaimed] = collector.reclaim("u1", collector.ends("u1"))
        assert reclaimed.key == chunks[0].key


def test_a_tombstone_that_failed_is_written_the_next_time() -> None:
    kafka = broker()
    with collected(kafka) as (one, collector, _):
        append(one, 0, 1, rows("a", time=0))
        orphans = one.write(U1, rows("x", time=0))

        class Broken(FaultyChunks):
            def forget(self, topic, refs):
                raise Determinate("injected")

        chunks, one.chunks = one.chunks, Broken(one.chunks)
        with pytest.raises(Determinate):
            collector.reclaim("u1", collector.ends("u1"))
        one.chunks = chunks
        [reclaimed] = collector.reclaim("u1", collector.ends("u1"))
        assert reclaimed.key == orphans[0].key


def test_another_collector_finds_what_one_left_behind() -> None:
    kafka = broker()
    with collected(kafka) as (one, _, clock):
        append(one, 0, 1, rows("a", time=0))
        append(one, 1, 2, rows("b", time=1))
        old = compact(one)
        dead = Collector(one, MemoryRawReader(kafka.store), clock)
        chunks, one.chunks = one.chunks, FaultyChunks(one.chunks)
        one.chunks.forget = lambda topic, refs: None  # type: ignore[method-assign]
        dead.collect("u1")
        one.chunks = chunks
        other = Collector(one, MemoryRawReader(kafka.store), clock)
        assert other.collect("u1") == ()  # nothing is superseded any more
        assert {chunk.key for chunk in other.reclaim("u1", other.ends("u1"))} == {
            chunk.key for chunk in old
        }
        assert alive(kafka, one) == named(one)


def test_a_topic_is_read_once() -> None:
    kafka = broker()
    with collected(kafka) as (one, collector, _):
        one.grow("u1", 4)
        for at in range(40):
            append(one, at, at + 1, rows("a", time=at))
        requests: list[tuple[int, Offset]] = []
        inner = collector.records.fetch

        def counted(topic, partition, lo, hi, limit=None):
            requests.append((partition, lo))
            return inner(topic, partition, lo, hi, limit)

        collector.records.fetch = counted  # type: ignore[method-assign]
        assert collector.reclaim("u1", collector.ends("u1")) == ()
        assert {partition for partition, _ in requests} == {0, 1, 2, 3}
        requests.clear()
        assert collector.reclaim("u1", collector.ends("u1")) == ()
        assert requests == []


class Counting(MemoryRawReader):
    """Says how many records of data topics were read."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.count = 0

    def fetch(self, *args, **more):
        table = super().fetch(*args, **more)
        self.count += table.num_rows
        return table


def test_the_next_process_reads_on_where_the_last_one_stood() -> None:
    kafka, positions = broker(), MemoryPositions()
    with collected(kafka) as (one, _, clock):
        for at in range(40):
            append(one, at, at + 1, rows("a", time=at))

        def process() -> tuple[Collector, Counting]:
            records = Counting(kafka.store)
            return Collector(one, records, clock, positions=positions), records

        first, read_by_first = process()
        first.reclaim("u1", first.ends("u1"))
        assert read_by_first.count == 40
        second, read_by_second = process()
        second.reclaim("u1", second.ends("u1"))
        assert read_by_second.count == 0
        [orphan] = one.write(U1, rows("x", time=40))
        third, read_by_third = process()
        assert [chunk.key for chunk in third.reclaim("u1", third.ends("u1"))] == [orphan.key]
        assert read_by_third.count == 1


def test_what_a_stage_let_go_of_is_found_by_the_next_process() -> None:
    kafka, positions = broker(), MemoryPositions()
    with collected(kafka) as (one, _, clock):
        append(one, 0, 1, rows("a", time=0))
        chunks = one.write(U1, rows("x", time=1))
        one.submit([("u1", Stage(stage="load", chunks=chunks, lease_ms=50))])
        first = Collector(one, MemoryRawReader(kafka.store), clock, positions=positions)
        assert first.reclaim("u1", first.ends("u1")) == ()
        for at in range(1, 7):  # the lease ends
            append(one, at, at + 1)
        second = Collector(one, MemoryRawReader(kafka.store), clock, positions=positions)
        assert [chunk.key for chunk in second.reclaim("u1", second.ends("u1"))] == [
            chunks[0].key
        ]


def test_what_a_death_left_behind_is_found_within_a_week() -> None:
    kafka, positions = broker(), MemoryPositions()
    with collected(kafka) as (one, _, clock):
        append(one, 0, 1, rows("a", time=0))
        append(one, 1, 2, rows("b", time=1))
        first = Collector(one, MemoryRawReader(kafka.store), clock, positions=positions)
        first.reclaim("u1", first.ends("u1"))
        old = compact(one)
        chunks, one.chunks = one.chunks, FaultyChunks(one.chunks)
        one.chunks.forget = lambda topic, refs: None  # type: ignore[method-assign]
        first.collect("u1")  # its Reclaim counts, and then it dies
        one.chunks = chunks
        second = Collector(one, MemoryRawReader(kafka.store), clock, positions=positions)
        assert second.reclaim("u1", second.ends("u1")) == ()
        clock.now_ms += RESCAN_MS
        third = Collector(one, MemoryRawReader(kafka.store), clock, positions=positions)
        assert {chunk.key for chunk in third.reclaim("u1", third.ends("u1"))} == {
            chunk.key for chunk in old
        }


def test_a_topic_may_get_more_partitions() -> None:
    kafka, positions = broker(), MemoryPositions()
    with collected(kafka) as (one, _, clock):
        append(one, 0, 1, rows("a", time=0))
        collector = Collector(one, MemoryRawReader(kafka.store), clock, positions=positions)
        assert collector.reclaim("u1", collector.ends("u1")) == ()
        topic = one.data_topic(U1)
        before = len(kafka.store.topic(topic).partitions)
        kafka.topics.grow(topic, before + 1)
        kafka.store.partition(topic, before).append(0, b"orphan", b"x", {})
        [reclaimed] = collector.reclaim("u1", collector.ends("u1"))
        assert reclaimed.key == "orphan"
        assert positions.load(topic, before + 1)[before].offset == 1


def test_positions_that_cannot_be_kept_cost_work_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Refused(MemoryPositions):
        def load(self, topic, partitions):
            raise Determinate("not authorized")

        def save(self, topic, positions):
            raise Determinate("not authorized")

    kafka = broker()
    with collected(kafka) as (one, _, clock):
        append(one, 0, 1, rows("a", time=0))
        [orphan] = one.write(U1, rows("x", time=1))
        collector = Collector(one, MemoryRawReader(kafka.store), clock, positions=Refused())
        chunks = collector.reclaim("u1", collector.ends("u1"))
        assert [chunk.key for chunk in chunks] == [orphan.key]
        assert len(caplog.records) == 2
