"""Storage on a real broker: the whole life cycle, by several clients, across restarts."""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from streams.ids import CollectionId, Timestamp
from streams.kafka.embedded import EmbeddedBroker
from streams.progress import EMPTY, frontier
from streams.storage import Storage
from streams.storage.client.handles import (
    FencedCapability,
    InvalidCapability,
    WriteCapability,
)
from streams.storage.client.id_registry import Directory
from streams.storage.client.lifecycle import AlreadyBound, NeverReused, NotBound, Unreadable
from streams.storage.read.options import Comparison, Operator, Options
from streams.storage.read.subscription import Delivery
from streams.storage.write.update import Write
from tests.support.storages import TABLE, contents, table, write

pytestmark = pytest.mark.integration

names = itertools.count()


@pytest.fixture
def storage(broker: EmbeddedBroker) -> Iterator[Storage]:
    with Storage.kafka(broker.bootstrap) as opened:
        yield opened


@pytest.fixture
def id_() -> CollectionId:
    return CollectionId(f"storage{next(names)}")


def test_the_whole_life_cycle(
    broker: EmbeddedBroker, storage: Storage, id_: CollectionId
) -> None:
    with pytest.raises(NotBound):
        storage.acquire_capabilities(id_)
    read, writer = storage.create(id_, TABLE)
    rows = [(f"n{n}", n, 1, 1) for n in range(1_000)]
    writer = write(storage, writer, 10, *rows)
    with Storage.kafka(broker.bootstrap) as other:  # knows nothing but the topics
        with pytest.raises(AlreadyBound):
            other.create(id_, TABLE)
        options = Options(where=(Comparison("size", Operator.LESS, 3),), columns=("name",))
        subscription = other.subscribe_at(other.downgrade(other.clone(read), 5), options)
        first = subscription.next(10_000)
        assert first is not None
        assert contents(first.updates) == {(f"n{n}", 5): 1 for n in range(3)}
        mine = other.transfer(writer)
        with pytest.raises(InvalidCapability):
            write(storage, writer, 20)
        sealed = other.update_and_downgrade(mine, table(("n0", 0, 12, -1)), EMPTY)
        assert isinstance(sealed, WriteCapability)
        later: list[Delivery] = list(subscription)
        assert later[-1].upper == EMPTY
        assert [
            contents(delivery.updates) for delivery in later if delivery.updates.num_rows
        ] == [{("n0", 12): -1}]
        other.shards.drop(id_)
    with pytest.raises(Unreadable):
        storage.subscribe_at(read)
    with pytest.raises(NeverReused):
        storage.create(id_, TABLE)
    Directory(storage.shards).retire(id_, [id_])
    storage.shards.delete(id_)
    with pytest.raises(NeverReused):
        storage.create(id_, TABLE)


def test_capabilities_outlive_the_client_that_made_them(
    broker: EmbeddedBroker, id_: CollectionId
) -> None:
    with Storage.kafka(broker.bootstrap) as one:
        read, writer = one.create(id_, TABLE, critical=True)
        write(one, writer, 10, ("a", 1, 3, 1))
    with Storage.kafka(broker.bootstrap) as two:
        downgraded = two.downgrade(read, 4, token="two")
        writer = write(two, replace(writer, frontier=frontier(10)), 20, ("b", 1, 15, 1))
        with Storage.kafka(broker.bootstrap) as zombie, pytest.raises(FencedCapability):
            zombie.heartbeat(read)
        options = Options(snapshot=False, until=Timestamp(20))
        (only,) = two.subscribe_at(downgraded, options)
        assert contents(only.updates) == {("b", 1, 15): 1}


def test_several_collections_move_in_one_record(storage: Storage) -> None:
    group = f"storage-group{next(names)}"
    ids = [CollectionId(f"{group}-{n}") for n in range(3)]
    writers = [storage.create(collection, TABLE, group=group)[1] for collection in ids]
    before = storage.shards.group_state(group).upto
    first, *rest = writers
    moved = storage.update_and_downgrade(
        first, table(("a", 1, 1, 1)), 5, Write(rest[0], None, 5), Write(rest[1], None, 5)
    )
    assert isinstance(moved, tuple)
    assert storage.shards.group_state(group).upto == before + 1
    assert [storage.shards.state(collection).upper for collection in ids] == [frontier(5)] * 3


def test_a_listener_is_woken(broker: EmbeddedBroker, id_: CollectionId) -> None:
    with Storage.kafka(broker.bootstrap) as writer, Storage.kafka(broker.bootstrap) as reader:
        read, write_capability = writer.create(id_, TABLE)
        subscription = reader.subscribe_at(read)
        deliveries: list[Delivery] = []
        waiting = threading.Thread(target=lambda: deliveries.extend(subscription), daemon=True)
        waiting.start()
        write_capability = write(writer, write_capability, 10, ("a", 1, 0, 1))
        writer.update_and_downgrade(write_capability, None, EMPTY)
        waiting.join(timeout=30)
        assert not waiting.is_alive()
        assert contents(deliveries[0].updates) == {("a", 1, 0): 1}
        assert deliveries[-1].upper == EMPTY
