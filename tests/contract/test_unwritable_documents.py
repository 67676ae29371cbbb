"""Values that the protocol has no form for, and those that are at its limits."""

import json
import math
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
FINE = "0.12345678901234567890123"
LARGE = f'{{"a":[{DIGITS}]}}'


@pytest.fixture(params=[on_sqlite, on_postgres, on_duckdb])
def world(request: Any, memory_path: Path) -> Iterator[World]:
    world_ = World(request.param(memory_path, request))
    world_.bindings = [KEYED]
    world_.collections.create("u2", (("item", "VARCHAR"), ("v", "JSON")), keys=("item",))
    world_.bindings = [{**KEYED, "collection": "u2"}]
    yield world_
    world_.collections.close()


def test_a_document_that_cannot_be_sent_is_a_dead_letter(world: World) -> None:
    """It failed for ever, for its error was none that the search for a document knows."""
    rows = [("a", '"x"', 13, 1), ("bad", DEEP, 13, 1), ("c", "[1]", 13, 1)]
    world.collections.append("u2", 14, rows)
    status = world.catch_up()
    assert status.left_out == {"prices": 1}
    assert world.endpoint.query("SELECT item FROM prices ORDER BY item") == [("a",), ("c",)]
    ((_, key, value),) = world.letters.raw
    assert json.loads(key)["key"] == {"item": "bad"}
    assert f'"document": {{"item":"bad","v":{DEEP}}}'.encode() in value
    world.collections.append("u2", 16, [("bad", DEEP, 15, -1), ("bad", "1", 15, 1)])
    assert world.catch_up().left_out == {}
    assert world.endpoint.query("SELECT count(*) FROM prices") == [(3,)]


@pytest.mark.parametrize("select", [None, []])
def test_what_is_no_json_is_a_dead_letter(world: World, select: list[str] | None) -> None:
    """Clients write columns of JSON too, and DuckDB reads more: [1,] is written as [1]."""
    world.bindings[0]["select"] = select
    bad = ["[1", f"[{FINE},]"]
    rows = [("a", "[1,]", 13, 1), *((text, text, 13, 1) for text in bad), ("c", None, 13, 1)]
    world.collections.append("u2", 14, rows)
    assert world.catch_up().left_out == {"prices": 2}
    texts = world.endpoint.query("SELECT CAST(flow_document AS VARCHAR) FROM prices")
    assert sorted(json.loads(text)["v"] or [] for (text,) in texts) == [[], [1]]
    letters = [json.loads(value) for _, _, value in world.letters.raw]
    assert {letter["document"] for letter in letters} == {
        f'{{"item":"{text}","v":{text}}}' for text in bad
    }
    assert all("expected" in letter["error"] for letter in letters)


@pytest.mark.parametrize("world", [on_sqlite, on_duckdb], indirect=True)
def test_one_that_cannot_be_sent_says_which_column_it_is(world: World) -> None:
    """PostgreSQL has no key of JSON."""
    world.bindings = [{**KEYED, "collection": "u2", "key": ["v"], "dead_letters": None}]
    world.collections.append("u2", 14, [("bad", DIGITS, 13, 1)])
    with pytest.raises(
        InvalidUsage, match=r"column v: expected .* of a double, actual 9{40}, of 5000"
    ):
        world.catch_up()


def test_numbers_of_many_digits_are_kept_and_compared(world: World) -> None:
    world.collections.append("u2", 14, [("a", LARGE, 13, 1)])
    world.catch_up()
    ((text,),) = world.endpoint.query("SELECT CAST(v AS VARCHAR) FROM prices")
    assert text == LARGE
    world.collections.append("u2", 16, [("a", LARGE, 15, -1), ("a", "2", 15, 1)])
    world.catch_up()
    assert [str(row[0]) for row in world.endpoint.query("SELECT v FROM prices")] == ["2"]


LONG = [
    DIGITS,
    "0.12345678901234567890123",
    "[0.12345678901234567890123]",
    "1e400",
    "-7",
    "0.1",
]


def test_numbers_of_json_keep_their_digits(world: World) -> None:
    """Alone in their column, or in a list."""
    texts = LONG[:3] + LONG[4:] if "duckdb" in str(world.endpoint.config) else LONG
    rows = [(f"i{n}", text, 13, 1) for n, text in enumerate(texts)]
    world.collections.append("u2", 14, rows)
    world.catch_up()
    query = "SELECT CAST(v AS VARCHAR) FROM prices ORDER BY item"
    assert [text for (text,) in world.endpoint.query(query)] == texts


def test_keys_that_are_not_finite_are_compared(world: World) -> None:
    """A document has them as text: what was loaded was taken for something else."""
    world.collections.create("u3", (("x", "DOUBLE"), ("n", "BIGINT")), keys=("x",))
    world.bindings = [{**KEYED, "collection": "u3", "verify": "always"}]
    keys = [1.5, math.inf, -math.inf]
    if not world.endpoint.config.get("path", "").endswith(".db"):  # NULL in SQLite
        keys.append(-math.nan)
    world.collections.append("u3", 14, [(key, 1, 13, 1) for key in keys])
    world.catch_up()
    changes = [(key, n, 15, diff) for key in keys for n, diff in ((1, -1), (2, 1))]
    world.collections.append("u3", 16, changes)
    assert world.catch_up().left_out == {}
    assert world.endpoint.query("SELECT n FROM prices") == [(2,)] * len(keys)
    world.collections.append("u3", 18, [(key, 2, 17, -1) for key in keys])
    world.catch_up()
    assert world.endpoint.query("SELECT n FROM prices") == []


def test_one_that_was_changed_by_another_is_told(world: World) -> None:
    world.collections.append("u2", 14, [("a", LARGE, 13, 1)])
    world.catch_up()
    changed = LARGE.replace("9", "8")
    text = f'{{"item": "a", "v": {changed}}}'
    world.endpoint.query(f"UPDATE prices SET flow_document = '{text}' RETURNING 1")
    world.collections.append("u2", 16, [("a", LARGE, 15, -1), ("a", "2", 15, 1)])
    with pytest.raises((InvalidUsage, ConnectorFailed), match="another client has changed it"):
        world.catch_up()
