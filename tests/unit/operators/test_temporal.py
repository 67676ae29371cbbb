"""Temporal filters: by hand against the model, and queries against DuckDB, at every time."""

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.operators.engine import next_due
from streams.plan.physical import Bound, Expression, Temporal
from streams.progress import interval_of
from streams.testing import maintain
from tests.model import collection as model
from tests.model.collection import Contents, Update
from tests.support.examples import examples
from tests.support.flows import (
    LAST,
    cuts,
    dataflow,
    histories,
    layouts,
    run,
    running,
    table,
)
from tests.support.logical_time import set_time
from tests.support.plan_tables import answer, connect

TYPES = ["INTEGER", "BIGINT"]
JUDGE: Mapping[str, Callable[[int, int], bool]] = {
    "<": lambda time, value: time < value,
    "<=": lambda time, value: time <= value,
    "=": lambda time, value: time == value,
    ">=": lambda time, value: time >= value,
    ">": lambda time, value: time > value,
}
LATEST = LAST + 6
values = st.sampled_from([None, -1, 0, 1, 3, 5, 8, 1 << 62, (1 << 63) - 1, -(1 << 63)])
rows = st.tuples(st.sampled_from([None, 0, 1, 2]), values)
comparisons = st.lists(st.sampled_from([*JUDGE]), min_size=1, max_size=2)


def column(index: int, kind: str) -> Expression:
    return Expression(f"c{index}", kind, f"x{index}")


@given(histories(rows), comparisons, st.booleans(), cuts(), layouts())
@examples(60)
def test_a_row_is_there_while_every_bound_says_so(
    updates: list[Update],
    chosen: list[str],
    narrow: bool,
    uppers: list[int],
    layout: Mapping[str, Any],
) -> None:
    bounds = tuple(Bound(comparison, column(1, "BIGINT")) for comparison in chosen)
    keep = Expression("c0 > 0", "BOOLEAN", "x0 > 0")
    outputs = (column(0, "INTEGER"), *(() if narrow else (column(1, "BIGINT"),)))
    node = Temporal(0, (keep,), bounds, outputs)
    types = TYPES[: len(outputs)]
    history = run(dataflow([TYPES], (node, types, 1)), [updates], [*uppers, LATEST], **layout)
    for time in range(LATEST):
        want: Contents = Counter()
        for (x, at), count in model.contents(updates, time).items():
            if (
                x
                and at is not None
                and all(JUDGE[comparison](time, at) for comparison in chosen)
            ):
                want[(x,) if narrow else (x, at)] += count
        assert history.at(time) == want, f"at {time}"
        assert not history.errors_at(time), f"at {time}"


@pytest.mark.parametrize("comparison", JUDGE)
def test_a_bound_of_null_is_never_true(comparison: str) -> None:
    node = Temporal(0, (), (Bound(comparison, column(1, "BIGINT")),), (column(0, "INTEGER"),))
    flow = dataflow([TYPES], (node, ["INTEGER"], 1))
    history = run(flow, [[((1, None), 0, 1)]], [1, LATEST])
    assert not any(history.at(time) for time in range(LATEST))


