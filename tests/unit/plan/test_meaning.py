"""The plan means the query: DuckDB runs both over random rows and they agree."""

import random

import pytest

from streams.plan import json
from streams.plan.compile import compile_view
from tests.support.plan_buckets import Simulation
from tests.support.plan_sql import to_sql
from tests.support.plan_tables import answer, catalog, connect, fill
from tests.unit.plan.queries import QUERIES


@pytest.mark.parametrize("name", QUERIES)
def test_every_form_of_the_plan_means_the_query(name: str) -> None:
    query = QUERIES[name]
    compiled = compile_view(query, catalog())
    assert json.loads(json.dumps(compiled.dataflow)) == compiled.dataflow
    tables = {relation.id: name for name, relation in catalog().items()}
    logical = to_sql(compiled.logical)
    connection = connect()
    for seed in range(4):
        chance = random.Random(f"{name} {seed}")
        fill(connection, chance, rows=14)
        expected = answer(connection, query)
        assert [column.type for column in compiled.columns] == _stored(expected[0])
        assert answer(connection, logical)[1] == expected[1], "logical plan"
        buckets = Simulation(connection, compiled.dataflow, tables, chance).run()
        assert answer(connection, buckets)[1] == expected[1], "dataflow over buckets"


def _stored(types: list[str]) -> list[str]:
    return [type_.replace('"NULL"', "INTEGER") for type_ in types]
