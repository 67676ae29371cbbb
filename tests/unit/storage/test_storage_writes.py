"""What is written through `Storage`: one or many collections, races, rows and their counts."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from streams.errors import InvalidUsage
from streams.ids import CapabilityId, CollectionId
from streams.progress import frontier
from streams.storage import Storage
from streams.storage import storage as storage_module
from streams.storage.client.handles import InvalidCapability, WriteCapability
from streams.storage.client.lifecycle import Sealed
from streams.storage.log.events import Reclaim
from streams.storage.log.outcomes import UpperMismatch
from streams.storage.sans_io import Recount
from streams.storage.write.update import NothingBetween, RepeatedCapability, Write
from streams.storage.write.validation import NegativeMultiplicity, OutsideInterval, WrongRows
from tests.support.storages import T1, T2, TABLE, Place, contents, table, write


def test_a_lost_race_is_a_value(place: Place, storage: Storage) -> None:
    _, writer = storage.create(T1, TABLE)
    write(storage, writer, 10, ("a", 1, 3, 1))
    lost = place.client().update_and_downgrade(writer, table(("b", 1, 3, 1)), 12)
    assert lost == UpperMismatch(frontier(10), T1)
    assert storage.update_and_downgrade(writer, None, 0) == lost  # a heartbeat tells it too


def test_what_an_update_may_not_be(storage: Storage) -> None:
    _, writer = storage.create(T1, TABLE)
    writer = write(storage, writer, 10)
    with pytest.raises(OutsideInterval, match=r"beyond \{10\} and not beyond \{20\}, actual 9"):
        write(storage, writer, 20, ("a", 1, 9, 1), ("a", 1, 12, 1))
    with pytest.raises(OutsideInterval, match="actual 20"):
        write(storage, writer, 20, ("a", 1, 20, 1))
    with pytest.raises(NothingBetween):
        write(storage, writer, 10, ("a", 1, 10, 1))
    assert write(storage, writer, 10) == writer  # empty and nowhere to go: a heartbeat
    good = table(("a", 1, 12, 1))
    assert storage.shards.state(T1).batches.count == 1
    for wrong, why in [
        (good.rename_columns(["name", "x", "time", "diff"]), "expected columns"),
        (good.drop_columns(["size"]), "expected columns"),
        (good.set_column(1, "size", pa.array(["1"])), "column size: expected int32"),
        (good.set_column(2, "time", pa.nulls(1, pa.int64())), "column time: expected no NULL"),
    ]:
        with pytest.raises(WrongRows, match=why):
            storage.update_and_downgrade(writer, wrong, 20)
    assert write(storage, writer, 20, ("a", None, 12, 1)).frontier == frontier(20)
    assert isinstance(
        storage.update_and_downgrade(
            replace(writer, frontier=frontier(20)),
            good.rename_columns(["c0", "c1", "time", "diff"]).slice(0, 0),
            30,
        ),
        WriteCapability,
    )


def test_required_columns_hold_no_null(storage: Storage) -> None:
    description = replace(TABLE, required=("size",))
    _, writer = storage.create(T1, description)
    with pytest.raises(WrongRows, match="column size: expected no NULL"):
        write(storage, writer, 10, ("a", None, 3, 1))
    write(storage, writer, 10, (None, 1, 3, 1))


def test_several_collections_of_a_group_all_or_none(place: Place, storage: Storage) -> None:
    _, one = storage.create(T1, TABLE, group="g")
    _, two = storage.create(T2, TABLE, group="g")
    before = storage.shards.group_state("g").upto
    both = storage.update_and_downgrade(
        one, table(("a", 1, 3, 1)), 10, Write(two, table(("b", 2, 3, 1)), 10)
    )
    assert isinstance(both, tuple)
    assert storage.shards.group_state("g").upto == before + 1
    one, two = both
    late = replace(two, frontier=frontier(5))
    lost = storage.update_and_downgrade(one, table(("c", 1, 11, 1)), 20, Write(late, None, 20))
    assert lost == UpperMismatch(frontier(10), T2)
    assert [storage.shards.state(collection).upper for collection in (T1, T2)] == [
        frontier(10)
    ] * 2
    with pytest.raises(OutsideInterval):
        storage.update_and_downgrade(
            one, table(("c", 1, 11, 1)), 20, Write(two, table(("c", 1, 21, 1)), 20)
        )
    _, apart = storage.create(CollectionId("apart"), TABLE)
    with pytest.raises(InvalidUsage, match="one group"):
        storage.update_and_downgrade(one, None, 20, Write(apart, None, 20))
    missing = replace(two, name=CapabilityId("gone"))
    with pytest.raises(InvalidCapability, match="never granted"):
        storage.update_and_downgrade(one, None, 20, Write(missing, None, 20))


def test_a_heartbeat_of_several_is_valid_for_each(place: Place, storage: Storage) -> None:
    _, one = storage.create(T1, TABLE, group="g")
    _, two = storage.create(T2, TABLE, group="g")
    assert storage.update_and_downgrade(one, None, 0, Write(two, None, 0)) == (one, two)
    write(place.client(), two, 7)
    lost = storage.update_and_downgrade(one, None, 0, Write(two, None, 0))
    assert lost == UpperMismatch(frontier(7), T2)
    place.client().drop(two)
    with pytest.raises(Sealed):
        storage.update_and_downgrade(one, None, 0, Write(two, None, 0))


def test_time_passes_for_many_idle_tables_in_one_record(place: Place) -> None:
    storage = place.client()
    ids = [CollectionId(f"idle{number}") for number in range(40)]
    writers = [storage.create(collection, TABLE, group="g")[1] for collection in ids]
    log = storage.shards.names("g").log
    for upper in (10, 20, 30):  # leases are due at the second, and are over at the third
        place.now_ms += 8 * 60_000
        _, before = storage.shards.logs.bounds(log)
        also = [Write(capability, None, upper) for capability in writers[1:]]
        moved = storage.update_and_downgrade(writers[0], None, upper, *also)
        assert isinstance(moved, tuple)
        writers = list(moved)
        assert storage.shards.logs.bounds(log)[1] == before + 1
        for _ in range(20):  # the log's clock moves by its records, half a minute at most
            place.now_ms += 60_000
            storage.shards.submit([("g", Reclaim({}))])
    assert {storage.shards.state(collection).upper for collection in ids} == {frontier(30)}


def test_a_heartbeat_beside_a_write_counts_with_it(place: Place) -> None:
    storage, other = place.client(), place.client()
    _, one = storage.create(T1, TABLE, group="g")
    _, two = storage.create(T2, TABLE, group="g")
    beat = Write(two, None, two.frontier)
    rows = table(("a", 1, 3, 1))
    place.now_ms += 10 * 60_000
    moved = storage.update_and_downgrade(one, rows, 10, beat)
    assert moved == (replace(one, frontier=frontier(10)), two)
    place.now_ms += 10 * 60_000
    storage.heartbeat(two)  # its lease began anew
    meanwhile(storage, lambda: other.drop(two))
    with pytest.raises(Sealed):
        storage.update_and_downgrade(moved[0], None, 20, beat)
    assert storage.shards.state(T1).upper == frontier(10)


def test_a_heartbeat_that_stands_elsewhere_loses_for_all(place: Place) -> None:
    storage, other = place.client(), place.client()
    _, one = storage.create(T1, TABLE, group="g")
    _, two = storage.create(T2, TABLE, group="g")
    write(other, two, 5)
    beat = Write(two, None, two.frontier)
    lost = storage.update_and_downgrade(one, table(("a", 1, 3, 1)), 10, beat)
    assert lost == UpperMismatch(frontier(5), T2)
    assert storage.shards.state(T1).upper == frontier(0)


def test_a_capability_is_named_twice_only_if_its_writes_chain(storage: Storage) -> None:
    read, writer = storage.create(T1, TABLE)
    again = Write(writer, table(("b", 1, 3, 1)), 10)
    with pytest.raises(RepeatedCapability, match=r"expected its next write from \{10\} on"):
        storage.update_and_downgrade(writer, table(("a", 1, 3, 1)), 10, again)
    assert storage.shards.state(T1).upper == frontier(0)
    ten = replace(writer, frontier=frontier(10))
    after = Write(ten, table(("b", 1, 13, 1)), 20)
    beat = Write(replace(writer, frontier=frontier(20)), None, 20)
    moved = storage.update_and_downgrade(writer, table(("a", 1, 3, 1)), 10, after, beat)
    assert isinstance(moved, tuple)
    assert moved[-1] == replace(writer, frontier=frontier(20))
    delivery = storage.subscribe_at(storage.downgrade(read, 15)).poll()
    assert delivery is not None
    assert contents(delivery.updates) == {("a", 1, 15): 1, ("b", 1, 15): 1}


def test_large_updates_are_split(storage: Storage) -> None:
    read, writer = storage.create(T1, TABLE)
    rows = [(f"{n:0>100}" + str(hash(n) ** 5), n, 3, 1) for n in range(60_000)]
    write(storage, writer, 10, *rows)
    (batch,) = storage.shards.state(T1).batches
    assert len(batch.chunks) > 1
    delivery = storage.subscribe_at(storage.downgrade(read, 9)).poll()
    assert delivery is not None
    assert delivery.updates.num_rows == len(rows)


def test_counts_below_zero_are_refused_on_request(place: Place) -> None:
    storage = place.client(checks_counts=True)
    read, writer = storage.create(T1, TABLE)
    writer = write(storage, writer, 10, ("a", 1, 3, 2), ("a", 1, 5, -1))
    with pytest.raises(NegativeMultiplicity, match=r"row \(a, 1\) .* -1 times at 12"):
        write(storage, writer, 20, ("a", 1, 12, -2), ("a", 1, 15, 5))
    writer = write(storage, writer, 20, ("a", 1, 12, -3), ("a", 1, 12, 2), ("b", 1, 12, 1))
    writer = write(storage, writer, 30)
    plain = place.client()
    write(plain, writer, 40, ("z", 1, 30, -1))  # a client that does not ask for it
    read = storage.downgrade(read, 35)
    delivery = storage.subscribe_at(read).poll()
    assert delivery is not None
    assert contents(delivery.updates) == {("b", 1, 35): 1, ("z", 1, 35): -1}


def test_a_count_takes_what_others_wrote(place: Place) -> None:
    first, second = place.client(checks_counts=True), place.client(checks_counts=True)
    _, writer = first.create(T1, TABLE)
    second.heartbeat(writer)  # from here on it follows, and is not told
    writer = write(first, writer, 10, ("a", 1, 3, 1))
    writer = write(second, writer, 20, ("a", 1, 12, -1))
    with pytest.raises(NegativeMultiplicity):
        write(first, writer, 30, ("a", 1, 22, -1))


def test_of_two_that_take_back_the_same_row_one_is_refused(place: Place) -> None:
    first, second = place.client(checks_counts=True), place.client(checks_counts=True)
    _, one = first.create(T1, TABLE)
    one = write(first, one, 10, ("a", 1, 3, 1))
    two = second.clone(one)
    meanwhile(second, lambda: write(first, one, 20, ("a", 1, 12, -1)))
    with pytest.raises(NegativeMultiplicity):
        write(second, two, 20, ("a", 1, 12, -1))
    write(second, two, 20, ("b", 1, 12, 1))


def meanwhile(client: Storage, act: Callable[[], object]) -> None:
    """Do something once, right before the client appends."""
    logs, acts = client.shards.logs, [act]
    append = logs.append_each

    def late(values: object, stragglers_ms: int) -> object:
        if acts:
            acts.pop()()
        return append(values, stragglers_ms)  # type: ignore[arg-type]  # passed on as it is

    logs.append_each = late  # type: ignore[method-assign,assignment]  # a race, made


def test_the_writes_of_one_command_are_counted_together(place: Place) -> None:
    storage = place.client(checks_counts=True)
    _, one = storage.create(T1, TABLE)
    one = write(storage, one, 10, ("a", 1, 3, 1))
    two = storage.clone(one)
    both = Write(two, table(("a", 1, 12, -1)), 20)
    with pytest.raises(NegativeMultiplicity):
        storage.update_and_downgrade(one, table(("a", 1, 12, -1)), 20, both)
    more = Write(two, table(("a", 1, 12, 1)), 20)
    moved = storage.update_and_downgrade(one, table(("a", 1, 12, -2)), 20, more)
    assert not isinstance(moved, UpperMismatch)


def test_a_lost_race_is_not_taken_for_a_wrong_count(place: Place) -> None:
    first, second = place.client(), place.client(checks_counts=True)
    _, writer = first.create(T1, TABLE)
    writer = write(first, writer, 10, ("a", 1, 3, 1))
    write(first, writer, 20, ("a", 1, 12, -1))
    lost = second.update_and_downgrade(writer, table(("a", 1, 12, -1)), 20)
    assert lost == UpperMismatch(frontier(20), T1)


def test_a_write_that_others_are_always_faster_than_ends(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to be counted again for ever."""
    monkeypatch.setattr(storage_module, "TRIES", 3)
    first, second = place.client(), place.client(checks_counts=True)
    _, one = first.create(T1, TABLE)
    two = second.clone(one)
    capabilities = [one]
    logs = second.shards.logs
    append = logs.append_each

    def late(values: object, stragglers_ms: int) -> object:
        upper = capabilities[0].frontier.time
        logs.append_each = append  # type: ignore[method-assign]  # others write as ever
        capabilities[0] = write(first, capabilities[0], upper + 1, ("x", 1, upper, 1))
        logs.append_each = late  # type: ignore[method-assign,assignment]  # a race, made
        return append(values, stragglers_ms)  # type: ignore[arg-type]  # passed on as it is

    logs.append_each = late  # type: ignore[method-assign,assignment]  # as above
    with pytest.raises(Recount):
        write(second, two, 100, ("a", 1, 50, 1))
    assert capabilities[0].frontier.time == 3
