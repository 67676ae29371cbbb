"""Counts hang on what was there when they were made, whatever merges left of it (rule 28)."""

from typing import Any

import pyarrow as pa
import pytest

from streams.ids import CapabilityId, CollectionId, Timestamp
from streams.progress import frontier
from streams.storage.client.handles import WriteCapability
from streams.storage.log import rollup
from streams.storage.log.events import Replace
from streams.storage.log.outcomes import Replaced
from streams.storage.storage import Storage
from tests.support.command_service import DESCRIPTION, SCHEMA, World, update

T = CollectionId("t")


def take_back(storage: Storage, capability: dict[str, Any]) -> None:
    """Take the row back, as another client does that had counted it too."""
    storage.shards.open(T)
    rows = pa.table([["x"], [1], [4], [-1]], schema=SCHEMA)
    write = WriteCapability(
        T, frontier(capability["frontier"]), CapabilityId(capability["name"])
    )
    assert isinstance(storage.update_and_downgrade(write, rows, 6), WriteCapability)


def merge_away(storage: Storage) -> None:
    """Merge all batches of the collection into an empty one: their rows cancel."""
    batches = storage.shards.state(T).batches.ordered()
    names = tuple(batch.name for batch in batches)
    body = Replace(collection=T, replaced=names, chunks=(), since=Timestamp(0))
    assert storage.shards.submit([(T, body)]) == [Replaced()]


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_row_is_not_taken_back_by_two_who_both_counted_it(*, is_merged: bool) -> None:
    world = World()
    _, one = world.ask("create", collection=T, description=DESCRIPTION)["capabilities"]
    _, two = world.ask("acquire_capabilities", collection=T)["capabilities"]
    world.ask("update_and_downgrade", **update(one, 2, ("x", 1, 0, 1)))
    world.ask("downgrade", capability=two, new_frontier=6)
    one, two = {**one, "frontier": 2}, {**two, "frontier": 6}
    points: list[str] = []

    def reached(point: str) -> None:
        points.append(point)
        if point == "stored" and points.count(point) == 1:
            other = world.storage()
            take_back(other, one)
            if is_merged:
                merge_away(other)

    fields = update(two, 9, ("x", 1, 6, -1))
    id_ = world.send("update_and_downgrade", **fields, check_counts=True)
    world.run(world.service(reached))
    response = world.answers()[id_]
    assert (response["status"], response["error"]["code"]) == ("REFUSED", "Recount")


def test_a_state_keeps_what_was_changed_last_when_all_of_it_is_merged_away() -> None:
    world = World()
    _, write = world.ask("create", collection=T, description=DESCRIPTION)["capabilities"]
    world.ask("update_and_downgrade", **update(write, 2, ("x", 1, 0, 1), ("x", 1, 1, -1)))
    storage = world.storage()
    storage.shards.open(T)
    merge_away(storage)
    state = storage.shards.group_state(T)
    read_back = rollup.decode(rollup.encode(state))
    assert state.collections[T].changed == state.upto == read_back.collections[T].changed
