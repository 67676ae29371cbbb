"""Whose topics are gone: one that was dropped says so, one that lost its log says that."""

from collections.abc import Callable

import pytest

from streams.errors import Determinate, Indeterminate, InvalidUsage
from streams.ids import CollectionId, Timestamp
from streams.kafka.log import Stored
from streams.kafka.memory.faulty import Fault, FaultyLogs, Records
from streams.progress import EMPTY, frontier
from streams.storage import Storage
from streams.storage.client.group import is_lost
from streams.storage.client.handles import ReadCapability, WriteCapability
from streams.storage.client.id_registry import Directory, made_entry
from streams.storage.client.lifecycle import Forgotten, NeverReused, NotBound, Unreadable
from streams.storage.client.reserved_names import REGISTRY
from streams.storage.client.shards import Shards
from streams.storage.log.events import write_capability
from tests.support.storages import T1, T2, TABLE, Place, end, write

U1 = CollectionId("u1")


def make(place: Place, id_: CollectionId) -> Storage:
    """A collection, and the client that made it: of the catalog without the registry."""
    maker = place.client()
    if id_ == U1:
        maker.shards.create(U1, U1, TABLE, Timestamp(0))
    else:
        maker.create(id_, TABLE)
    return maker


def remove(place: Place, id_: CollectionId) -> None:
    """Another process drops the collection, and deletes its topics."""
    with place.client() as other:
        end(other, id_)
        Directory(other.shards).retire(id_, [id_])
        other.shards.delete(id_)


def delete_by_force(place: Place, id_: CollectionId) -> None:
    names = place.client().shards.names(id_)
    place.broker.topics.delete([names.log, names.data])


Command = Callable[[Storage, ReadCapability, WriteCapability], object]
REFUSED: dict[str, tuple[type[InvalidUsage], Command]] = {
    "create": (NeverReused, lambda one, read, write_: one.create(read.id, TABLE)),
    "subscribe": (Unreadable, lambda one, read, write_: one.subscribe_at(read)),
    "update": (Forgotten, lambda one, read, write_: write(one, write_, 5, ("a", 1, 3, 1))),
    "pass time": (Forgotten, lambda one, read, write_: write(one, write_, 5)),
    "stage": (Forgotten, lambda one, read, write_: one.stage(write_, "s", ())),
    "clone": (Forgotten, lambda one, read, write_: one.clone(read)),
    "transfer": (Forgotten, lambda one, read, write_: one.transfer(write_)),
    "downgrade": (Forgotten, lambda one, read, write_: one.downgrade(read, 3)),
    "heartbeat": (Forgotten, lambda one, read, write_: one.heartbeat(write_)),
}


@pytest.mark.parametrize("id_", [U1, T1])
@pytest.mark.parametrize("is_fresh", [True, False])
@pytest.mark.parametrize("command", ["acquire", "drop", *REFUSED])
def test_what_was_dropped_says_so_when_its_topics_are_gone(
    place: Place, id_: CollectionId, command: str, *, is_fresh: bool
) -> None:
    """Also to a client that has read nothing since before the drop."""
    make(place, id_)
    old = place.client()
    read, writer = old.acquire_capabilities(id_)
    if id_ == U1:
        writer = WriteCapability(id_, frontier(0), write_capability(id_))
    remove(place, id_)
    client = place.client() if is_fresh else old
    if command == "acquire":
        fronts = [capability.frontier for capability in client.acquire_capabilities(id_)]
        assert fronts == [EMPTY, EMPTY]
    elif command == "drop":
        client.drop(read)
    else:
        refusal, ask = REFUSED[command]
        with pytest.raises(refusal):
            ask(client, read, writer)
    assert client.status().failed == {}


@pytest.mark.parametrize("is_made_anew", [False, True])
@pytest.mark.parametrize("is_fresh", [True, False])
def test_a_log_that_somebody_deleted_is_lost_and_not_dropped(
    place: Place, *, is_fresh: bool, is_made_anew: bool
) -> None:
    make(place, T1)
    client = place.client()
    read, writer = client.acquire_capabilities(T1)
    log = client.shards.names(T1).log
    delete_by_force(place, T1)
    if is_made_anew:
        place.client().shards.make(T1)
    asks: list[Callable[[Storage], object]] = [
        lambda one: one.acquire_capabilities(T1),
        lambda one: one.heartbeat(writer),
        lambda one: one.subscribe_at(read),
        lambda one: one.create(T1, TABLE),
        lambda one: one.create(T1, TABLE, group="elsewhere"),
    ]
    for ask in asks:
        one = place.client() if is_fresh else client
        with pytest.raises((Determinate, Indeterminate), match=log) as raised:
            ask(one)
        assert is_lost(raised.value) or not is_fresh
    write(client, client.create(T2, TABLE)[1], 5, ("a", 1, 3, 1))  # others go on


