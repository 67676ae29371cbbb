"""Statements that were written to break something: an error each, and others are answered."""

import pytest

from streams.adapter.results import Complete
from tests.support.coordinators import NOW, TOTALS, with_orders
from tests.support.processes import eventually

DEEP = "the statement is nested too deeply"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT " + "(" * 10_000 + "1" + ")" * 10_000, DEEP),
        ("SELECT " + "(" * 100_000, DEEP),
        ("SELECT " + "[" * 5_000 + "1" + "]" * 5_000, DEEP),
        ("SELECT * FROM " + "(SELECT * FROM " * 2_000 + "orders" + ")" * 2_000, DEEP),
        ("SELECT * FROM " + "(SELECT * FROM " * 101 + "orders" + ")" * 101, DEEP),
        ("CREATE MATERIALIZED VIEW v AS SELECT " + "(" * 5_000 + "id FROM orders", DEEP),
        (
            "CREATE SOURCE x FROM KAFKA (TOPIC 'orders') (a "
            + "STRUCT(a " * 3_000
            + "INT"
            + ")" * 3_000
            + ") FORMAT JSON",
            DEEP,
        ),
        ("SELECT " + "NOT " * 20_000 + "true", "max expression depth"),
        ("SELECT " + "1+" * 20_000 + "1", "max expression depth"),
        ("SELECT 'a\0b'", "the text holds a NUL character"),
        ('CREATE MATERIALIZED VIEW "a\0b" AS SELECT id FROM orders', "the text holds a NUL"),
        ("SELECT 1;" * 1_001, "expected at most 1000 statements, actual 1001"),
        ("SELECT * FROM orders AS OF " + "9" * 5_000, "expected a time"),
        ("SELECT '" + "x" * 1_000_000, "the text ends inside a string"),
        ("/*" * 10_000, "the text ends inside"),
    ],
)
def test_each_is_refused(env, text, message) -> None:
    with_orders(env)
    version = env.coordinator.catalog.state.version
    assert message in env.fails(text).message
    assert env.coordinator.catalog.state.version == version
    assert env.rows("SELECT 1") == [[1]]


def test_what_is_nested_as_deeply_as_may_be_is_answered(env) -> None:
    with_orders(env).append("s1", NOW + 10)
    text = "SELECT id FROM " + "(SELECT * FROM " * 100 + "orders" + ")" * 100
    assert env.rows(text) == []
    assert env.rows("SELECT " + "(" * 100 + "1" + ")" * 100) == [[1]]


def test_semicolons_are_no_statements(env) -> None:
    assert env.sql(";" * 100_000) == []


@pytest.mark.parametrize("at_start", [True, False])
def test_a_definition_that_a_defect_keeps_down_keeps_no_other_down(
    env, monkeypatch, at_start
) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    if at_start:
        env.rows(TOTALS)
        eventually(lambda: len(replica.created) == 2)

    def deep(*_: object):
        raise RecursionError("maximum recursion depth exceeded")

    with monkeypatch.context() as damaged:
        if at_start:
            damaged.setattr(env.workers, "answer", deep)
        else:
            damaged.setattr("streams.adapter.provisioning.write_capability", deep)
        if at_start:
            env.start()
        else:
            assert isinstance(env.sql(TOTALS)[-1], Complete)
        assert "RecursionError" in str(env.rows("SHOW MATERIALIZED VIEWS")[0][6])
        assert env.rows("SELECT id FROM orders") == []
    eventually(lambda: not env.coordinator._reconciler.problems)
