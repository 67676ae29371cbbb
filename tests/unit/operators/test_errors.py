"""Errors are data: a failing row becomes an error, heals, and costs no other row a thing."""

from collections import Counter

import duckdb
import pyarrow as pa
import pytest

from streams.operators.try_eval import with_lazy_operands
from streams.plan.physical import Aggregate, Expression, Linear, Reduce
from streams.testing import maintain
from tests.support.flows import dataflow, kernel, run

ONE = Expression("(10 // c0)", "INTEGER", "10 // x0")
TWO = Expression("CAST(c1 AS INTEGER)", "INTEGER", "CAST(x1 AS INTEGER)")
TYPES = ["INTEGER", "VARCHAR"]


def test_a_failing_row_is_an_error_and_heals() -> None:
    node = Linear(0, (), (ONE, TWO))
    flow = dataflow([TYPES], (node, ["INTEGER", "INTEGER"], 0))
    updates = [
        ((1, "1"), 0, 1),
        ((0, "7"), 1, 2),
        ((5, "x"), 1, 1),
        ((0, "x"), 2, 1),
        ((0, "7"), 3, -2),
        ((5, "x"), 3, -1),
        ((0, "x"), 3, -1),
    ]
    history = run(flow, [updates], [1, 2, 3, 4])
    first, second = "cannot evaluate 10 // x0", "cannot evaluate CAST(x1 AS INTEGER)"
    assert history.at(2) == Counter({(10, 1): 1})
    assert history.errors_at(0) == Counter()
    assert history.errors_at(1) == Counter({first: 2, second: 1})
    assert history.errors_at(2) == Counter({first: 3, second: 1})
    assert history.errors_at(3) == Counter()
    assert history.at(3) == Counter({(10, 1): 1})


def test_a_false_predicate_beats_a_failing_one() -> None:
    failing = Expression("(10 // c0) > 1", "BOOLEAN", "10 // x0 > 1")
    other = Expression("c1 = 'yes'", "BOOLEAN", "x1 = 'yes'")
    keep = Expression("c0", "INTEGER", "x0")
    flow = dataflow([TYPES], (Linear(0, (failing, other), (keep,)), ["INTEGER"], 0))
    updates = [
        ((0, "no"), 0, 1),
        ((0, None), 0, 1),
        ((0, "yes"), 0, 1),
        ((2, "yes"), 0, 1),
        ((50, "yes"), 0, 1),
    ]
    history = run(flow, [updates], [1])
    assert history.at(0) == Counter({(2,): 1})
    assert history.errors_at(0) == Counter({"cannot evaluate 10 // x0 > 1": 1})


def test_the_company_of_a_row_does_not_change_its_result() -> None:
    """A row inserted beside a failing one is retracted alone: the two must meet."""
    either = Expression("((c0 = 0) OR ((10 // c0) > 1))", "BOOLEAN", "either")
    flow = dataflow([TYPES], (Linear(0, (either,), (ONE, TWO)), ["INTEGER", "INTEGER"], 0))
    row, company = (5, "3"), (1, "bad")
    alone = run(flow, [[(row, 0, 1), (row, 1, -1)]], [1, 2])
    together = run(flow, [[(row, 0, 1), (company, 0, 1), (row, 1, -1)]], [1, 2])
    assert alone.at(0) == Counter({(2, 3): 1})
    assert together.at(0) == Counter({(2, 3): 1})
    assert alone.at(1) == together.at(1) == Counter()


def test_what_two_outputs_share_may_fail() -> None:
    """DuckDB would compute the shared part outside of both TRYs."""
    more = Expression("(CAST(c1 AS INTEGER) + 1)", "INTEGER", "CAST(x1 AS INTEGER) + 1")
    flow = dataflow([TYPES], (Linear(0, (), (TWO, more)), ["INTEGER", "INTEGER"], 0))
    history = run(flow, [[((1, "x"), 0, 1), ((1, "4"), 0, 1)]], [1])
    assert history.at(0) == Counter({(4, 5): 1})
    assert history.errors_at(0) == Counter({"cannot evaluate CAST(x1 AS INTEGER)": 1})


