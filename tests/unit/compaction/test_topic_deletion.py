"""The topics of a group go when all that was in it was dropped; its ids stay used."""

import pytest

from streams.compaction.collector import Collector
from streams.compaction.merge_execution import Worker
from streams.compaction.runner import Compaction, CompactionRequest
from streams.compaction.topic_deletion import QUIET_MS
from streams.ids import CollectionId
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryRawReader
from streams.storage.client.lifecycle import NeverReused
from streams.storage.client.reserved_names import REGISTRY
from streams.storage.client.shards import Shards
from streams.storage.description import Description
from streams.storage.storage import Storage
from streams.trace.kernel.kernel import Kernel
from tests.support.storages import given_up

TABLE = Description((("name", "VARCHAR"),), kind="table")
ONE, TWO, THREE = (CollectionId(name) for name in ("one", "two", "three"))


class World:
    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.broker = MemoryBroker(lambda: self.now_ms)
        self.storage = self.client()

    def client(self) -> Storage:
        return Storage.memory(self.broker)

    def compacted(self, later_ms: int = QUIET_MS) -> list[str]:
        """What another process removes, so much later."""
        self.now_ms += later_ms
        with self.client() as other:
            groups = [name[3:-4] for name in self.broker.topics.names() if name[-4:] == ".log"]
            other.shards.open(*groups)
            records = MemoryRawReader(self.broker.store)
            collector = Collector(other.shards, records, lambda: self.now_ms)
            worker = Worker(other.shards, Kernel(), lambda: "s")
            job = Compaction(other.shards, worker, collector, lambda: self.now_ms)
            done = job.tidy(CompactionRequest())
            assert done.failed == []
            return done.removed

    def topics(self, group: str) -> list[str]:
        return [name for name in self.broker.topics.names() if name.startswith(f"sw.{group}.")]


def test_a_group_goes_when_all_in_it_was_dropped_and_its_ids_stay_used() -> None:
    world = World()
    one = world.storage.create(ONE, TABLE, group="g")
    two = world.storage.create(TWO, TABLE, group="g")
    given_up(world.storage, one)
    assert world.compacted() == []  # the other one is there
    given_up(world.storage, two)
    assert world.compacted(QUIET_MS - 1) == []
    assert world.compacted(1) == ["g"]
    assert world.topics("g") == []
    with world.client() as fresh:
        for reader, _ in (one, two):
            id_ = reader.id
            with pytest.raises(NeverReused):
                fresh.create(id_, TABLE, group="g")
            with pytest.raises(NeverReused):
                fresh.create(id_, TABLE, group="elsewhere")
            fresh.drop(reader, whole=True)  # what is gone already is passed over
            read, write = fresh.acquire_capabilities(id_)
            assert read.frontier.is_empty
            assert write.frontier.is_empty
        fresh.create(THREE, TABLE, group="g")
        assert len(world.topics("g")) == 2
    assert world.compacted() == []
    assert world.topics(REGISTRY)


class Killed(BaseException):
    """The process ends here."""


def test_who_is_killed_before_the_topics_are_gone_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was noted already is no reason to leave the topics."""
    world = World()
    one = world.storage.create(ONE, TABLE, group="g")
    two = world.storage.create(TWO, TABLE, group="g")
    for capability in (one, two):
        given_up(world.storage, capability)

    def kill(_: Shards, group: str) -> None:
        raise Killed(group)

    with monkeypatch.context() as at_once:
        at_once.setattr(Shards, "delete", kill)
        with pytest.raises(Killed):
            world.compacted()
    assert len(world.topics("g")) == 2
    with world.client() as fresh:
        assert fresh.acquire_capabilities(ONE)[0].frontier.is_empty
        with pytest.raises(NeverReused):
            fresh.create(TWO, TABLE, group="g")
    assert world.compacted() == ["g"]
    with world.client() as fresh:
        assert fresh.acquire_capabilities(ONE)[0].frontier.is_empty


def test_a_sealed_collection_stays() -> None:
    world = World()
    _, write = world.storage.create(ONE, TABLE)
    world.storage.drop(write)
    assert world.compacted() == []
    assert len(world.topics("one")) == 2


def test_what_the_registry_does_not_know_is_left_to_who_made_it() -> None:
    world = World()
    world.storage.shards.create("u1", CollectionId("u1"), TABLE, 0)  # type: ignore[arg-type]
    world.storage.shards.drop(CollectionId("u1"))
    world.storage.create(ONE, TABLE)  # there is a registry
    assert world.compacted() == []
    assert len(world.topics("u1")) == 2


@pytest.mark.parametrize("pump", [False, True])
def test_a_client_that_still_follows_the_group_says_what_it_would_have_said(
    *, pump: bool
) -> None:
    world = World()
    broker = world.broker
    shards = Shards(
        broker.logs, broker.chunks, broker.topics, now_ms=lambda: world.now_ms, pump=pump
    )
    with Storage(shards) as storage:
        read, _ = capabilities = storage.create(ONE, TABLE)
        given_up(storage, capabilities)
        assert world.compacted() == ["one"]
        if pump:
            assert shards.wait(lambda: "one" not in shards.following.groups, 60_000)
            assert storage.status().failed == {}
        with pytest.raises(NeverReused):
            storage.create(ONE, TABLE)
        storage.drop(read, whole=True)
        assert storage.acquire_capabilities(ONE)[0].frontier.is_empty
        storage.create(TWO, TABLE)