def test_what_the_catalog_never_dropped_is_not_said_to_be_dropped(place: Place) -> None:
    make(place, U1)
    make(place, T1)
    delete_by_force(place, U1)
    with pytest.raises(NotBound):
        place.client().acquire_capabilities(U1)


def test_a_lookup_of_what_is_there_does_not_ask_the_registry(place: Place) -> None:
    """It would grow with all that was ever dropped."""
    make(place, T1)
    make(place, U1)
    client = place.client()
    client.acquire_capabilities(U1)
    assert client.shards.groups() == (U1,)


def test_what_is_retired_already_is_not_written_again(place: Place) -> None:
    maker = make(place, U1)
    maker.create(T1, TABLE)
    directory = Directory(maker.shards)
    log = maker.shards.names(REGISTRY).log
    for _ in range(2):
        directory.retire(U1, [U1])
        directory.retire(T1, [T1])
    end_offset = maker.shards.logs.bounds(log)[1]
    Directory(place.client().shards).retire(U1, [U1])
    assert maker.shards.logs.bounds(log)[1] == end_offset == 4  # two are made, two dropped


def test_what_is_retired_costs_the_registry_its_id_alone(place: Place) -> None:
    maker = make(place, T1)
    directory = Directory(maker.shards)
    for number in range(2, 40):
        id_ = CollectionId(f"u{number}")
        directory.retire(id_, [id_])
    collections = maker.shards.group_state(REGISTRY).collections
    assert set(collections.live) == {"id:t1"}
    assert len(collections.dropped) == 38


@pytest.mark.parametrize("is_entered", [False, True])
def test_who_is_killed_while_it_retires_is_followed_by_another(
    place: Place, *, is_entered: bool
) -> None:
    """Until the topics are deleted their log answers; the next who removes goes on."""
    make(place, U1)
    killed = place.client()
    end(killed, U1)
    if is_entered:  # and not yet dropped
        killed.shards.make(REGISTRY)
        entry = made_entry(U1, U1, killed.shards.identity(U1) or "")
        killed.shards.submit([(REGISTRY, entry)])
    with place.client() as fresh:
        assert fresh.acquire_capabilities(U1)[0].frontier == EMPTY
    remove(place, U1)
    with place.client() as fresh:
        assert fresh.acquire_capabilities(U1)[0].frontier == EMPTY


def test_a_copy_of_an_entry_that_comes_late_revives_no_id() -> None:
    """A record in doubt is sent again: it may come after whatever was sent behind it."""
    place = Place()
    maker = make(place, U1)
    directory = Directory(maker.shards)
    topic_id = maker.shards.identity(U1) or ""
    directory.retire(U1, [U1])
    maker.shards.submit([(REGISTRY, made_entry(U1, U1, topic_id))])
    entry = directory.registered(U1)
    assert entry is not None
    assert entry.is_retired


def test_a_registry_that_fails_hides_no_other_failure(place: Place) -> None:
    make(place, T1)
    client = place.client()
    _, writer = client.acquire_capabilities(T1)
    names = client.shards.names(T1)
    delete_by_force(place, T1)
    place.broker.logs.append([(client.shards.names(REGISTRY).log, b"no event")])
    with pytest.raises(Determinate, match=names.log):
        client.heartbeat(writer)


class DeletedMeanwhile(FaultyLogs):
    """The logs of a client: at its next append, another deletes the collection just before.

    The client cannot know whether its record was written, as librdkafka's producer cannot when
    the topic of a message in flight is deleted.
    """

    def __init__(self, place: Place, id_: CollectionId) -> None:
        super().__init__(place.broker.logs)
        self.is_armed = False
        self._place, self._id = place, id_

    def append_each(self, records: Records, stragglers_ms: int) -> tuple[Stored, ...]:
        if self.is_armed:
            self.is_armed = False
            remove(self._place, self._id)
            self.plan([Fault.INSTEAD])
        return super().append_each(records, stragglers_ms)


UNWRITTEN = {"create", "subscribe"}
"""Commands that append nothing to the log of a collection that exists."""


@pytest.mark.parametrize("id_", [U1, T1])
@pytest.mark.parametrize("command", ["acquire", "drop", *sorted(REFUSED.keys() - UNWRITTEN)])
def test_a_write_to_a_log_that_is_deleted_meanwhile_is_answered_by_its_drop(
    id_: CollectionId, command: str
) -> None:
    place = Place()
    maker, broker = make(place, id_), place.broker
    read, writer = maker.acquire_capabilities(id_)
    logs = DeletedMeanwhile(place, id_)
    late = Storage(Shards(logs, broker.chunks, broker.topics, now_ms=lambda: place.now_ms))
    late.heartbeat(writer)
    logs.is_armed = True
    if command == "acquire":
        assert [capability.frontier for capability in late.acquire_capabilities(id_)] == [
            EMPTY,
            EMPTY,
        ]
    elif command == "drop":
        late.drop(writer)
    else:
        kind, act = REFUSED[command]
        with pytest.raises(kind):
            act(late, read, writer)
