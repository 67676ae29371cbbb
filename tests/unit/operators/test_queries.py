"""TPC-H against DuckDB at every time."""

import random

import pytest

from tests.support import tpch
from tests.support.maintained import TIMES, Tables, compare

SEEDS = {2: 100, 5: 100, 22: 112}
"""Of queries that not every few rows answer: by which to choose rows that do."""


@pytest.mark.parametrize("number", tpch.QUERIES)
def test_tpch_agrees_with_duckdb_at_every_time(number: int) -> None:
    """Rows are inserted, replaced and deleted in all tables, at a few times."""
    query, chance = tpch.QUERIES[number], random.Random(SEEDS.get(number, number))
    read = {name: of for name, of in tpch.COLUMNS.items() if name in query}
    histories = {name: list(tpch.changes(chance, name, TIMES)) for name in read}
    tables = Tables(read, chance, histories)
    view = tables.maintain(query, chance)
    compare(tables, view, query)
    rows = view.updates.drop_columns(["_time", "_diff"]).to_pylist()
    assert any(cell is not None for row in rows for cell in row.values())