def test_a_function_that_try_refuses_is_found_by_halving() -> None:
    raising = Expression(
        "CASE WHEN (c0 = 3) THEN CAST(error('three') AS INTEGER) ELSE c0 END",
        "INTEGER",
        "three",
    )
    flow = dataflow([TYPES], (Linear(0, (), (raising,)), ["INTEGER"], 0))
    updates = [((n % 10, "x"), 0, 1) for n in range(40)]
    history = run(flow, [updates], [1])
    assert history.at(0) == Counter({(n,): 4 for n in range(10) if n != 3})
    assert history.errors_at(0) == Counter({"cannot evaluate three": 4})


@pytest.mark.parametrize(
    ("sql", "want"),
    [
        ("c0 = 0 OR 10 // c0 > 1", [True, True, "failed"]),
        ("10 // c0 > 1 OR c0 = 0", [True, True, "failed"]),
        ("c0 <> 0 AND 10 // c0 > 1", [False, True, "failed"]),
        ("NOT (c0 = 0 OR 10 // c0 > 1)", [False, False, "failed"]),
        ("c0 BETWEEN 0 AND 1 OR 10 // c0 > 1", [True, True, "failed"]),
        ("10 // c0 > 1 AND c0 BETWEEN 1 AND 2", [False, True, "failed"]),
        ("CASE WHEN c0 = 0 OR 1 // c0 > 0 THEN 'x AND y' END", ["x AND y"] * 2 + ["failed"]),
        ("list_contains([1, 2], c0) OR 10 // c0 = 0", ["failed", True, "failed"]),
        ("c0 = 0 OR (c0 = 1 AND (c0 = 1 OR 1 // (c0 - 1) = 1))", [True, True, "failed"]),
    ],
)  # fmt: skip
def test_and_and_or_mind_no_order(sql: str, want: list[object]) -> None:
    """On 0, 1 and a row where every operand fails."""
    tried = f"try({{'v': {with_lazy_operands(sql.replace('c0', 'CAST(c0 AS INTEGER)'))}}})"
    rows = kernel().careful.query(
        f"SELECT {tried} AS r FROM (VALUES ('0'), ('1'), ('bad')) AS v(c0)"
    )
    values = ["failed" if row is None else row["v"] for row in rows["r"].to_pylist()]
    assert values == want


def test_case_does_not_compute_an_operand_of_in_for_other_rows() -> None:
    """DuckDB makes a join of IN with many constants: its left side is computed of each row."""
    query = f"""SELECT id, CASE WHEN regexp_full_match(s, '[0-9]+')
        THEN s::INTEGER IN ({", ".join(map(str, range(20)))}) END AS known FROM t"""
    times = {"_time": [1, 1, 1], "_diff": [1, 1, 1]}
    texts = pa.table({"id": [1, 2, 3], "s": ["5", "five", "50"], **times})
    view = maintain(query, {"t": "id BIGINT, s VARCHAR"}, {"t": texts})
    by_id = {row["id"]: row["known"] for row in view.at(1).to_pylist()}
    assert by_id == {1: True, 2: None, 3: False}


def test_text_that_looks_like_and_stays() -> None:
    assert with_lazy_operands("c0 = 'x AND y'") == "c0 = 'x AND y'"
    assert with_lazy_operands('"a OR b" = 1') == '"a OR b" = 1'


NEGATIVE = "group has a negative number of rows"


def test_a_negative_multiplicity_is_an_error_per_time() -> None:
    counts = (Aggregate("count", None, "BIGINT"), Aggregate("min", 1, "VARCHAR"))
    flow = dataflow([TYPES], (Reduce(0, (0,), counts), ["INTEGER", "BIGINT", "VARCHAR"], 1))
    updates = [
        ((1, "a"), 0, 1),
        ((1, "b"), 1, -2),
        ((1, "b"), 3, 2),
        ((2, "c"), 2, 1),
    ]
    for uppers in ([1, 2, 3, 4], [4]):
        history = run(flow, [updates], uppers)
        assert history.at(0) == Counter({(1, 1, "a"): 1})
        assert history.at(1) == Counter()
        assert history.errors_at(1) == Counter({NEGATIVE: 1})
        assert history.at(2) == Counter({(2, 1, "c"): 1})
        assert history.errors_at(2) == Counter({NEGATIVE: 1})
        assert history.at(3) == Counter({(1, 1, "a"): 1, (2, 1, "c"): 1})
        assert history.errors_at(3) == Counter()