@given(histories(rows), cuts(), layouts())
@examples(40)
def test_a_row_that_fails_is_an_error_unless_something_says_no(
    updates: list[Update], uppers: list[int], layout: Mapping[str, Any]
) -> None:
    """The predicate fails at 0, the second bound at 1, the output at 2."""
    keep = Expression("10 // c0 > 0", "BOOLEAN", "10 // x0 > 0")
    until = Expression("c1", "BIGINT", "x1")
    after = Expression("3 // (c0 - 1)", "BIGINT", "3 // (x0 - 1)")
    shown = Expression("1 // (c0 - 2)", "INTEGER", "1 // (x0 - 2)")
    node = Temporal(0, (keep,), (Bound("<", until), Bound(">=", after)), (shown,))
    flow = dataflow([TYPES], (node, ["INTEGER"], 1))
    history = run(flow, [updates], [*uppers, LATEST], **layout)
    enters = {0: -3, 1: 0, 2: 3}
    failing = {0: "10 // x0 > 0", 1: "3 // (x0 - 1)", 2: "1 // (x0 - 2)"}
    for time in range(LATEST):
        want: Counter[str] = Counter()
        for (x, at), count in model.contents(updates, time).items():
            if x is not None and at is not None and enters[x] <= time < at:
                want[f"cannot evaluate {failing[x]}"] += count
        assert history.errors_at(time) == want, f"at {time}"
        assert not history.at(time)


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_NS"])
@pytest.mark.parametrize("comparison", JUDGE)
@pytest.mark.parametrize("literal", [
    "1970-01-01 00:00:00.003", "1970-01-01 00:00:00.0034", "1969-12-31 23:59:59.9999",
    "infinity",
])  # fmt: skip
def test_a_timestamp_is_finer_than_a_time(kind: str, comparison: str, literal: str) -> None:
    text = f"SELECT 1 AS one FROM t WHERE mz_now() {comparison} '{literal}'::{kind}"
    once = pa.table({"a": [1], "_time": [0], "_diff": [1]})
    view = maintain(text, {"t": "a INTEGER"}, {"t": once}, [1, 7])
    connection = connect()
    for time in range(7):
        now = f"SELECT make_timestamp({time} * 1000) {comparison} '{literal}'::{kind}"
        want = connection.execute(now.replace("_NS", "")).fetchone()
        assert want is not None
        assert view.at(time).num_rows == want[0], f"at {time}"


QUERIES = (
    "SELECT a, d FROM t WHERE mz_now() {0} d + {2}",
    "SELECT a, d FROM t WHERE mz_now() {0} d + {2} AND mz_now() {1} e",
    "SELECT a, count(*) AS n, min(d) AS least FROM t WHERE mz_now() {0} d GROUP BY a",
    "SELECT count(*) AS n, sum(e) AS s FROM t WHERE d + {2} {0} mz_now() AND a < 2",
    "SELECT a, max(d) AS most FROM t GROUP BY a HAVING mz_now() {0} max(d)",
    "SELECT t.a, u.e FROM t JOIN u ON t.a = u.a AND mz_now() {0} t.d WHERE mz_now() {1} u.e",
    "SELECT t.a, u.e FROM t, u WHERE mz_now() {0} t.d + u.d AND t.a <= u.a",
    "SELECT t.a, x.e FROM t LEFT JOIN (FROM u WHERE mz_now() {0} e) x ON t.a = x.a",
    "SELECT a FROM t WHERE a IN (SELECT a FROM u WHERE mz_now() {0} d) AND mz_now() {1} e",
    "SELECT a FROM t WHERE NOT EXISTS (FROM u WHERE u.a = t.a AND mz_now() {0} u.d)",
    "SELECT a FROM t WHERE mz_now() {0} (SELECT max(d) FROM u)",
    "SELECT DISTINCT a FROM t WHERE mz_now() {0} d EXCEPT SELECT a FROM u WHERE mz_now() {1} e",
    "SELECT a, d FROM t WHERE mz_now() {0} d ORDER BY d, a, e LIMIT 2",
    "SELECT a, d, count(*) OVER (PARTITION BY a) AS n FROM (FROM t WHERE mz_now() {0} d)",
    "WITH x AS (FROM t WHERE mz_now() {0} d) SELECT p.a, q.d FROM x p JOIN x q ON p.a = q.a",
    "WITH x AS (SELECT a, max(d) AS d FROM t WHERE mz_now() {0} e GROUP BY a)"
    " SELECT a FROM x WHERE mz_now() {1} d",
)
maybe = st.one_of(st.none(), st.integers(0, 8))
small = st.tuples(st.integers(0, 2), st.integers(0, LAST), maybe)


