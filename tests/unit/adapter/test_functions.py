"""Python functions as statements: created, called, shown, and kept while they are needed."""

import os
from dataclasses import replace
from pathlib import Path

from streams.adapter.results import Complete, Notice
from streams.adapter.workers.requests import View
from streams.plan import json as plans
from tests.support.coordinators import NOW, with_orders
from tests.support.processes import eventually

TWICE = """CREATE FUNCTION twice(x DOUBLE) RETURNS DOUBLE LANGUAGE PYTHON AS $$
import pyarrow.compute as pc

def twice(x):
    if pc.any(pc.equal(x, 13)).as_py():
        raise ValueError("thirteen; of all numbers")
    return pc.multiply(x, 2.0)
$$"""
VIEW = "CREATE MATERIALIZED VIEW doubled AS SELECT id, TWICE(amount) AS d FROM orders"


def test_a_view_carries_the_functions_that_it_calls(env) -> None:
    replica = with_orders(env)
    assert env.sql(TWICE)[-1] == Complete("CREATE FUNCTION")
    env.rows(TWICE.replace("twice", "unused"))
    env.rows(VIEW)
    eventually(lambda: len(replica.created) == 2)
    (function,) = plans.loads(replica.created[1].plan).functions
    assert function.name == "twice"
    assert function.body in TWICE
    assert env.rows("SHOW FUNCTIONS") == [
        ["twice", "x DOUBLE", "DOUBLE", "doubled"],
        ["unused", "x DOUBLE", "DOUBLE", ""],
    ]


def test_a_function_is_dropped_after_the_views_that_call_it(env) -> None:
    with_orders(env)
    env.rows(TWICE)
    env.rows(VIEW)
    failed = env.fails("DROP FUNCTION Twice")
    assert failed.message == "function Twice cannot be dropped"
    assert failed.detail == "what calls it: materialized view doubled"
    env.rows("DROP MATERIALIZED VIEW doubled; DROP FUNCTION Twice")
    assert env.rows("SHOW FUNCTIONS") == []
    assert env.fails(VIEW).message.startswith("scalar Function with name twice does not exist")
    assert env.fails("DROP FUNCTION twice").message == "function twice does not exist"
    results = env.sql("DROP FUNCTION IF EXISTS twice")
    assert results == [Notice("function twice does not exist"), Complete("DROP FUNCTION")]
    other = TWICE.replace("2.0", "3.0")
    env.rows(other)
    assert env.rows("SELECT twice(5)") == [[15.0]]


def test_a_function_is_created_once(env) -> None:
    env.rows(TWICE)
    assert env.fails(TWICE).message == "function twice already exists"
    again = env.sql(TWICE.replace("FUNCTION", "FUNCTION IF NOT EXISTS", 1))
    assert again[0] == Notice("twice already exists and is unchanged")
    assert "is one of DuckDB's" in env.fails(TWICE.replace("twice", "round")).message
    assert env.rows("SHOW FUNCTIONS") == [["twice", "x DOUBLE", "DOUBLE", ""]]


def test_a_select_calls_functions_and_says_why_they_fail(env) -> None:
    replica = with_orders(env)
    env.rows(TWICE)
    replica.append("s1", NOW + 10, [((1, 2.5), NOW, 1), ((2, None), NOW, 1)])
    results = env.sql("SELECT twice(amount) FROM orders ORDER BY id")
    assert results[0].columns[0].name == "twice(amount)"
    assert env.rows("SELECT twice(amount) FROM orders ORDER BY id") == [[5.0], [None]]
    failed = env.fails("SELECT twice(13)")
    raised = "twice raised ValueError: thirteen; of all numbers"
    assert failed.detail == f"cannot evaluate twice(13); {raised}"
    wrong = env.fails("SELECT twice('x'::VARCHAR)")
    assert "'twice(VARCHAR)'" in wrong.message


def test_a_plan_names_functions_as_the_query_does(env) -> None:
    with_orders(env)
    env.rows(TWICE)
    rows = [str(row) for (row,) in env.rows("EXPLAIN SELECT twice(amount) AS d FROM orders")]
    assert any(row.startswith("Project twice(amount) AS d") for row in rows)
    assert not [row for row in rows if "@" in row]


def test_functions_outlive_their_coordinator(env) -> None:
    with_orders(env)
    env.rows(TWICE)
    env.rows(VIEW)
    before = env.coordinator.catalog.state
    env.coordinator.stop()
    env.start()
    after = env.coordinator.catalog.state
    assert after.functions == before.functions
    assert replace(after, epoch=0, version=0) == replace(before, epoch=0, version=0)
    assert env.rows("SELECT twice(4)") == [[8.0]]


def test_what_changes_while_a_view_is_planned_is_planned_anew(env, monkeypatch) -> None:
    replica = with_orders(env)
    env.rows(TWICE)
    real, planned = env.coordinator._reads.evaluate, []

    def evaluate(request, take=bytes):
        ended = yield from real(request, take)
        if isinstance(request, View):
            planned.append(request)
            if len(planned) == 1:
                env.rows("DROP FUNCTION twice")
                env.rows(TWICE.replace("2.0", "3.0"))
        return ended

    monkeypatch.setattr(env.coordinator._reads, "evaluate", evaluate)
    env.rows(VIEW)
    assert len(planned) == 2
    eventually(lambda: len(replica.created) == 2)
    (function,) = plans.loads(replica.created[1].plan).functions
    assert "3.0" in function.body


def test_the_coordinator_evaluates_nothing_that_a_user_wrote(
    env, monkeypatch, tmp_path: Path
) -> None:
    def evaluated(*_: object):
        raise AssertionError("a text was evaluated in the coordinator")

    monkeypatch.setattr("streams.plan.bind.binder.binder", evaluated)
    monkeypatch.setattr("streams.plan.compile.binder", evaluated)
    monkeypatch.setattr("streams.trace.kernel.functions.compile_function", evaluated)
    log = tmp_path / "processes"
    replica = with_orders(env)
    telling = f"import os\nopen({str(log)!r}, 'a').write(str(os.getpid()) + chr(10))\n"
    env.rows(TWICE.replace("$$", f"$$\n{telling}", 1))
    env.rows(VIEW)
    env.rows("SELECT twice(a) AS x FROM (VALUES (1.0::DOUBLE)) t(a)")
    env.start()
    eventually(lambda: len(replica.created) == 2)
    assert not env.coordinator._reconciler.problems
    assert str(os.getpid()) not in log.read_text().split()
