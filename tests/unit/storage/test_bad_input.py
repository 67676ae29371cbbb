"""What no command takes: each is refused by name before anything is stored."""

from dataclasses import replace

import numpy as np
import pytest

from streams.errors import InvalidUsage
from streams.ids import CollectionId
from streams.progress import EMPTY, END, frontier
from streams.storage import Storage
from streams.storage.client.handles import (
    LONGEST_LEASE_MS,
    LONGEST_TOKEN,
    InvalidCapability,
)
from streams.storage.client.lifecycle import NotBound
from streams.storage.description import Description
from streams.storage.limits import TooLarge
from streams.storage.write.validation import OutsideInterval, WrongRows
from tests.support.storages import T1, TABLE, table, write


@pytest.mark.parametrize("start", [-1, 1 << 63, 1.5, "0", None])
def test_a_collection_begins_at_a_time(storage: Storage, start: object) -> None:
    with pytest.raises(InvalidUsage, match="expected a frontier, or a time from 0 to"):
        storage.create(T1, TABLE, start=start)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(NotBound):
        storage.acquire_capabilities(T1)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ((("a", "FOO"),), "expected DuckDB's types, actual FOO"),
        ((("a", "INTEGER"), ("a", "DATE")), "expected columns of different names, twice:"),
    ],
)
def test_columns_that_no_row_could_have(
    storage: Storage, columns: tuple[tuple[str, str], ...], why: str
) -> None:
    with pytest.raises(InvalidUsage, match=why):
        storage.create(T1, Description(columns, kind="table"))
    with pytest.raises(NotBound):
        storage.acquire_capabilities(T1)


def test_an_id_is_not_empty(storage: Storage) -> None:
    with pytest.raises(InvalidUsage, match="expected the names of a collection and a group"):
        storage.create(CollectionId(""), TABLE)


@pytest.mark.parametrize("name", ["a:b", "a b", "x/y", "ü", "a\n"])
def test_names_have_few_characters(storage: Storage, name: str) -> None:
    """A ':' in an id made the stage 'c' of 'a:b' the stage 'b:c' of 'a'."""
    with pytest.raises(InvalidUsage, match="collection's id of letters of ASCII, digits"):
        storage.create(CollectionId(name), TABLE, group="g")
    with pytest.raises(InvalidUsage, match="group's name of letters of ASCII, digits"):
        storage.create(T1, TABLE, group=name)
    storage.create(CollectionId("A-z_0.9"), TABLE)
    with pytest.raises(InvalidUsage, match=r"differ by '\.' and '_' alone are one to Kafka"):
        storage.create(CollectionId("A-z.0_9"), TABLE)


@pytest.mark.parametrize("end", [-1, 1 << 63, 6.5, "7"])
def test_frontiers_are_times(storage: Storage, end: object) -> None:
    read, writer = storage.create(T1, TABLE)
    for command in (
        lambda: storage.update_and_downgrade(writer, None, end),  # type: ignore[call-overload]
        lambda: storage.downgrade(read, end),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidUsage, match="expected a frontier, or a time from 0 to"):
            command()


@pytest.mark.parametrize(
    ("lease_ms", "kind", "why"),
    [
        (0, InvalidUsage, "lease_ms: expected 1 to"),
        (-1, InvalidUsage, "lease_ms: expected 1 to"),
        (LONGEST_LEASE_MS + 1, TooLarge, "lease_ms .*: expected at most"),
        ((1 << 63) - 1, TooLarge, "lease_ms .*: expected at most"),
    ],
)
def test_a_lease_has_bounds(
    storage: Storage, lease_ms: int, kind: type[Exception], why: str
) -> None:
    read, _ = storage.create(T1, TABLE)
    with pytest.raises(kind, match=why):
        storage.clone(read, lease_ms=lease_ms)
    with pytest.raises(kind, match=why):
        Storage.memory(lease_ms=lease_ms)
    assert storage.clone(read, lease_ms=LONGEST_LEASE_MS).frontier == read.frontier


def test_a_token_has_a_longest_length(storage: Storage) -> None:
    long = "x" * (LONGEST_TOKEN + 1)
    storage.create(T1, TABLE)
    with pytest.raises(TooLarge, match="token: expected at most"):
        storage.acquire_capabilities(T1, critical=True, token=long)
    read, _ = storage.acquire_capabilities(T1, critical=True, token=long[1:])
    with pytest.raises(TooLarge, match="token: expected at most"):
        storage.downgrade(read, 0, token=long)


def test_numbers_of_numpy_are_times(storage: Storage) -> None:
    _, writer = storage.create(T1, TABLE)
    moved = storage.update_and_downgrade(writer, None, np.int64(7))  # type: ignore[call-overload]
    assert moved == replace(writer, frontier=frontier(7))


@pytest.mark.parametrize("updates", [[("a", 1, 3, 1)], table(("a", 1, 3, 1)).to_batches()[0]])
def test_updates_are_a_table(storage: Storage, updates: object) -> None:
    _, writer = storage.create(T1, TABLE)
    with pytest.raises(WrongRows, match="expected an Arrow table, actual"):
        storage.update_and_downgrade(writer, updates, 5)


def test_nothing_happens_at_the_end_of_time(storage: Storage) -> None:
    _, writer = storage.create(T1, TABLE)
    with pytest.raises(OutsideInterval, match=f"actual {END}"):
        storage.update_and_downgrade(writer, table(("a", 1, END, 1)), EMPTY)
    write(storage, writer, END, ("a", 1, END - 1, 1))


def test_the_right_kind_of_capability(storage: Storage) -> None:
    read, writer = storage.create(T1, TABLE)
    with pytest.raises(InvalidCapability, match="expected a write capability, actual a read"):
        storage.update_and_downgrade(read, table(("a", 1, 3, 1)), 5)  # type: ignore[call-overload]
    with pytest.raises(InvalidCapability, match="expected a read capability, actual a write"):
        storage.subscribe_at(writer)  # type: ignore[arg-type]


def test_a_closed_storage_says_so(storage: Storage) -> None:
    read, _ = storage.create(T1, TABLE)
    storage.close()
    storage.close()
    for command in (lambda: storage.heartbeat(read), lambda: storage.subscribe_at(read)):
        with pytest.raises(InvalidUsage, match="storage is closed"):
            command()


@pytest.mark.parametrize(
    ("id_", "group", "columns", "why"),
    [
        ("t" * 201, "g", (("a", "INTEGER"),), "characters of the collection's id: expected"),
        ("t", "g" * 201, (("a", "INTEGER"),), "characters of the group's name: expected"),
        (
            "t",
            "g",
            tuple((f"a{n}", "INTEGER") for n in range(1601)),
            "columns of the desc",
        ),
        (
            "t",
            "g",
            (("a" * (1 << 18), "INTEGER"),),
            "bytes of the description: expected",
        ),
    ],
)
def test_what_is_created_has_bounds(
    storage: Storage, id_: str, group: str, columns: tuple[tuple[str, str], ...], why: str
) -> None:
    with pytest.raises(TooLarge, match=why):
        storage.create(CollectionId(id_), Description(columns, kind="table"), group=group)
    with pytest.raises(NotBound):
        storage.acquire_capabilities(T1)
