"""Small tables: whole contents by one owner, read as they were written last."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.errors import InvalidUsage
from streams.ids import CapabilityId, CollectionId, Timestamp
from streams.storage.description import Description
from streams.storage.small_table import KEPT, SmallTable, TakenOver
from tests.support.collections import Collections

DESCRIPTION = Description((("id", "VARCHAR"), ("what", "VARCHAR")), kind="materialization")
NAME = CollectionId("materialize.test")


@pytest.fixture
def collections() -> Iterator[Collections]:
    fixture = Collections()
    yield fixture
    fixture.close()


def table(collections: Collections) -> SmallTable:
    return SmallTable(collections.client(), NAME, DESCRIPTION)


def test_a_table_is_made_by_its_first_owner(collections: Collections) -> None:
    reader, owner = table(collections), table(collections)
    assert not reader.find()
    owner.own()
    owner.write([("a", "1"), ("b", "2")])
    assert reader.find()
    assert sorted(reader.rows()) == [("a", "1"), ("b", "2")]


def test_the_owner_before_cannot_write(collections: Collections) -> None:
    first, second = table(collections), table(collections)
    first.own()
    first.write([("a", "1")])
    second.own()
    assert list(second.rows()) == [("a", "1")]
    with pytest.raises(TakenOver, match=r"materialize\.test has another writer"):
        first.write([("a", "2")])
    second.write([("a", "3")])
    assert list(second.rows()) == [("a", "3")]


def test_readers_are_woken_by_a_write_that_changes_nothing(collections: Collections) -> None:
    owner, reader = table(collections), table(collections)
    owner.own()
    owner.write([("a", "1")])
    assert reader.find()
    before = reader.upper
    owner.write([("a", "1")])
    assert reader.wait(before, 5_000)
    assert list(reader.rows()) == [("a", "1")]


def test_a_table_that_was_dropped_is_not_there(collections: Collections) -> None:
    owner = table(collections)
    owner.own()
    owner.write([("a", "1")])
    owner.drop()
    assert not table(collections).find()
    owner.drop()
    again = table(collections)
    again.own()
    assert list(again.rows()) == []


def test_a_table_has_a_reserved_name(collections: Collections) -> None:
    with pytest.raises(ValueError, match="orders: expected a name with one of materiali"):
        SmallTable(collections.client(), CollectionId("orders"), DESCRIPTION)


OTHER = Description((("id", "VARCHAR"),), kind="materialization")


@pytest.mark.parametrize(
    ("description", "writer"),
    [(DESCRIPTION, "a1"), (OTHER, "a1"), (OTHER, f"{NAME}.write")],
    ids=["other writer", "other both", "other columns"],
)
def test_what_a_client_created_is_no_table(
    collections: Collections, description: Description, writer: str
) -> None:
    """As an environment may have it from before the names were reserved."""
    stranger = collections.client()
    stranger.create(NAME, NAME, description, Timestamp(0), write=CapabilityId(writer))
    for use in (SmallTable.find, SmallTable.own, SmallTable.drop):
        with pytest.raises(InvalidUsage, match=r"test: expected|cannot be created"):
            use(table(collections))
    stranger.drop(NAME)
    stranger.delete(NAME)
    owner = table(collections)
    owner.own()
    assert list(owner.rows()) == []


def test_old_contents_are_forgotten_and_a_late_reader_reads_anew(
    collections: Collections,
) -> None:
    owner, reader = table(collections), table(collections)
    owner.own()
    owner.write([("n", "0")])
    assert reader.find()
    assert list(reader.rows()) == [("n", "0")]
    for number in range(1, 2 * KEPT + 2):
        owner.write([("n", str(number))])
    shards = collections.shards
    shards.open(NAME)
    assert shards.state(NAME).since.time > KEPT
    assert reader.wait(Timestamp(shards.state(NAME).upper.time - 1), 5_000)
    assert list(reader.rows()) == [("n", str(2 * KEPT + 1))]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sets(st.sampled_from("abc"), max_size=3), max_size=5), st.data())
def test_rows_are_those_of_the_last_write(writes: list[set[str]], data: st.DataObject) -> None:
    collections = Collections()
    try:
        owner, reader = table(collections), table(collections)
        owner.own()
        assert reader.find()
        for names in writes:
            owner.write([(name, name * 2) for name in names])
            if data.draw(st.booleans()):
                assert reader.wait(Timestamp(owner.upper - 1), 5_000)
                assert set(reader.rows()) == {(name, name * 2) for name in names}
    finally:
        collections.close()
