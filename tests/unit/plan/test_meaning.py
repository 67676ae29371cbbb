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


@pytest.fixture(scope="module", params=[0, pytest.param(1, marks=pytest.mark.long)])
def world(request: pytest.FixtureRequest) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with the relations and random rows in them."""
    connection = connect()
    fill(connection, random.Random(request.param), rows=14)
    yield connection
    connection.close()


@pytest.mark.parametrize("name", QUERIES)
def test_every_form_of_the_plan_means_the_query(
    name: str, world: duckdb.DuckDBPyConnection
) -> None:
    query = QUERIES[name]
    compiled = compile_view(query, catalog())
    assert json.loads(json.dumps(compiled.dataflow)) == compiled.dataflow
    tables = {relation.id: name for name, relation in catalog().items()}
    logical = to_sql(compiled.logical)
    expected = answer(world, query)
    assert [column.type for column in compiled.columns] == _stored(expected[0])
    assert answer(world, logical)[1] == expected[1], "logical plan"
    buckets = Simulation(compiled.dataflow, tables, random.Random(name)).run()
    assert answer(world, buckets)[1] == expected[1], "dataflow over buckets"


def _stored(types: list[str]) -> list[str]:
    return [type_.replace('"NULL"', "INTEGER") for type_ in types]
