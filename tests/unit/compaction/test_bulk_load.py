"""A bulk load by chunks takes its time beside others that append, and compaction that runs."""

import itertools
from collections.abc import Sequence

import pytest

from schemas import chunk
from streams.compaction.collector import Collector
from streams.compaction.merge_execution import Worker
from streams.compaction.runner import Compaction, CompactionRequest
from streams.ids import CollectionId
from streams.kafka.log import ChunkRef
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryRawReader
from streams.progress import frontier
from streams.storage.client.handles import WriteCapability
from streams.storage.description import Description
from streams.storage.read import reader as read
from streams.storage.sans_io import Reclaimed
from streams.storage.storage import Storage
from streams.storage.write.update import Write
from streams.storage.write.validation import WrongRows
from streams.trace.kernel.kernel import Kernel
from tests.support.shard_clients import names, rows

TABLE = Description((("name", "VARCHAR"), ("size", "INTEGER")), kind="table")
GRACE_S = 90
LOADED, BUSY = CollectionId("loaded"), CollectionId("busy")


class World:
    """Two collections of a group: one is loaded, the other appended to each second."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.broker = MemoryBroker(lambda: self.now_ms)
        self.storage = Storage.memory(self.broker)
        capabilities = self.storage.create(LOADED, TABLE, group="both", critical=True)
        self.loading: WriteCapability = capabilities[1]
        self.hold, self.busy = self.storage.create(BUSY, TABLE, group="both", critical=True)
        numbers = itertools.count()
        shards = self.storage.shards
        worker = Worker(shards, Kernel(), lambda: f"s{next(numbers)}")
        records = MemoryRawReader(self.broker.store)
        collector = Collector(shards, records, lambda: self.now_ms, grace_ms=GRACE_S * 1_000)
        self.job = Compaction(shards, worker, collector, lambda: self.now_ms)

    def passing(self, seconds: int) -> None:
        """Time passes: an append each second, compaction each half minute."""
        for _ in range(seconds):
            self.now_ms += 1_000
            at = self.busy.frontier.time
            table = rows(f"b{at}", time=at).rename_columns(["name", "size", "time", "diff"])
            moved = self.storage.update_and_downgrade(self.busy, table, at + 1)
            assert isinstance(moved, WriteCapability)
            self.busy = moved
            self.hold = self.storage.downgrade(self.hold, frontier(at))
            if at % 30 == 29:
                done = [self.job.tidy(CompactionRequest()), self.job.merge(CompactionRequest())]
                assert [outcome.failed for outcome in done] == [[], []]

    def write(self, number: int) -> ChunkRef:
        """A chunk of the load, written to the data topic as any client may."""
        bodies = chunk.encode(rows(f"r{number}", time=number), ["name", "size"])
        shards = self.storage.shards
        topic, headers = shards.data_topic(LOADED), shards.headers(LOADED)
        [ref] = shards.chunks.write(topic, bodies, headers)
        return ref

    def link(self, chunks: Sequence[ChunkRef]) -> object:
        [one] = [Write(self.loading, None, frontier(10), tuple(chunks))]
        return self.storage._update([one])


def test_eight_chunks_over_four_minutes_count_when_they_are_staged() -> None:
    world = World()
    chunks: list[ChunkRef] = []
    for number in range(8):
        chunks.append(world.write(number))
        world.storage.stage(world.loading, "load", chunks[-1:], lease_ms=60_000)
        world.passing(30)
    world.link(chunks)
    world.storage.stage(world.loading, "load", [], lease_ms=0)
    world.passing(60)
    snapshot = read.snapshot(world.storage.shards, LOADED, 9)[0]  # type: ignore[arg-type]
    assert names(snapshot) == [f"r{number}" for number in range(8)]
    assert world.storage.shards.group_state("both").stages == {}


def test_a_slow_writer_beside_a_busy_one_is_not_refused_before_the_grace_is_over() -> None:
    """Merges of the busy collection are superseded by others: they raise no floor above it."""
    world = World()
    world.passing(60)
    chunks = [world.write(0)]
    world.passing(GRACE_S - 1)
    shards = world.storage.shards
    assert len(shards.group_state("both").superseded) <= 1, "they were let go of meanwhile"
    world.link(chunks)
    snapshot = read.snapshot(shards, LOADED, 9)[0]  # type: ignore[arg-type]
    assert names(snapshot) == ["r0"]


def test_garbage_of_several_collections_gets_its_tombstones_later() -> None:
    world = World()
    world.passing(5 * GRACE_S)
    shards = world.storage.shards
    stored = world.broker.store.partition(shards.names("both").data, 0).records
    state = shards.group_state("both")
    named = {chunk.key.encode() for chunk in state.chunks()}
    deleted = {record.key for record in stored if record.value is None}
    alive = [record for record in stored if record.key not in named | deleted]
    assert min(record.offset for record in alive) >= state.floor[0] > 3 * GRACE_S


def test_what_is_not_staged_is_reclaimed_and_refused() -> None:
    world = World()
    chunks = [world.write(0)]
    world.passing(240)
    with pytest.raises((Reclaimed, WrongRows)):  # it has a tombstone, or will have one
        world.link(chunks)
    with pytest.raises((Reclaimed, WrongRows)):  # it has a tombstone, or will have one
        world.storage.stage(world.loading, "load", chunks)


def test_a_stage_that_was_not_renewed_lets_go_of_its_chunks() -> None:
    world = World()
    chunks = [world.write(0)]
    world.storage.stage(world.loading, "load", chunks, lease_ms=60_000)
    world.passing(50)
    world.storage.stage(world.loading, "load", [], lease_ms=60_000)
    world.passing(50)
    assert "client:loaded:load" in world.storage.shards.group_state("both").stages
    world.passing(200)
    assert world.storage.shards.group_state("both").stages == {}
    with pytest.raises((Reclaimed, WrongRows)):  # it has a tombstone, or will have one
        world.link(chunks)
