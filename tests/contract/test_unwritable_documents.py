"""Values that the protocol has no form for, and those that are at its limits."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.transport.errors import ConnectorFailed
from streams.errors import InvalidUsage
from tests.contract.test_dead_letters import KEYED, World
from tests.support.endpoints import on_duckdb, on_postgres, on_sqlite

DIGITS = "9" * 5000
DEEP = "[" * 600 + "]" * 600
LARGE = f'{{"a":[{DIGITS}]}}'


@pytest.fixture(params=[on_sqlite, on_postgres, on_duckdb])
def world(request: Any, memory_path: Path) -> Iterator[World]:
    world_ = World(request.param(memory_path, request))
    world_.bindings = [KEYED]
    world_.collections.create("u2", (("item", "VARCHAR"), ("v", "JSON")), keys=("item",))
    world_.bindings = [{**KEYED, "collection": "u2"}]
    yield world_
    world_.collections.close()


@pytest.mark.parametrize("text", [DIGITS, DEEP, "1e999"], ids=["digits", "levels", "infinite"])
def test_a_document_that_cannot_be_sent_is_a_dead_letter(world: World, text: str) -> None:
    """It failed for ever, for its error was none that the search for a document knows."""
    rows = [("a", '"x"', 13, 1), ("bad", text, 13, 1), ("c", "[1]", 13, 1)]
    world.collections.append("u2", 14, rows)
    status = world.catch_up()
    assert status.left_out == {"prices": 1}
    assert world.endpoint.query("SELECT item FROM prices ORDER BY item") == [("a",), ("c",)]
    ((_, key, value),) = world.letters.raw
    assert json.loads(key)["key"] == {"item": "bad"}
    assert f'"document": {{"item":"bad","v":{text}}}'.encode() in value
    world.collections.append("u2", 16, [("bad", text, 15, -1), ("bad", "1", 15, 1)])
    assert world.catch_up().left_out == {}
    assert world.endpoint.query("SELECT count(*) FROM prices") == [(3,)]


def test_one_that_cannot_be_sent_says_which_column_it_is(world: World) -> None:
    world.bindings = [{**KEYED, "collection": "u2", "dead_letters": None}]
    world.collections.append("u2", 14, [("bad", DIGITS, 13, 1)])
    with pytest.raises(InvalidUsage, match=r"column v: no double holds 9{40}, of 5000"):
        world.catch_up()


def test_numbers_of_many_digits_are_kept_and_compared(world: World) -> None:
    world.collections.append("u2", 14, [("a", LARGE, 13, 1)])
    world.catch_up()
    ((text,),) = world.endpoint.query("SELECT CAST(v AS VARCHAR) FROM prices")
    assert text == LARGE
    world.collections.append("u2", 16, [("a", LARGE, 15, -1), ("a", "2", 15, 1)])
    world.catch_up()
    assert [str(row[0]) for row in world.endpoint.query("SELECT v FROM prices")] == ["2"]


def test_one_that_was_changed_by_another_is_told(world: World) -> None:
    world.collections.append("u2", 14, [("a", LARGE, 13, 1)])
    world.catch_up()
    changed = LARGE.replace("9", "8")
    text = f'{{"item": "a", "v": {changed}}}'
    world.endpoint.query(f"UPDATE prices SET flow_document = '{text}' RETURNING 1")
    world.collections.append("u2", 16, [("a", LARGE, 15, -1), ("a", "2", 15, 1)])
    with pytest.raises((InvalidUsage, ConnectorFailed), match="somebody else has changed it"):
        world.catch_up()
