"""Names of columns that a database, the protocol or a table of ours has already."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streams.errors import InvalidUsage
from tests.contract.test_dead_letters import World
from tests.support.endpoints import on_duckdb, on_postgres, on_sqlite

TWINS = ("Name", "nAME")
LONG = ("x" * 64, "y")


@pytest.fixture(params=[on_sqlite, on_postgres, on_duckdb])
def world(request: Any, memory_path: Path) -> Iterator[World]:
    world_ = World(request.param(memory_path, request))
    yield world_
    world_.collections.close()


def bound(world: World, names: tuple[str, ...], **resource: Any) -> None:
    """A binding of a collection with these columns of text beside its key."""
    id_ = "_".join(["c", *names]).casefold().encode().hex()
    columns = [("id", "BIGINT"), *((name, "VARCHAR") for name in names)]
    world.collections.create(id_, columns, keys=("id",))
    world.collections.append(id_, 14, [(1, *names, 13, 1)])
    world.bindings = [{"collection": id_, "resource": {"table": "t", **resource}}]


@pytest.mark.parametrize("name", ["_meta", "flow_document"])
def test_names_of_the_protocol_are_refused(world: World, name: str) -> None:
    bound(world, (name,))
    with pytest.raises(InvalidUsage, match=f"a column named {name} is reserved .*: rename"):
        world.catch_up()


@pytest.mark.parametrize("name", ["slackwater_time", "slackwater_diff"])
def test_a_change_has_no_second_time(world: World, name: str) -> None:
    """The column was replaced by that of the change, without a word."""
    bound(world, (name,), delta_updates=True)
    with pytest.raises(InvalidUsage, match=f"a column named {name} is reserved .*: rename"):
        world.catch_up()
    bound(world, (name, "v"))
    world.catch_up()
    assert world.endpoint.query(f"SELECT {name} FROM t") == [(name,)]


def test_a_column_without_a_place_is_not_lost(world: World) -> None:
    """A table of changes has no document that would have it."""
    is_postgres = "path" not in world.endpoint.config
    names = LONG if is_postgres else TWINS
    bound(world, names, delta_updates=True)
    with pytest.raises(InvalidUsage, match="or select the columns to keep"):
        world.catch_up()
    world.bindings[0]["select"] = []
    world.catch_up()
    assert world.endpoint.query("SELECT id FROM t") == [(1,)]


def test_a_column_that_postgres_has_itself_is_told_by_validate(world: World) -> None:
    bound(world, ("xmin",), delta_updates=True)
    if "path" in world.endpoint.config:
        world.catch_up()
        return
    with pytest.raises(InvalidUsage, match="PostgreSQL has a column of its own named xmin"):
        world.catch_up()


def test_a_column_renamed_by_case_is_refused_with_the_way_out(world: World) -> None:
    bound(world, ("name",))
    world.catch_up()
    (first,) = world.bindings
    world.collections.create("u9", (("id", "BIGINT"), ("Name", "VARCHAR")), keys=("id",))
    world.collections.append("u9", 14, [(1, "x", 13, 1)])
    world.bindings = [{**first, "collection": "u9"}]
    with pytest.raises(InvalidUsage, match="raise the binding's backfill"):
        world.catch_up()
    world.bindings[0]["resource"]["backfill"] = 1
    world.catch_up()
    assert world.endpoint.query('SELECT "Name" FROM t') == [("x",)]
