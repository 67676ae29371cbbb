"""Rounds of the compaction job over a broker in memory."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from streams.compaction import chunk_sizes, partitions
from streams.compaction.collector import Collector
from streams.compaction.merge_execution import Worker
from streams.compaction.runner import Compaction, CompactionRequest, HeldSince
from streams.errors import InvalidUsage
from streams.ids import CapabilityId, CollectionId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryRawReader
from streams.kafka.topics import TopicInfo
from streams.progress import frontier
from streams.storage.client import maintenance
from streams.storage.client.shards import Shards, write_capability
from streams.storage.log.events import Acquire, Append, Part, Right
from streams.storage.log.state import State
from streams.storage.policy import LagBehindUpper, Until, catalog_hold
from streams.storage.read import reader as read
from streams.trace.kernel.kernel import Kernel
from tests.support.shard_clients import DESCRIPTION, U1, broker, client, names, rows

KERNEL = Kernel()
U2 = CollectionId("u2")


@contextmanager
def environment(kafka: MemoryBroker, *ids: CollectionId) -> Iterator[tuple[Shards, Compaction]]:
    with client(kafka) as one:
        for collection in ids or (U1,):
            one.create(
                collection, collection, DESCRIPTION, Timestamp(0), read=catalog_hold(collection)
            )
        yield one, compaction(kafka, one)


def compaction(kafka: MemoryBroker, one: Shards) -> Compaction:
    numbers = itertools.count()
    worker = Worker(one, KERNEL, lambda: f"s{next(numbers)}")
    collector = Collector(one, MemoryRawReader(kafka.store), lambda: 0)
    return Compaction(one, worker, collector, lambda: 0)


def fill(one: Shards, id_: CollectionId, count: int) -> None:
    for _ in range(count):
        now = one.state(id_).upper.time
        chunks = one.write(id_, rows(f"r{now}", time=now))
        part = Part(
            collection=id_,
            capability=write_capability(id_),
            lower=frontier(now),
            upper=frontier(now + 1),
            chunks=chunks,
        )
        one.submit([(id_, Append((part,)))])


def test_a_round_moves_since_merges_and_reclaims() -> None:
    kafka = broker()
    with environment(kafka) as (one, job):
        fill(one, U1, 20)
        done = job.run_once(CompactionRequest(policy=LagBehindUpper(0)))
        assert [merged.batches for merged in done.compacted] == [20]
        assert len(done.reclaimed) == 20
        state = one.state(U1)
        assert (state.since, state.batches.count) == (frontier(19), 1)
        assert len(names(read.snapshot(one, U1, Timestamp(19))[0])) == 20
        again = job.run_once(CompactionRequest(policy=LagBehindUpper(0)))
        assert (again.compacted, again.lost, again.reclaimed) == ([], [], [])


def test_a_round_says_who_holds_history_that_was_to_go() -> None:
    with environment(broker(), U1, U2) as (one, job):
        fill(one, U1, 10)
        fill(one, U2, 10)
        reader = CapabilityId("reader")
        one.submit([("u1", Acquire(collection=U1, capability=reader, right=Right.READ))])
        done = job.run_once(CompactionRequest(policy=Until(Timestamp(6)), wait_ms=20))
        assert done.held == [HeldSince(U1, frontier(0), frontier(6), (reader,))]
        assert (one.state(U1).since, one.state(U2).since) == (frontier(0), frontier(6))


def test_only_what_is_asked_for_is_compacted() -> None:
    with environment(broker(), U1, U2) as (one, job):
        fill(one, U1, 5)
        fill(one, U2, 5)
        job.run_once(
            CompactionRequest(
                collections=frozenset({U2}), policy=Until(Timestamp(3)), whole=True
            )
        )
        assert (one.state(U1).since, one.state(U1).batches.count) == (frontier(0), 5)
        assert (one.state(U2).since, one.state(U2).batches.count) == (frontier(3), 1)
        with pytest.raises(InvalidUsage, match="in no open group"):
            job.run_once(CompactionRequest(collections=frozenset({CollectionId("u9")})))


def test_since_stays_where_somebody_holds_it() -> None:
    with environment(broker()) as (one, job):
        fill(one, U1, 10)
        hold = Acquire(
            collection=U1,
            capability=CapabilityId("reader"),
            right=Right.READ,
            frontier=Timestamp(4),
        )
        one.submit([("u1", hold)])
        job.run_once(CompactionRequest(policy=LagBehindUpper(0), whole=True))
        assert one.state(U1).since == frontier(4)
        assert len(names(read.snapshot(one, U1, Timestamp(4))[0])) == 5


def test_a_damaged_collection_does_not_stop_the_others() -> None:
    with environment(broker(), U1, U2) as (one, job):
        fill(one, U1, 5)
        fill(one, U2, 5)
        first = next(iter(one.state(U1).batches))
        one.chunks.forget(one.data_topic(U1), first.chunks)
        done = job.run_once(CompactionRequest(whole=True))
        assert [merged.collection for merged in done.compacted] == [U2]
        assert [failure.collection for failure in done.failed] == [U1]
        assert "sw.u1.data" in done.failed[0].reason


def test_a_dropped_collection_leaves_garbage_only() -> None:
    with environment(broker()) as (one, job):
        fill(one, U1, 5)
        one.drop(U1)
        done = job.run_once(CompactionRequest(whole=True))
        assert done.compacted == []
        assert len(done.reclaimed) == 5


def test_orphans_are_reclaimed_when_asked_for() -> None:
    with environment(broker()) as (one, job):
        fill(one, U1, 2)
        [orphan] = one.write(U1, rows("x", time=2))
        assert job.run_once(CompactionRequest()).reclaimed == []
        done = job.run_once(CompactionRequest(orphans=True))
        assert [chunk.key for chunk in done.reclaimed] == [orphan.key]


def test_the_log_is_rolled_up_and_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "LEAST_EVENTS", 64)
    kafka = broker()
    with environment(kafka) as (one, job):
        request = CompactionRequest(policy=LagBehindUpper(0))
        for _ in range(3):
            fill(one, U1, 70)
            assert job.run_once(request).rolled_up == ["u1"]
        expected = names(read.snapshot(one, U1, Timestamp(209))[0])
        assert kafka.logs.bounds(one.names("u1").log)[0] > 0
    with client(kafka) as one:
        one.open("u1")
        assert names(read.snapshot(one, U1, Timestamp(209))[0]) == expected


def test_a_patient_round_leaves_its_garbage_to_the_next() -> None:
    with environment(broker()) as (one, job):
        fill(one, U1, 4)
        first = job.run_once(CompactionRequest(patient=True))
        assert (len(first.compacted), first.reclaimed) == (1, [])
        assert len(job.run_once(CompactionRequest(patient=True)).reclaimed) == 4


def test_merges_and_the_rest_of_a_round_may_be_had_apart() -> None:
    with environment(broker()) as (one, job):
        fill(one, U1, 4)
        first = job.merge(CompactionRequest())
        assert (len(first.compacted), first.reclaimed) == (1, [])
        assert len(job.tidy(CompactionRequest()).reclaimed) == 4


def test_a_data_topic_gets_partitions_as_it_comes_to_hold_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = broker()
    with environment(kafka) as (one, job):
        topic = one.names(U1).data
        assert kafka.store.describe(topic) == TopicInfo(kafka.store.topic(topic).id, 1)
        fill(one, U1, 4)
        job.run_once(CompactionRequest())
        assert len(kafka.store.topic(topic).partitions) == 1
        total = chunk_sizes.total(one.group_state(U1).chunks())
        monkeypatch.setattr(partitions, "BYTES_OF_ONE", total // 2)
        calls = list[int]()
        grow = one.grow

        def counted(group: str, wanted: int) -> None:
            calls.append(wanted)
            grow(group, wanted)

        monkeypatch.setattr(one, "grow", counted)
        for _ in range(2):
            job.run_once(CompactionRequest())
        assert len(kafka.store.topic(topic).partitions) == 3
        assert calls == [3]
        fill(one, U1, 20)
        assert {chunk.partition for chunk in one.group_state(U1).chunks()} == {0, 1, 2}
        done = job.run_once(CompactionRequest(policy=LagBehindUpper(0), whole=True))
        assert len(done.reclaimed) >= 20, "garbage is found in partitions that came later, too"
        assert len(names(read.snapshot(one, U1, Timestamp(23))[0])) == 24


@pytest.mark.parametrize(
    ("size", "expected"), [(0, 1), (3, 1), (100, 2), (250, 3), (10_000, 8)]
)
def test_partitions_follow_what_is_held_not_what_is_claimed(
    size: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reference may claim any size; a chunk is no larger than a record can be."""
    monkeypatch.setattr(chunk_sizes, "MAXIMUM_RECORD_BYTES", 1 << 20)
    monkeypatch.setattr(partitions, "BYTES_OF_ONE", 100 << 20)
    chunks = frozenset(
        ChunkRef(0, Offset(number), f"k{number}", 0, 1, 1 << 60) for number in range(size)
    )

    class HeldSince:
        def chunks(self) -> frozenset[ChunkRef]:
            return chunks

    assert partitions.wanted(cast("State", HeldSince())) == expected
