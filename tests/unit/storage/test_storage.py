"""The commands of Storage over a broker in memory: life cycle, capabilities, writes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.adapter.catalog import LETTERS, Catalog
from streams.errors import InvalidUsage
from streams.ids import CapabilityId, CollectionId, Timestamp
from streams.progress import EMPTY, frontier
from streams.storage import Storage
from streams.storage.client.handles import (
    FencedCapability,
    InvalidCapability,
    NotForward,
    ReadCapability,
    WriteCapability,
    useless_read,
)
from streams.storage.client.id_registry import Directory
from streams.storage.client.lifecycle import (
    REFUSALS,
    AlreadyBound,
    Claimed,
    Command,
    Forgotten,
    NeverReused,
    NotBound,
    Phase,
    Sealed,
    Unreadable,
    phase_of,
)
from streams.storage.description import Description
from streams.storage.log.events import Body
from streams.storage.log.outcomes import Outcome
from streams.storage.sans_io import StillWritable
from tests.support.life_cycle import expect_all
from tests.support.storages import T1, T2, TABLE, Place, end, given_up, write


def test_a_collection_starts_with_since_equal_to_upper(storage: Storage) -> None:
    read, writer = storage.create(T1, TABLE, start=7)
    state = storage.shards.state(T1)
    assert read.frontier == writer.frontier == frontier(7) == state.since == state.upper
    assert all(capability.lease_ms == 15 * 60_000 for capability in state.capabilities.values())


def test_each_state_answers_each_command_with_its_own_error(storage: Storage) -> None:
    unbound = CollectionId("nobody")
    read, writer = ReadCapability(unbound, frontier(0)), WriteCapability(unbound, frontier(0))
    expect_all(storage, read, writer, Phase.UNBOUND)

    read, writer = storage.create(T1, TABLE)
    with pytest.raises(AlreadyBound, match="collection t1 is bound already"):
        storage.create(T1, TABLE)

    sealed = storage.update_and_downgrade(writer, None, EMPTY)
    assert isinstance(sealed, WriteCapability)
    assert sealed.frontier == EMPTY
    with pytest.raises(AlreadyBound):
        storage.create(T1, TABLE)
    with pytest.raises(Sealed, match="collection t1 is sealed"):
        storage.update_and_downgrade(writer, None, 10)
    with pytest.raises(Sealed):
        storage.heartbeat(writer)
    assert storage.acquire_capabilities(T1)[1].frontier == EMPTY
    assert storage.heartbeat(read) == read

    end(storage, T1)
    expect_all(storage, read, writer, Phase.FORGOTTEN)
    capabilities = storage.acquire_capabilities(T1)
    assert [capability.frontier for capability in capabilities] == [EMPTY, EMPTY]
    storage.drop(read, whole=True)


def test_the_table_of_refusals_is_what_the_header_says() -> None:
    assert set(REFUSALS.values()) == {
        NotBound, AlreadyBound, NeverReused, Sealed, Unreadable, Forgotten,
    }  # fmt: skip
    assert {command for command, phase in REFUSALS if phase is Phase.UNBOUND} == set(
        Command
    ) - {Command.CREATE}


@pytest.mark.parametrize(
    ("refused", "advice"),
    [
        (NotBound(T1), "create it first"),
        (NotBound(T1, "g"), "create it first in group g"),
        (Claimed(T1, "g"), "create it there, or choose another id"),
        (AlreadyBound(T1), "choose another id"),
        (NeverReused(T1), "choose another"),
        (Sealed(T1), "read it, or create another collection"),
        (Unreadable(T1), "read another collection"),
        (Forgotten(T1), "create another collection"),
        (InvalidCapability(T1, "it has expired"), "acquire another one"),
        (FencedCapability(T1), "stop, or acquire a capability of your own"),
    ],
)
def test_a_refusal_says_what_to_do(refused: InvalidUsage, advice: str) -> None:
    assert "collection t1" in str(refused)
    assert f": {advice}" in str(refused)


def test_an_id_is_never_used_again(place: Place, storage: Storage) -> None:
    capabilities = storage.create(T1, TABLE)
    given_up(storage, capabilities)
    for other in (TABLE, Description((("x", "BIGINT"),), kind="table")):
        with pytest.raises(NeverReused):
            storage.create(T1, other)
        with pytest.raises(NeverReused):
            storage.create(T1, other, group="elsewhere")
    # not even when its topics are gone, and for whoever has never heard of it
    Directory(storage.shards).retire(T1, [T1])
    storage.shards.delete(T1)
    for client in (storage, place.client()):
        with pytest.raises(NeverReused):
            client.create(T1, TABLE)
        capabilities = client.acquire_capabilities(T1)
        assert [capability.frontier for capability in capabilities] == [EMPTY, EMPTY]
        expect_all(client, *capabilities, Phase.FORGOTTEN)
        client.drop(capabilities[1], whole=True)


def test_two_groups_cannot_both_have_an_id(place: Place) -> None:
    one, other = place.client(), place.client()
    one.create(T1, TABLE, group="tables")
    with pytest.raises(AlreadyBound):
        other.create(T1, TABLE)
    assert not [name for name in place.broker.topics.names() if f".{T1}." in name]
    with pytest.raises(InvalidUsage, match="registry"):
        one.create(CollectionId("storage.ids"), TABLE)


def test_an_id_that_was_given_away_and_not_bound_says_so(place: Place) -> None:
    killed = place.client()
    directory = Directory(killed.shards)
    killed.shards.submit([directory.claim(T1, "tables")])
    for client in (killed, place.client()):
        with pytest.raises(NotBound, match="create it first in group tables, which has its id"):
            client.acquire_capabilities(T1)
        with pytest.raises(NotBound, match="group tables"):
            client.drop(useless_read(T1))
        with pytest.raises(Claimed, match="given to group tables, where it is not bound yet"):
            client.create(T1, TABLE)
    with pytest.raises(NotBound, match=r"tables is not bound: create it first$"):
        killed.acquire_capabilities(CollectionId("tables"))  # a group, and no id of anything
    place.client().create(T1, TABLE, group="tables")
    with pytest.raises(AlreadyBound):
        killed.create(T1, TABLE)


def test_the_names_of_the_catalog_are_nobody_elses(storage: Storage) -> None:
    """Its objects come and go without the registry, topics and all."""
    catalog = Catalog(last_number=6)
    for kind in LETTERS:
        id_ = catalog.next_id(kind)
        with pytest.raises(
            InvalidUsage, match="7: names of s, u, r, k, e, i or g and a number are reserved"
        ):
            storage.create(id_, TABLE)
        with pytest.raises(InvalidUsage, match="choose another name"):
            storage.create(T1, TABLE, group=id_)
        assert storage.shards.identity(id_) is None
    with pytest.raises(InvalidUsage, match="choose another name"):
        storage.create(T1, TABLE, group="g7")
    for other in ("u", "u7x", "t7", "U7"):
        storage.create(CollectionId(other), TABLE)


@pytest.mark.parametrize("name", ["materializations.specs", "materialize.orders"])
def test_the_names_of_small_tables_are_nobody_elses(storage: Storage, name: str) -> None:
    """The service of materializations starts the programs that such a table names."""
    with pytest.raises(InvalidUsage, match="are reserved for tables of the system: choose"):
        storage.create(CollectionId(name), TABLE)
    with pytest.raises(InvalidUsage, match="are reserved for tables of the system: choose"):
        storage.create(T1, TABLE, group=name)
    assert storage.shards.identity(name) is None
    storage.create(CollectionId("materialized.orders"), TABLE)


@pytest.mark.parametrize("kind", ["table", "source"])
def test_one_of_two_creators_has_the_id(place: Place, kind: str) -> None:
    one, other = place.client(), place.client()
    description = replace(TABLE, kind=kind)
    other.shards.make(T1)
    submit = other.shards.submit

    def late(events: Sequence[tuple[str, Body]]) -> list[Outcome]:
        if any(group == T1 for group, _ in events):
            one.create(T1, description)  # at the last moment
        return submit(events)

    other.shards.submit = late  # type: ignore[method-assign]
    with pytest.raises(AlreadyBound):
        other.create(T1, description)
    live = one.shards.state(T1).capabilities
    assert len(live) == 2
    assert ("t1.write" in live) == (kind == "source")


def test_the_system_keeps_the_writing_of_what_it_feeds(storage: Storage) -> None:
    read, writer = storage.create(T1, Description((("x", "BIGINT"),), kind="source"))
    assert writer.frontier == EMPTY
    assert storage.acquire_capabilities(T1)[1].frontier == EMPTY
    names = set(storage.shards.state(T1).capabilities)
    assert {read.name, "t1.write"} < names
    with pytest.raises(InvalidCapability, match="empty frontier"):
        storage.update_and_downgrade(writer, None, 10)


def test_what_the_system_feeds_is_made_by_one_record(place: Place) -> None:
    """Whoever is killed right after it has left the collection as it has to be."""
    storage = place.client()
    storage.create(T2, TABLE, group="g")
    ends = [storage.shards.logs.bounds(storage.shards.names("g").log)[1]]
    read, _ = storage.create(T1, replace(TABLE, kind="source"), group="g")
    ends.append(storage.shards.logs.bounds(storage.shards.names("g").log)[1])
    assert ends[1] - ends[0] == 1
    capabilities = storage.shards.state(T1).capabilities
    assert capabilities.keys() == {"t1.write", read.name}
    assert capabilities[CapabilityId("t1.write")].lease_ms is None
    assert capabilities[read.name].lease_ms == 15 * 60_000


def test_since_and_upper_follow_the_meets(storage: Storage) -> None:
    read, writer = storage.create(T1, TABLE)
    other_read, other = storage.acquire_capabilities(T1)
    writer = write(storage, writer, 100, ("a", 1, 3, 1))
    assert storage.shards.state(T1).upper == frontier(0)
    other = storage.downgrade(other, 60)
    assert storage.shards.state(T1).upper == frontier(60)
    read = storage.downgrade(read, 50)
    assert storage.shards.state(T1).since == frontier(0)
    storage.drop(other_read)
    assert storage.shards.state(T1).since == frontier(50)
    storage.drop(other)
    assert storage.shards.state(T1).upper == frontier(100)
    storage.drop(read)  # none is left: since stays
    assert storage.shards.state(T1).since == frontier(50)
    storage.drop(writer)  # the last writer
    assert storage.shards.state(T1).upper == EMPTY


def test_whoever_presents_a_capability_has_the_right(place: Place, storage: Storage) -> None:
    _, writer = storage.create(T1, TABLE)
    other = place.client()
    writer = write(other, writer, 10, ("a", 1, 3, 1))
    assert write(storage, writer, 20).frontier == frontier(20)


def test_a_clone_is_a_right_of_its_own(storage: Storage) -> None:
    read, writer = storage.create(T1, TABLE)
    second = storage.clone(writer)
    assert second.frontier == writer.frontier
    assert second.name != writer.name
    write(storage, writer, 10)
    assert storage.shards.state(T1).upper == frontier(0)
    write(storage, second, 10)
    assert storage.shards.state(T1).upper == frontier(10)
    leased = storage.clone(read, lease_ms=500)
    assert storage.shards.state(T1).capabilities[leased.name].lease_ms == 500


def test_after_a_transfer_the_old_name_is_void(storage: Storage) -> None:
    _, writer = storage.create(T1, TABLE)
    successor = storage.transfer(writer)
    with pytest.raises(InvalidCapability, match="passed on"):
        write(storage, writer, 10)
    assert write(storage, successor, 10).frontier == frontier(10)


def test_an_expired_capability_is_refused(place: Place, storage: Storage) -> None:
    read, writer = storage.create(T1, TABLE)
    short = storage.clone(read, lease_ms=500)
    place.now_ms += 400
    short = storage.heartbeat(short)
    place.now_ms += 400
    assert storage.downgrade(short, 0) == short
    place.now_ms += 600
    for exercise in (storage.heartbeat, storage.clone, storage.transfer):
        with pytest.raises(InvalidCapability, match="has expired"):
            exercise(short)
    with pytest.raises(InvalidCapability):
        storage.downgrade(short, 5)
    storage.drop(short)
    assert storage.heartbeat(read) == read
    assert storage.heartbeat(writer) == writer


def test_writing_renews_a_lease(place: Place) -> None:
    storage = place.client(lease_ms=1_000)
    read, writer = storage.create(T1, TABLE)
    for upper in range(1, 10):
        place.now_ms += 300
        writer = write(storage, writer, upper)
    with pytest.raises(InvalidCapability, match="has expired"):
        storage.heartbeat(read)
    read, second = storage.acquire_capabilities(T1)  # what has expired is recovered
    assert second.frontier == writer.frontier


def test_a_critical_capability_never_expires(place: Place, storage: Storage) -> None:
    read, writer = storage.create(T1, TABLE, critical=True)
    for _ in range(50):
        place.now_ms += 60_000
        storage.heartbeat(read)
    assert write(storage, writer, 10).frontier == frontier(10)


def test_a_token_fences_whoever_held_a_critical_capability(place: Place) -> None:
    old, new = place.client(), place.client()
    read, writer = old.create(T1, TABLE, critical=True)
    mine = new.downgrade(read, 0, token="epoch 2")
    assert new.downgrade(mine, 0) == mine
    for exercise in (old.heartbeat, old.clone, old.transfer, old.drop):
        with pytest.raises(FencedCapability):
            exercise(read)
    with pytest.raises(FencedCapability):
        old.downgrade(read, 5, token="epoch 1")
    fenced = new.downgrade(writer, 3, token="epoch 2")
    with pytest.raises(FencedCapability):
        old.update_and_downgrade(replace(fenced, token=""), None, 10)
    assert write(new, fenced, 10).token == "epoch 2"
    leased, _ = new.acquire_capabilities(T1)
    with pytest.raises(InvalidUsage, match="critical capability only"):
        new.downgrade(leased, 0, token="no")
    successor, _ = new.acquire_capabilities(T1, critical=True, token="t")
    assert new.heartbeat(successor) == successor
    with pytest.raises(FencedCapability):
        new.heartbeat(replace(successor, token="u"))


def test_frontiers_move_forward_only(place: Place, storage: Storage) -> None:
    read, writer = storage.create(T1, TABLE)
    writer = write(storage, writer, 10)
    later = storage.downgrade(read, 5)
    for old in (later, read):  # even where the holder does not know how far it was moved
        with pytest.raises(NotForward):
            storage.downgrade(old, 4)
    with pytest.raises(NotForward, match=r"expected a frontier beyond \{10\}, actual \{9\}"):
        storage.update_and_downgrade(writer, None, 9)
    assert storage.downgrade(later, EMPTY).frontier == EMPTY
    with pytest.raises(InvalidCapability):
        storage.heartbeat(later)


def test_foreign_capabilities_are_refused_by_what_they_are(storage: Storage) -> None:
    read, writer = storage.create(T1, TABLE, group="g")
    _, other = storage.create(T2, TABLE, group="g")
    with pytest.raises(InvalidCapability, match="it is one to collection t2"):
        write(storage, replace(writer, name=other.name), 10)
    with pytest.raises(InvalidCapability, match="it is not a write capability"):
        write(storage, replace(writer, name=read.name), 10)
    with pytest.raises(InvalidCapability, match="it is not a read capability"):
        storage.subscribe_at(replace(read, name=writer.name))
    with pytest.raises(InvalidCapability, match="never granted"):
        storage.heartbeat(replace(read, name=CapabilityId("guessed")))


def test_an_id_that_no_topic_can_bear_is_refused() -> None:
    client = Place().client()
    for id_ in ("x/y", "ü", "x" * 250):
        with pytest.raises(InvalidUsage):
            client.create(CollectionId(id_), TABLE)
        with pytest.raises(NotBound):
            client.acquire_capabilities(CollectionId(id_))


def test_a_collection_ends_with_the_last_of_its_read_capabilities(
    place: Place, storage: Storage
) -> None:
    """What others hold they can read, whoever gives the collection up."""
    read, writer = storage.create(T1, TABLE)
    writer = write(storage, writer, 10, ("a", 1, 3, 1))
    other = place.client()
    theirs, writing = other.acquire_capabilities(T1, critical=True)
    leased = other.clone(theirs, lease_ms=1_000)
    storage.drop(writer)
    other.drop(writing)
    storage.drop(read, whole=True)
    storage.drop(read, whole=True)  # once more changes nothing
    assert other.subscribe_at(theirs).poll() is not None
    assert other.heartbeat(theirs) == theirs
    other.drop(theirs)
    assert other.heartbeat(leased) == leased  # nor does a reader end it who is not the last
    place.now_ms += 2_000
    with pytest.raises(Forgotten):
        other.heartbeat(leased)  # the lease ends: nobody reads any more
    assert phase_of(other.shards.state(T1)) is Phase.FORGOTTEN


def test_a_collection_that_nobody_gave_up_outlives_its_readers(storage: Storage) -> None:
    read, writer = storage.create(T1, TABLE)
    storage.drop(read)
    write(storage, writer, 10)
    assert storage.acquire_capabilities(T1)[0].frontier == frontier(0)


def test_nobody_gives_up_what_another_writes(place: Place, storage: Storage) -> None:
    """Who knows an id may acquire capabilities; they used to end the table of its writer."""
    read, writer = storage.create(T1, TABLE)
    writer = storage.transfer(writer)
    storage.drop(read)
    other = place.client()
    theirs, writing = other.acquire_capabilities(T1)
    for mine in (theirs, writing):
        with pytest.raises(StillWritable, match="others may write to it"):
            other.drop(mine, whole=True)
    other.drop(theirs)
    other.drop(writing)
    writer = write(storage, writer, 10, ("a", 1, 3, 1))
    storage.update_and_downgrade(writer, None, EMPTY)
    assert phase_of(storage.shards.state(T1)) is Phase.SEALED  # nor is it given up by the end


def test_the_only_writer_gives_up_what_others_read(place: Place, storage: Storage) -> None:
    read, writer = storage.create(T1, TABLE)
    other = place.client()
    theirs, writing = other.acquire_capabilities(T1)
    other.drop(writing)
    storage.drop(read)
    storage.drop(writer, whole=True)
    assert other.heartbeat(theirs) == theirs
    other.drop(theirs)
    assert phase_of(other.shards.state(T1)) is Phase.FORGOTTEN


def test_who_holds_nothing_ends_nothing(place: Place, storage: Storage) -> None:
    read, writer = storage.create(T1, TABLE)
    for foreign in (replace(read, name=CapabilityId("guessed")), useless_read(T1)):
        with pytest.raises(InvalidCapability):
            place.client().drop(foreign, whole=True)
    u1 = CollectionId("u1")
    shards = storage.shards
    shards.create("u1", u1, TABLE, Timestamp(0))
    mine, _ = storage.acquire_capabilities(u1)
    with pytest.raises(InvalidUsage, match="drop it in SQL"):
        storage.drop(mine, whole=True)
    assert phase_of(shards.state(u1)) is Phase.BOUND
    assert storage.heartbeat(writer) == writer
