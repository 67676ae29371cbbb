"""Queries that call Python functions: bound by name, planned by symbol, never run."""

import pytest

from streams.errors import InvalidStatement
from streams.ids import CollectionId
from streams.plan import json as plans
from streams.plan.bind.functions import function_of
from streams.plan.compile import Relation, compile_view, draw_plan, explain
from streams.plan.physical import Column, Linear
from streams.plan.sql.statements import CreateFunction, parse
from streams.trace.kernel.functions import Function

CATALOG = {
    "t": Relation(CollectionId("s1"), (Column("a", "BIGINT"), Column("b", "VARCHAR"))),
}


def create(text: str) -> Function:
    (statement,) = parse(text)
    assert isinstance(statement, CreateFunction)
    return function_of(statement)


def function(name: str = "f", kinds: str = "x BIGINT") -> Function:
    names = ", ".join(kind.split()[0] for kind in kinds.split(", "))
    body = f"$$def {name}({names}): raise AssertionError('called')$$"
    return create(f"CREATE FUNCTION {name}({kinds}) RETURNS int LANGUAGE PYTHON AS {body}")


def test_types_are_spelled_as_duckdb_does() -> None:
    declared = function(kinds="x int8, y numeric")
    assert (declared.types, declared.returns) == (("BIGINT", "DECIMAL(18,3)"), "INTEGER")
    assert declared.signature == "x BIGINT, y DECIMAL(18,3)"


def test_a_dataflow_holds_what_it_calls_and_nothing_else() -> None:
    f, g = function("f"), function("g")
    dataflow = compile_view("SELECT F(a) + 1 AS r FROM t", CATALOG, [f, g]).dataflow
    assert dataflow.functions == (f,)
    (linear,) = [node for node in dataflow.nodes if isinstance(node, Linear)]
    assert f'"{f.symbol}"(c' in linear.outputs[0].sql
    assert linear.outputs[0].label == "f(a) + 1"
    assert plans.loads(plans.dumps(dataflow)) == dataflow
    assert compile_view("SELECT a FROM t", CATALOG, [f, g]).dataflow.functions == ()


def test_the_body_of_a_recursion_may_call() -> None:
    query = (
        "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION SELECT f(n)::BIGINT FROM r)"
        " SELECT n FROM r"
    )
    assert compile_view(query, CATALOG, [function()]).dataflow.functions == (function(),)


def test_another_text_is_another_plan() -> None:
    other = create(
        "CREATE FUNCTION f(x BIGINT) RETURNS INT LANGUAGE PYTHON AS 'def f(x): return x'"
    )
    texts = [
        plans.dumps(compile_view("SELECT f(a) AS r FROM t", CATALOG, [definition]).dataflow)
        for definition in (function(), other)
    ]
    assert texts[0] != texts[1]


def test_columns_and_plans_show_names() -> None:
    compiled = compile_view("SELECT f(a), sum(f(a)) FROM t GROUP BY 1", CATALOG, [function()])
    assert [column.name for column in compiled.columns] == ["f(a)", "sum(f(a))"]
    query = "SELECT f(a) AS r FROM t WHERE f(a) > f(1)"
    for shown in (
        explain(query, CATALOG, [function()]),
        draw_plan(query, CATALOG, [function()]),
    ):
        assert "f(" in shown
        assert "@" not in shown


def test_a_call_may_fail_so_it_stays_behind_a_join() -> None:
    query = "SELECT x.a FROM t x JOIN t y ON x.b = y.b WHERE f(y.a) = 1 AND y.a < 5"
    logical = explain(query, CATALOG, [function()]).split("physical")[0].splitlines()
    calls = [place for place, line in enumerate(logical) if "f(" in line]
    joins = [place for place, line in enumerate(logical) if "Join" in line]
    assert calls
    assert max(calls) < min(joins)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT g(a) FROM t", "g does not exist"),
        ("SELECT f(a, b) FROM t", r"f\(\) does not support the supplied arguments"),
        ("SELECT f(b) FROM t", r"'f\(VARCHAR\)'"),
        ("SELECT f(DISTINCT a) FROM t", "f takes no DISTINCT"),
        ("SELECT x FROM (VALUES (f(1)), (2)) v(x)", "f is not called while planning"),
        ("SELECT a FROM t WHERE f(mz_now()) = 1", r"mz_now\(\) in function f"),
    ],
)
def test_what_does_not_bind_is_refused_by_name(query: str, message: str) -> None:
    with pytest.raises(InvalidStatement, match=message) as refused:
        compile_view(query, CATALOG, [function()])
    assert "@" not in str(refused.value)


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("lower(x BIGINT) RETURNS INT", "lower is one of DuckDB's"),
        ("Today(x BIGINT) RETURNS INT", "Today is one of DuckDB's"),
        ("mz_now(x BIGINT) RETURNS INT", "mz_now is one of DuckDB's"),
        ('"f g"(x BIGINT) RETURNS INT', "f g is not a name in Python"),
        ("lambda_(x HUGEINT) RETURNS INT", "argument x of lambda_ cannot be of type HUGEINT"),
        ("dec(x BIGINT) RETURNS INT", "dec is a keyword"),
        ("Position(x BIGINT, y BIGINT) RETURNS INT", "Position is"),
        ("f(x BIGINT) RETURNS UUID", "the result of f cannot be of type UUID"),
        ("f(x BOOLEAN[]) RETURNS INT", r"cannot be of type BOOLEAN\[\]"),
        ("f(x ENUM('a')) RETURNS INT", "cannot be of type ENUM"),
        ("f(x NONSENSE) RETURNS INT", "NONSENSE"),
        ("f(x BIGINT) RETURNS NONSENSE", "NONSENSE"),
        ("f(x BIGINT, y BIGINT) RETURNS INT", "does not take 2 arguments"),
        ("g(x BIGINT) RETURNS INT", "defines no function g"),
    ],
)
def test_what_cannot_be_created_is_refused(definition: str, message: str) -> None:
    with pytest.raises(InvalidStatement, match=message):
        create(f"CREATE FUNCTION {definition} LANGUAGE PYTHON AS 'def f(x): return x'")
