"""Random queries: the plan and the dataflow over buckets mean what DuckDB means."""

import random

import pytest

from streams.plan.compile import compile_view
from tests.support.plan_buckets import Simulation
from tests.support.plan_random import Generator
from tests.support.plan_sql import to_sql
from tests.support.plan_tables import answer, catalog, connect, fill

EACH = 10


@pytest.mark.parametrize("first", range(0, 40, EACH))
def test_random_queries_mean_the_same_when_planned(first: int) -> None:
    connection = connect()
    fill(connection, random.Random(first), rows=12)
    tables = {relation.id: name for name, relation in catalog().items()}
    for seed in range(first, first + EACH):
        query, _ = Generator(random.Random(seed)).query()
        compiled = compile_view(query, catalog())
        expected = answer(connection, query)[1]
        assert answer(connection, to_sql(compiled.logical))[1] == expected, query
        buckets = Simulation(compiled.dataflow, tables, random.Random(seed)).run()
        assert answer(connection, buckets)[1] == expected, query