@given(
    st.sampled_from(QUERIES), st.sampled_from([*JUDGE]), st.sampled_from([*JUDGE]),
    histories(small, 10), histories(small, 10), cuts(), layouts(),
)  # fmt: skip
@examples(30)
def test_queries_agree_with_duckdb_at_every_time(
    query: str,
    one: str,
    other: str,
    ours: list[Update],
    theirs: list[Update],
    uppers: list[int],
    layout: Mapping[str, Any],
) -> None:
    text = query.format(one, other, 2)
    kinds = ["INTEGER", "BIGINT", "BIGINT"]
    changes = {"t": table(ours, kinds), "u": table(theirs, kinds)}
    names = ["a", "d", "e", "_time", "_diff"]
    view = maintain(
        text,
        dict.fromkeys(changes, "a INTEGER, d BIGINT, e BIGINT"),
        {name: fetched.rename_columns(names) for name, fetched in changes.items()},
        [*uppers, LATEST],
        buckets=layout["buckets"],
        merge_factor=layout["merge_factor"],
    )
    connection = connect()
    for name, fetched in changes.items():
        connection.register(f"h_{name}", fetched.rename_columns(names))
    for time in range(view.since, LATEST):
        for name in changes:
            summed = "SELECT a, d, e, sum(_diff)::BIGINT AS n"
            contents = f"{summed} FROM h_{name} WHERE _time <= {time} GROUP BY ALL"
            connection.execute(
                f"CREATE OR REPLACE TABLE {name} AS SELECT a, d, e FROM ({contents}), range(n)"
            )
        set_time(connection, time)
        want = answer(connection, text)[1]
        assert not view.errors_at(time), (text, time)
        connection.register("got", view.at(time))
        assert answer(connection, "FROM got")[1] == want, (text, time)


def test_a_constant_comes_and_goes() -> None:
    view = maintain("SELECT 1 AS x WHERE mz_now() BETWEEN 3 AND 4", {}, {}, [1, 4, 7])
    assert [view.at(time).num_rows for time in range(7)] == [0, 0, 0, 1, 1, 0, 0]


def test_time_goes_on_and_nothing_is_left_of_it() -> None:
    """Each wake-up is told beforehand, and costs no more state."""
    node = Temporal(0, (), (Bound("<=", column(1, "BIGINT")),), (column(0, "INTEGER"),))
    flow = dataflow([TYPES], (node, ["INTEGER"], 1))
    rows = [((i, 10 * i), 0, 1) for i in range(5)]
    with running(flow) as local:
        local.step(interval_of(0, 1, as_of=True), {0: table(rows, TYPES)})
        seen: list[object] = []
        for lower, upper in pairwise([1, 11, 12, 25, 60]):
            times = [next_due(flow, runs) for runs in local.runs.values()]
            seen.append(min((time for time in times if time is not None), default=None))
            outputs, errors = local.step(interval_of(lower, upper), {})
            seen.append(sorted((u["time"], u["diff"]) for o in outputs for u in o.to_pylist()))
            assert not errors
        remaining = [names for runs in local.runs.values() for names in runs.values()]
    assert seen == [
        1, [(1, -1)], 11, [(11, -1)], 21, [(21, -1)], 31, [(31, -1), (41, -1)],
    ]  # fmt: skip
    assert remaining
    assert not any(remaining)


def test_what_is_replaced_is_not_waited_for() -> None:
    """Of a key that is written again and again only the last row is pending."""
    node = Temporal(0, (), (Bound("<=", column(1, "BIGINT")),), (column(0, "INTEGER"),))
    flow = dataflow([TYPES], (node, ["INTEGER"], 1))
    with running(flow, merge_factor=1000) as local:
        for time in range(20):
            changes = [((time, 500), time, 1), ((time - 1, 500), time, -1)][: 1 + (time > 0)]
            local.step(interval_of(time, time + 1, as_of=time == 0), {0: table(changes, TYPES)})
        rows = [
            int(name[1])
            for runs in local.runs.values()
            for names in runs.values()
            for name in names
        ]
    assert sum(rows) == 1
