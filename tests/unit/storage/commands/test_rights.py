"""What a command may exercise: what its client was given, and neither names nor ids alone."""

import pytest

from streams.adapter.provisioning import hold_of, reading_hold
from streams.ids import CollectionId, Timestamp
from streams.storage.log.events import Acquire, Right
from streams.storage.policy import catalog_hold
from tests.support.command_service import DESCRIPTION, Record, World, code, made, update


@pytest.fixture
def world() -> World:
    return World()


def taken_over(name: str) -> dict[str, tuple[str, Record]]:
    """Each command that exercises a capability, presenting one of this name."""
    read = {"collection": "u1", "right": "READ", "frontier": 0, "name": name, "token": ""}
    write = {**read, "right": "WRITE"}
    return {
        "write": ("update_and_downgrade", update(write, 10, ("a", 1, 0, 1))),
        "time": ("update_and_downgrade", update(write, 10)),
        "seal": ("update_and_downgrade", update(write, None)),
        "downgrade": ("downgrade", {"capability": read, "new_frontier": 9}),
        "end": ("downgrade", {"capability": write, "new_frontier": None}),
        "clone": ("clone", {"capability": write}),
        "transfer": ("transfer", {"capability": read}),
        "heartbeat": ("heartbeat", {"capability": read}),
        "drop": ("drop", {"collection": "u1", "capability": read}),
        "read": ("subscribe_at", {"capability": read}),
    }


@pytest.mark.parametrize("name", ["u1.write", "u1.catalog", "u1.reading", "u2.reads.u1"])
@pytest.mark.parametrize("case", taken_over(""))
def test_the_names_of_the_systems_rights_give_no_right(
    world: World, name: str, case: str
) -> None:
    """They follow from ids, so whoever may write commands knows them."""
    u1 = CollectionId("u1")
    shards = world.storage().shards
    shards.create("u1", u1, DESCRIPTION, Timestamp(0), read=catalog_hold(u1))
    for capability in (reading_hold(u1), hold_of(CollectionId("u2"), u1)):
        shards.submit([("u1", Acquire(collection=u1, capability=capability, right=Right.READ))])
    before = shards.state(u1)
    command, fields = taken_over(name)[case]
    assert code(world.ask(command, **fields)) == "InvalidCapability"
    shards.sync()
    assert shards.state(u1) == before


def test_nobody_ends_a_collection_by_its_id(world: World) -> None:
    read, write = made(world)
    assert code(world.ask("drop", collection="t")) == "InvalidCapability"
    assert code(world.ask("drop", collection="t", whole=True)) == "InvalidCapability"
    acquired = world.ask("acquire_capabilities", collection="t")["capabilities"]
    for capability in acquired:  # an id is no right, nor is what it is given for
        drop = {"collection": "t", "capability": capability, "whole": True}
        assert code(world.ask("drop", **drop)) == "StillWritable"
    assert world.ask("heartbeat", capability=read)["status"] == "DONE"
    for capability in (*acquired, write):
        assert world.ask("drop", collection="t", capability=capability)["status"] == "DONE"
    drop = {"collection": "t", "capability": read, "whole": True}
    assert world.ask("drop", **drop)["status"] == "DONE"
    assert code(world.ask("heartbeat", capability=read)) == "Forgotten"
    assert world.ask("drop", **drop)["status"] == "DONE"


def test_what_sql_has_made_is_dropped_in_sql(world: World) -> None:
    world.storage().shards.create("u1", CollectionId("u1"), DESCRIPTION, Timestamp(0))
    read, _ = world.ask("acquire_capabilities", collection="u1")["capabilities"]
    refused = world.ask("drop", collection="u1", capability=read, whole=True)
    assert code(refused) == "InvalidUsage"
    assert world.ask("drop", collection="u1", capability=read)["status"] == "DONE"


def test_the_registry_of_ids_is_out_of_reach(world: World) -> None:
    made(world)
    assert code(world.ask("acquire_capabilities", collection="id:t")) == "NotBound"
    mine = world.ask("create", collection="id:t", description=DESCRIPTION, group="g")
    assert code(mine) == "InvalidUsage"
