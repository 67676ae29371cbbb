"""Views over groups against DuckDB at every time: aggregates, top-k, windows."""

import random

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.grouped_queries import TABLE, Grouped
from tests.support.maintained import Tables, compare


@given(st.integers(0, 2**32))
@examples(25)
def test_random_queries_over_groups_agree_with_duckdb_at_every_time(seed: int) -> None:
    chance = random.Random(seed)
    query = Grouped(chance).query()
    tables = Tables({"t": TABLE}, chance)
    try:
        tables.fill(0)
        tables.connection.execute(f"EXPLAIN {query.oracle}")
    except duckdb.Error:  # the generator wrote what DuckDB does not bind
        return
    view = tables.maintain(query.text, chance)
    compare(tables, view, query.oracle)
