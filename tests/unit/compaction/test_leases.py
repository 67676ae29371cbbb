"""Leases that were abandoned end, though nobody appends to the log any more."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streams.compaction.collector import Collector
from streams.compaction.leases import expiries, sight_of
from streams.compaction.merge_execution import Worker
from streams.compaction.runner import Compaction, CompactionRequest
from streams.ids import Offset, Timestamp
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryRawReader
from streams.progress import EMPTY, frontier
from streams.storage.client.handles import WriteCapability
from streams.storage.client.lifecycle import Sealed
from streams.storage.log.lease_ends import LeaseEnds, name_of_stage
from streams.storage.log.machine import MAX_TICK_MS
from streams.storage.log.state import StagedChunks, State
from streams.storage.read import reader as read
from streams.storage.storage import LEASE_MS, Storage
from streams.trace.kernel.kernel import Kernel
from tests.support.storages import T1, TABLE, given_up, write

MINUTE = 60_000


class World:
    def __init__(self) -> None:
        self.now_ms = 1_000_000_000_000
        self.broker = MemoryBroker(lambda: self.now_ms)
        self.storage = Storage.memory(self.broker)

    @contextmanager
    def compactor(self, ahead_ms: int = 0) -> Iterator[Compaction]:
        """Another process, whose clock is off."""

        def clock() -> int:
            return self.now_ms + ahead_ms

        with Storage.memory(self.broker) as other:
            other.shards.open(T1)
            collector = Collector(other.shards, MemoryRawReader(self.broker.store), clock)
            worker = Worker(other.shards, Kernel(), lambda: "s")
            yield Compaction(other.shards, worker, collector, clock)

    def passing(self, duration_ms: int, *jobs: Compaction) -> None:
        """A round of each each half minute."""
        for _ in range(duration_ms // MAX_TICK_MS):
            self.now_ms += MAX_TICK_MS
            for job in jobs:
                assert job.tidy(CompactionRequest()).failed == []

    def upto(self) -> Offset:
        self.storage.shards.sync_group(T1)
        return self.storage.shards.group_state(T1).upto

    def has_leases(self) -> bool:
        self.upto()
        return bool(expiries(self.storage.shards.group_state(T1)))


def sealed_but_for_one(world: World) -> WriteCapability:
    """One writer has finished; the other one, which is returned, has died."""
    _, writer = world.storage.create(T1, TABLE)
    _, died = Storage.memory(world.broker).acquire_capabilities(T1)
    writer = write(world.storage, writer, 10, ("a", 1, 3, 1))
    world.storage.update_and_downgrade(writer, None, EMPTY)
    return died


def test_a_collection_that_a_writer_has_finished_is_sealed_when_the_others_lease_ends() -> None:
    world = World()
    died = sealed_but_for_one(world)
    with world.compactor() as job:
        world.passing(LEASE_MS, job)
        assert world.has_leases()
        assert world.storage.shards.state(T1).upper == frontier(0)
        world.passing(LEASE_MS + 2 * MINUTE, job)
    assert not world.has_leases()
    assert world.storage.shards.state(T1).upper.is_empty
    assert len(read.snapshot(world.storage.shards, T1, Timestamp(9))[0]) == 1
    with pytest.raises(Sealed):
        world.storage.update_and_downgrade(died, None, 5)


def test_a_writer_that_died_does_not_keep_others_from_finishing_a_collection() -> None:
    world = World()
    died = sealed_but_for_one(world)
    with Storage.memory(world.broker) as other:
        write(other, died, 5)  # it goes on after the other has finished: it may not be done
    with world.compactor() as job:
        world.passing(2 * LEASE_MS + 2 * MINUTE, job)
    assert not world.has_leases()
    _, last = world.storage.acquire_capabilities(T1)
    assert last.frontier == frontier(5)
    world.storage.drop(last)  # the lease that ended holds upper back no more
    assert world.storage.shards.state(T1).upper.is_empty
    assert len(read.snapshot(world.storage.shards, T1, Timestamp(9))[0]) == 1


def test_a_collection_that_somebody_has_released_ends_with_the_last_lease() -> None:
    world = World()
    capabilities = world.storage.create(T1, TABLE)
    with Storage.memory(world.broker) as died:
        _, writing = died.acquire_capabilities(T1)
        died.drop(writing)
    given_up(world.storage, capabilities)
    with world.compactor() as job:
        world.passing(2 * LEASE_MS + 2 * MINUTE, job)
    world.upto()
    assert world.storage.shards.state(T1).is_dropped


def test_logs_without_leases_and_those_whose_holders_renew_get_no_record() -> None:
    world = World()
    reading, writer = world.storage.create(T1, TABLE)
    with world.compactor() as job:
        for _ in range(10):
            world.storage.heartbeat(reading)
            world.storage.heartbeat(writer)
            before = world.upto()
            world.passing(LEASE_MS - 2 * MINUTE, job)
            assert world.upto() == before
        world.passing(3 * LEASE_MS, job)
        before = world.upto()
        assert not world.has_leases()
        world.passing(3 * LEASE_MS, job)
        assert world.upto() == before


@pytest.mark.parametrize("ahead_ms", [-100 * LEASE_MS, -MINUTE, 0, MINUTE, 100 * LEASE_MS])
def test_no_lease_ends_early_whatever_the_clocks_of_who_compacts(ahead_ms: int) -> None:
    world = World()
    sealed_but_for_one(world)
    granted = world.now_ms
    with world.compactor(ahead_ms) as one, world.compactor() as other:
        before = world.upto()
        while world.has_leases():
            world.passing(MAX_TICK_MS, one, other)
            assert world.now_ms - granted <= 2 * LEASE_MS + 2 * MINUTE
    assert world.now_ms - granted >= LEASE_MS
    assert world.upto() - before <= 2 * LEASE_MS // MAX_TICK_MS


def test_an_expiry_stays_overdue_when_records_come_and_a_new_one_has_its_own_time() -> None:
    abandoned = StagedChunks((), 5_000)
    state = State(
        group="g",
        upto=Offset(7),
        clock_ms=1_000,
        appended_ms=50_000,
        stages={"s": abandoned},
        lease_ends=LeaseEnds().add(name_of_stage("s"), 5_000),
    )
    sight = sight_of(None, state, 51_000)
    assert sight.overdue_ms == {5_000: 54_000}
    assert sight_of(sight, state, 99_000) is sight
    assert not sight.needs_record(53_999)
    assert not sight.needs_record(54_000)  # the log was not silent for long
    assert sight.needs_record(51_000 + MAX_TICK_MS)
    later = State(
        group="g",
        upto=Offset(8),
        clock_ms=2_000,
        appended_ms=90_000,
        stages={"s": abandoned, "t": StagedChunks((), 6_000)},
        lease_ends=LeaseEnds().add(name_of_stage("s"), 5_000),
    )
    assert sight_of(sight, later, 90_000).overdue_ms == {5_000: 54_000, 6_000: 94_000}
