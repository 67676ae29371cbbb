"""The plan means the query: DuckDB runs both over random rows and they agree."""

import random
from collections.abc import Iterator

import duckdb
import pytest

from streams.plan import json
from streams.plan.compile import compile_view
from tests.support.plan_buckets import Simulation
from tests.support.plan_sql import to_sql
from tests.support.plan_tables import answer, catalog, connect, fill
from tests.unit.plan.queries import QUERIES

WORLDS = 2


@pytest.fixture(scope="module")
def worlds() -> Iterator[list[duckdb.DuckDBPyConnection]]:
    """Databases with the relations and random rows in them."""
    connections = [connect() for _ in range(WORLDS)]
    for seed, connection in enumerate(connections):
        fill(connection, random.Random(seed), rows=14)
    yield connections
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("name", QUERIES)
def test_every_form_of_the_plan_means_the_query(
    name: str, worlds: list[duckdb.DuckDBPyConnection]
) -> None:
    query = QUERIES[name]
    compiled = compile_view(query, catalog())
    assert json.loads(json.dumps(compiled.dataflow)) == compiled.dataflow
    tables = {relation.id: name for name, relation in catalog().items()}
    logical = to_sql(compiled.logical)
    for connection in worlds:
        expected = answer(connection, query)
        assert [column.type for column in compiled.columns] == _stored(expected[0])
        assert answer(connection, logical)[1] == expected[1], "logical plan"
        buckets = Simulation(compiled.dataflow, tables, random.Random(name)).run()
        assert answer(connection, buckets)[1] == expected[1], "dataflow over buckets"


def _stored(types: list[str]) -> list[str]:
    return [type_.replace('"NULL"', "INTEGER") for type_ in types]
