"""What is computed for many dataflows at once is what each would compute alone."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from streams.operators import common_expressions
from streams.operators.context import Context
from streams.operators.engine import start
from streams.plan.physical import Dataflow, Expression, Linear
from streams.progress import interval_of
from streams.trace.kernel import kernel as door
from streams.trace.kernel.functions import Function
from streams.trace.kernel.kernel import arrow_schema
from streams.trace.updates import flatten
from tests.support.flows import dataflow, kernel, table

TYPES = ["INTEGER", "VARCHAR"]
ROWS = [((1, "a"), 0, 1), ((None, "b"), 1, 1), ((7, None), 1, -2)]


def adding(number: int) -> Dataflow:
    outputs = (
        Expression(f"c0 + {number}", "INTEGER", "sum"),
        Expression("upper(c1)", "VARCHAR", "upper(x1)"),
        Expression("c1", "VARCHAR", "x1"),
    )
    return dataflow([TYPES], (Linear(0, (), outputs), ["INTEGER", "VARCHAR", "VARCHAR"], 0))


def rows() -> pa.RecordBatch:
    return flatten([table(ROWS, TYPES)], arrow_schema(TYPES))


def test_only_what_is_computed_over_an_import_itself_is_wanted() -> None:
    first = adding(1).nodes[-1]
    predicate = Expression("c0 > 1", "BOOLEAN", "x0 > 1")
    again = Expression("c0 + 2", "INTEGER", "again")
    flow = dataflow(
        [TYPES, TYPES],
        (first, ["INTEGER", "VARCHAR", "VARCHAR"], 0),
        (Linear(2, (), (again,)), ["INTEGER"], 0),
        (Linear(0, (predicate,), (again,)), ["INTEGER"], 0),
    )
    assert common_expressions.expressions_over(flow, 0) == {
        ("c0 + 1", "INTEGER"),
        ("upper(c1)", "VARCHAR"),
    }
    assert common_expressions.expressions_over(flow, 1) == frozenset()


def test_what_calls_a_users_function_is_not_wanted() -> None:
    function = Function("f", ("x",), ("BIGINT",), "BIGINT", "def f(x): return x")
    assert (
        common_expressions.expressions_over(replace(adding(1), functions=(function,)), 0)
        == frozenset()
    )


def test_a_step_with_what_was_computed_is_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows = [adding(1), adding(2)]
    context = Context(tmp_path, kernel(), lambda: "unused")
    expressions = common_expressions.expressions_over(
        flows[0], 0
    ) | common_expressions.expressions_over(flows[1], 0)
    computed = common_expressions.compute(expressions, rows(), TYPES, kernel())
    assert set(computed) == expressions
    interval, imports = interval_of(0, 2), {0: table(ROWS, TYPES)}
    alone = [start(flow, imports, interval, 1, context).output for flow in flows]
    monkeypatch.setattr(door.Kernel, "prepare", None)
    together = [
        start(flow, imports, interval, 1, context, computed={0: computed}).output
        for flow in flows
    ]
    assert together == alone


def test_where_a_row_fails_nothing_is_shared() -> None:
    fine, failing = ("c0 + 1", "INTEGER"), ("CAST(c1 AS INTEGER)", "INTEGER")
    assert common_expressions.compute([fine, failing], rows(), TYPES, kernel()) == {}
    assert common_expressions.compute([fine], rows(), TYPES, kernel()) == {}
    assert (
        common_expressions.compute([fine, failing], rows().slice(0, 0), TYPES, kernel()) == {}
    )


def test_not_more_is_shared_than_memory_bears(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [("c0 + 1", "INTEGER"), ("c0 + 2", "INTEGER")]
    monkeypatch.setattr(common_expressions, "LARGEST", 2 * len(ROWS))
    assert set(common_expressions.compute(both, rows(), TYPES, kernel())) == set(both)
    monkeypatch.setattr(common_expressions, "LARGEST", 2 * len(ROWS) - 1)
    assert common_expressions.compute(both, rows(), TYPES, kernel()) == {}
