"""Views over sources with keys, whose plans rely on them, against DuckDB at every time."""

import random
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.errors import InvalidUsage
from streams.testing import maintain
from tests.support.examples import examples
from tests.support.keyed_queries import Keyed
from tests.support.maintained import TIMES, Literals, Tables, compare
from tests.support.plan_tables import KEYED, LITERALS

FACTS = "id BIGINT, v BIGINT"


def upserts(
    chance: random.Random, columns: dict[str, str], key: list[str]
) -> Iterator[tuple[Literals, int, int]]:
    """Rows of a table that are inserted, replaced and deleted, one for each key."""
    places = [list(columns).index(name) for name in key]
    live: dict[tuple[str, ...], Literals] = {}
    for at in sorted(chance.choices(range(TIMES), k=chance.randrange(16))):
        row = [chance.choice(LITERALS[kind]) for kind in columns.values()]
        by = tuple(row[place] for place in places)
        if by in live:
            yield live.pop(by), at, -1
        if chance.random() < 0.8:
            live[by] = row
            yield row, at, 1


@given(st.integers(0, 2**32))
@examples(12)
def test_views_over_sources_with_keys_agree_with_duckdb_at_every_time(seed: int) -> None:
    chance = random.Random(seed)
    columns = {name: of for name, (of, _) in KEYED.items()}
    keys = {name: key for name, (_, key) in KEYED.items()}
    histories = {name: list(upserts(chance, columns[name], keys[name])) for name in columns}
    tables = Tables(columns, chance, histories, keys)
    query = Keyed(chance).query()
    tables.fill(TIMES)
    try:
        tables.connection.execute(f"EXPLAIN {query}")
    except duckdb.Error:
        return
    compare(tables, tables.maintain(query, chance), query)


def test_a_row_that_is_replaced_leaves_a_distinct_that_the_key_made_idle() -> None:
    facts = pa.table({"id": [1, 1, 1], "v": [5, 5, 6], "_time": [1, 2, 2], "_diff": [1, -1, 1]})
    view = maintain(
        "SELECT DISTINCT id, v FROM facts",
        {"facts": FACTS},
        {"facts": facts},
        keys={"facts": ["id"]},
    )
    assert view.at(1).to_pylist() == [{"id": 1, "v": 5}]
    assert view.at(2).to_pylist() == [{"id": 1, "v": 6}]


@pytest.mark.parametrize("diffs", [[1, 1, 0], [1, 0, 1], [2, 0, 0], [-1, 1, 1]])
def test_rows_that_break_a_key_are_refused(diffs: list[int]) -> None:
    facts = pa.table({"id": [1, 1, 1], "v": [5, 6, 7], "_time": [1, 1, 2], "_diff": diffs})
    with pytest.raises(InvalidUsage, match="one for each key"):
        maintain("FROM facts", {"facts": FACTS}, {"facts": facts}, keys={"facts": ["id"]})


def test_keys_of_what_is_not_there_are_refused() -> None:
    with pytest.raises(InvalidUsage, match="tables that are not defined"):
        maintain("FROM facts", {"facts": FACTS}, {}, keys={"other": ["id"]})
    with pytest.raises(InvalidUsage, match="columns that there are not"):
        maintain("FROM facts", {"facts": FACTS}, {}, keys={"facts": ["x"]})