def test_a_sum_out_of_range_is_an_error_and_heals() -> None:
    most = 170141183460469231731687303715884105727
    storage = most.to_bytes(16, "little", signed=True)
    one = (1).to_bytes(16, "little", signed=True)
    aggregates = (
        Aggregate("sum", 1, "HUGEINT"),
        Aggregate("avg", 1, "DOUBLE"),
        Aggregate("count", None, "BIGINT"),
    )
    types = ["INTEGER", "HUGEINT", "DOUBLE", "BIGINT"]
    flow = dataflow([["INTEGER", "HUGEINT"]], (Reduce(0, (0,), aggregates), types, 1))
    updates = [((1, storage), 0, 1), ((1, one), 1, 1), ((2, one), 1, 1), ((1, one), 2, -1)]
    for uppers in ([1, 2, 3], [3]):
        history = run(flow, [updates], uppers)
        fine = (1, storage, float(most), 1)
        assert history.at(0) == Counter({fine: 1})
        assert history.errors_at(1) == Counter({"sum is out of range for HUGEINT": 1})
        assert history.at(1) == Counter({(2, one, 1.0, 1): 1})
        assert history.at(2) == Counter({fine: 1, (2, one, 1.0, 1): 1})
        assert history.errors_at(2) == Counter()


def test_when_no_row_is_left_the_errors_are() -> None:
    failing = Expression("(10 // c0) > 1", "BOOLEAN", "10 // x0 > 1")
    expressions = tuple(Expression(f"c{i}", kind, f"x{i}") for i, kind in enumerate(TYPES))
    flow = dataflow([TYPES], (Linear(0, (failing,), expressions), TYPES, 0))
    history = run(flow, [[((0, "1"), 0, 1), ((0, "1"), 1, -1)]], [1, 2])
    assert history.at(0) == Counter()
    assert history.errors_at(0) == Counter({"cannot evaluate 10 // x0 > 1": 1})
    assert history.errors_at(1) == Counter()


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("SELECT count(*) AS n FROM (SELECT s::INTEGER FROM t UNION ALL SELECT 1)", {"n": 3}),
        ("SELECT count(*) AS n FROM (SELECT * FROM t ORDER BY s::INTEGER)", {"n": 2}),
        ("SELECT sum(7) FILTER (WHERE keep)::BIGINT AS n FROM t", {"n": 7}),
    ],
)
def test_rule_38_what_is_not_read_does_not_fail(query: str, row: dict[str, int]) -> None:
    """Nobody reads the value of a column, or an order that decides about no row."""
    view = maintain(query, {"t": "s VARCHAR, keep BOOLEAN"}, {"t": _kept(at=0)})
    assert view.errors_at(0) == []
    assert view.at(0).to_pylist() == [row]


@pytest.mark.parametrize("group", ["", " GROUP BY keep"])
@pytest.mark.parametrize(
    "call",
    [
        "count(DISTINCT s::INTEGER)",
        "sum(s::INTEGER)",
        "mode(s::INTEGER)",
        "list(s::INTEGER)",
        "median(s::INTEGER)",
        "string_agg(s, ',' ORDER BY s::INTEGER)",
        "regr_count(1, s::INTEGER)",
        "regr_slope(s::INTEGER, NULL::INTEGER)",
    ],
)
def test_rule_38_an_argument_fails_whatever_filter_drops(call: str, group: str) -> None:
    query = f"SELECT {call} FILTER (WHERE keep) AS n FROM t{group}"
    deletion = _kept(at=1).slice(1).set_column(3, "_diff", pa.array([-1]))
    updates = pa.concat_tables([_kept(at=0), deletion])
    view = maintain(query, {"t": "s VARCHAR, keep BOOLEAN"}, {"t": updates}, [1, 2])
    assert view.errors_at(0)
    assert view.errors_at(1) == []
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS FROM (VALUES ('7', true), ('x', false)) v(s, keep)")
    with pytest.raises(duckdb.ConversionException):
        connection.execute(query)


def _kept(at: int) -> pa.Table:
    return pa.table(
        {"s": ["7", "x"], "keep": [True, False], "_time": [at, at], "_diff": [1, 1]}
    )
