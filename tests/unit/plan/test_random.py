"""Random queries: the plan and the dataflow over buckets mean what DuckDB means."""

import random

import pytest

from streams.errors import InvalidStatement
from streams.ids import CollectionId
from streams.plan.compile import compile_view
from streams.testing.maintain import defined
from streams.trace.kernel.kernel import Kernel
from tests.random_sql.case import case, catalog, has_unions, spans_times
from tests.random_sql.chance import Chance
from tests.random_sql.judge import Judge
from tests.support.plan_buckets import Simulation
from tests.support.plan_sql import to_sql

EACH = 10


@pytest.mark.parametrize("first", range(0, 60, EACH))
def test_random_queries_mean_the_same_when_planned(first: int) -> None:
    judge, kernel = Judge(), Kernel()
    for seed in range(first, first + EACH):
        drawn = case(Chance(random.Random(seed).randrange))
        if spans_times(drawn) or has_unions(drawn):
            continue
        judge.load(drawn)
        try:
            compiled = compile_view(
                drawn.query, catalog(drawn, kernel), defined(drawn.functions)
            )
        except InvalidStatement:
            continue
        types = [column.type for column in compiled.columns]
        expected = judge.answer(drawn.pinned, types, drawn.last)
        if expected is None:
            continue  # which expressions are computed, and so fail, is another question
        assert judge.answer(to_sql(compiled.logical), types, drawn.last) == expected, seed
        names = {CollectionId(table.name): table.name for table in drawn.tables}
        buckets = Simulation(compiled.dataflow, names, random.Random(seed)).run()
        assert judge.answer(buckets, types, drawn.last) == expected, seed
