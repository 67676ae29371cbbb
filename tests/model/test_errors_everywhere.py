"""Every operator over every kind of error: it lasts as its cause does, and costs no other row.

A row that fails is missing from everything that follows, and nothing else is: the view holds
what DuckDB answers over the inputs without the failing rows. When they are retracted it heals.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

from streams.testing import Maintained, maintain
from tests.support.plan_tables import connect

Change = tuple[tuple[object, ...], int, int]

NUMBERS = itertools.count()

TABLES = {
    "t": "k BIGINT, v VARCHAR, n BIGINT",
    "d": "n BIGINT, w BIGINT",
    "u": "k BIGINT, w BIGINT",
}
GOOD: dict[str, list[Change]] = {
    "t": [
        ((1, "5", 2), 1, 1),
        ((2, "7", 1), 1, 1),
        ((3, "5", 5), 1, 2),
        ((4, "1", 4), 1, 1),
        ((5, "3", 3), 2, 1),
        ((1, "5", 2), 3, -1),
        ((2, "2", 2), 4, 1),
        ((3, "5", 5), 5, -1),
    ],
    # of n = 0 there are two: a scalar subquery over them fails
    "d": [((n, w), 1, 1) for n, w in [(0, 1), (0, 2), (1, 10), (2, 2), (3, 5), (5, 7)]],
    "u": [((1, 2), 1, 1), ((2, 5), 1, 1), ((2, 7), 1, 1), ((7, 10), 1, 1), ((4, 2), 3, 1)],
}
BAD: list[Change] = [
    ((2, "seven", 0), 2, 1),
    ((9, "nine", 0), 3, 1),
    ((2, "seven", 0), 4, -1),
    ((9, "nine", 0), 5, -1),
]
FAILING = {1: 0, 2: 1, 3: 2, 4: 1, 5: 0}
"""How many rows fail at each time."""

KINDS = {
    "division": "10 // n",
    "cast": "CAST(v AS BIGINT)",
    "scalar subquery": "(SELECT w FROM d WHERE d.n = t.n)",
}
OPERATORS = {
    "project": "SELECT k, x FROM b",
    "filter": "SELECT k FROM b WHERE x > 5",
    "join": "SELECT b.k, x, w FROM b JOIN u ON b.k = u.k",
    "join on it": "SELECT b.k, u.w FROM b JOIN u ON x = u.w",
    "join residual": "SELECT b.k, u.w FROM b JOIN u ON b.k = u.k AND x < u.w",
    "self join": "SELECT one.x, other.x AS y FROM b one JOIN b other ON one.k = other.k",
    "left join": "SELECT b.k, x, w FROM b LEFT JOIN u ON b.k = u.k",
    "right join": "SELECT x, u.k, w FROM b RIGHT JOIN u ON b.k = u.k",
    "full join": "SELECT b.k, x, w FROM b FULL JOIN u ON b.k = u.k AND x <= w",
    "cross join": "SELECT b.k, x, w FROM b, u",
    "band join": "SELECT b.k, w FROM b JOIN u ON x BETWEEN w - 1 AND w + 1",
    "semi join": "SELECT w FROM u WHERE EXISTS (SELECT 1 FROM b WHERE b.x = u.w)",
    "anti join": "SELECT w FROM u WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.x = u.w)",
    "in": "SELECT k FROM b WHERE x IN (SELECT w FROM u)",
    "not in": "SELECT w FROM u WHERE w NOT IN (SELECT x FROM b WHERE x IS NOT NULL)",
    "all": "SELECT k FROM u WHERE w >= ALL (SELECT x FROM b WHERE b.k = u.k)",
    "lateral": "SELECT u.k, s FROM u, LATERAL (SELECT sum(x) AS s FROM b WHERE b.k = u.k)",
    "group": "SELECT k, count(*) AS n, sum(x) AS s, avg(x) AS a FROM b GROUP BY k",
    "group by it": "SELECT x, count(*) AS n FROM b GROUP BY x",
    "extremes": "SELECT k % 2 AS g, min(x) AS a, max(x) AS z FROM b GROUP BY g",
    "recomputed": "SELECT k % 2 AS g, string_agg(x::VARCHAR, ',' ORDER BY x) AS s FROM b"
    " GROUP BY g",
    "distinct aggregate": "SELECT k % 2 AS g, count(DISTINCT x) AS n FROM b GROUP BY g",
    "filtered aggregate": "SELECT k % 2 AS g, sum(k) FILTER (x > 5) AS s FROM b GROUP BY g",
    "global": "SELECT count(x) AS n, sum(x) AS s FROM b",
    "rollup": "SELECT k, x, count(x) AS n FROM b GROUP BY ROLLUP (k, x)",
    "having": "SELECT k, sum(x) AS s FROM b GROUP BY k HAVING sum(x) > 5",
    "distinct": "SELECT DISTINCT x FROM b",
    "distinct on": "SELECT DISTINCT ON (k) k, x FROM b ORDER BY k, x",
    "top-k": "SELECT k, x FROM b ORDER BY x DESC, k LIMIT 2",
    "top-k per group": "SELECT k, x FROM b"
    " QUALIFY row_number() OVER (PARTITION BY k ORDER BY x) <= 1",
    "window": "SELECT k, x, sum(x) OVER (PARTITION BY k ORDER BY x) AS s FROM b",
    "window by it": "SELECT k, count(*) OVER (PARTITION BY x) AS n FROM b",
    "rank": "SELECT k, rank() OVER (ORDER BY x) AS r FROM b",
    "union": "SELECT x FROM b UNION SELECT w FROM u",
    "union all": "SELECT x FROM b UNION ALL SELECT w FROM u",
    "intersect": "SELECT x FROM b INTERSECT SELECT w FROM u",
    "intersect all": "SELECT x FROM b INTERSECT ALL SELECT w FROM u",
    "except": "SELECT w FROM u EXCEPT SELECT x FROM b",
    "except all": "SELECT x FROM b EXCEPT ALL SELECT w FROM u",
    "recursion": "WITH RECURSIVE r(x) AS"
    " (SELECT x FROM b UNION SELECT x + 1 FROM r WHERE x < 8) SELECT x FROM r",
    "unnest": "SELECT k, unnest(range(x)) AS i FROM b",
    "temporal": "SELECT k, x FROM b WHERE mz_now() < 100",
    "common table": "WITH c AS (SELECT k, x FROM b) SELECT one.k FROM c one, c other"
    " WHERE one.x = other.x",
}  # fmt: skip
ONE_ERROR_A_ROW = {
    "project",
    "filter",
    "join",
    "left join",
    "group",
    "top-k",
    "window",
    "distinct",
}
"""Where a failing row is certainly one error, and not one for each reader of a common table."""


def table(name: str, changes: Iterable[Change]) -> pa.Table:
    columns = [declaration.split()[0] for declaration in TABLES[name].split(", ")]
    rows = [
        dict(zip(columns, row, strict=True)) | {"_time": t, "_diff": d} for row, t, d in changes
    ]
    return pa.Table.from_pylist(rows)


def run(query: str, tables: dict[str, list[Change]], cuts: Sequence[int] | None) -> Maintained:
    inputs = {name: table(name, changes) for name, changes in tables.items()}
    return maintain(query, TABLES, inputs, cuts)


@cache
def duckdb() -> DuckDBPyConnection:
    """One connection for all: to open one takes as long as ten answers."""
    return connect()


def wanted(query: str, tables: dict[str, list[Change]], time: int) -> Counter[str]:
    """DuckDB's answer over the tables at a time."""
    contents = tuple((name, held(changes, time)) for name, changes in tables.items())
    duckdb().execute(f"USE {schema(contents)}")
    relation = duckdb().sql(query.replace("mz_now() < 100", "true"))
    return Counter(map(str, relation.fetchall()))


def held(changes: Iterable[Change], time: int) -> tuple[tuple[object, ...], ...]:
    """The rows that are there at a time."""
    counts: Counter[tuple[object, ...]] = Counter()
    for row, at, diff in changes:
        counts[row] += diff if at <= time else 0
    return tuple(counts.elements())


@cache
def schema(contents: tuple[tuple[str, tuple[tuple[object, ...], ...]], ...]) -> str:
    """A schema of DuckDB's with tables of these contents, made once for all tests."""
    name, con = f"schema_{next(NUMBERS)}", duckdb()
    con.execute(f"CREATE SCHEMA {name}")
    for table_name, rows in contents:
        con.execute(f"CREATE TABLE {name}.{table_name} ({TABLES[table_name]})")
        if rows:
            one = f"({', '.join('?' * len(rows[0]))})"
            cells = [cell for row in rows for cell in row]
            con.execute(
                f"INSERT INTO {name}.{table_name} VALUES {', '.join([one] * len(rows))}", cells
            )
    return name


def contents(view: Maintained, time: int) -> Counter[str]:
    table = view.at(time)
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return Counter(map(str, zip(*columns, strict=True)))


def _plain(value: object) -> object:
    """HUGEINT as DuckDB shows it."""
    return int(value) if isinstance(value, Decimal) else value


def pairs() -> Iterator[Any]:
    """Every operator at each time over one kind of error, and cut over each kind.

    What fails is an expression below the operator, whose kind the operator does not see: so
    `make test` cuts each operator over one kind, all of them in turn.
    """
    for number, operator in enumerate(OPERATORS):
        yield operator, "division", None
        for turn, kind in enumerate(KINDS):
            is_its_turn = number % len(KINDS) == turn
            marks = () if is_its_turn else pytest.mark.long
            yield pytest.param(operator, kind, [3, 6], marks=marks)


@pytest.mark.parametrize(("operator", "kind", "cuts"), list(pairs()))
def test_a_failing_row_costs_no_other_and_heals(
    operator: str, kind: str, cuts: Sequence[int] | None
) -> None:
    query = f"WITH b AS (SELECT k, {KINDS[kind]} AS x FROM t) {OPERATORS[operator]}"
    if operator in {"recursion", "common table"}:
        query = OPERATORS[operator].replace(
            "FROM b", f"FROM (SELECT k, {KINDS[kind]} AS x FROM t) b"
        )
    view = run(query, GOOD | {"t": GOOD["t"] + BAD}, cuts)
    for time, failing in FAILING.items():
        if time < view.since:
            continue
        errors = view.errors_at(time)
        assert bool(errors) == bool(failing), (time, errors)
        if operator in ONE_ERROR_A_ROW:
            assert len(errors) == failing, (time, errors)
        assert contents(view, time) == wanted(query, GOOD, time), time


def test_a_subquery_heals_when_its_second_row_goes() -> None:
    query = f"SELECT k, {KINDS['scalar subquery']} AS x FROM t"
    going: list[Change] = [*GOOD["d"], ((0, 2), 3, -1)]
    tables = GOOD | {"t": GOOD["t"] + BAD[:1], "d": going}
    view = run(query, tables, None)
    assert [len(view.errors_at(time)) for time in range(1, 6)] == [0, 1, 0, 0, 0]
    for time in (3, 4, 5):
        assert contents(view, time) == wanted(query, tables, time)


OWN = {
    "group key": "SELECT {} AS x, count(*) AS n FROM t GROUP BY x",
    "argument": "SELECT k % 2 AS g, sum({}) AS s FROM t GROUP BY g",
    "condition of a join": "SELECT t.k, w FROM t JOIN u ON t.k = u.k AND {} < w",
    "key of a join": "SELECT t.k, w FROM t JOIN u ON {} = w",
    "condition of an outer join": "SELECT t.k, w FROM t LEFT JOIN u ON t.k = u.k AND {} < w",
    "order": "SELECT k FROM t ORDER BY {}, k LIMIT 3",
    "argument of a window": "SELECT k, sum({}) OVER (PARTITION BY k % 2) AS s FROM t",
    "partition": "SELECT k, count(*) OVER (PARTITION BY {}) AS n FROM t",
}


@pytest.mark.parametrize("cuts", [None, [6]], ids=["each time", "at once"])
@pytest.mark.parametrize("kind", ["division", "cast"])
@pytest.mark.parametrize("place", OWN)
def test_what_an_operator_itself_computes_may_fail(
    place: str, kind: str, cuts: Sequence[int] | None
) -> None:
    query = OWN[place].format(KINDS[kind])
    view = run(query, GOOD | {"t": GOOD["t"] + BAD}, cuts)
    # a condition is computed for pairs alone: 9 has no partner in u, and 2 has two
    pairs = place.startswith("condition")
    for time, failing in FAILING.items():
        if time < view.since:
            continue
        wrong = {1: 0, 2: 1, 3: 1, 4: 0, 5: 0}[time] if pairs else failing
        assert bool(view.errors_at(time)) == bool(wrong), (time, view.errors_at(time))
        if not (pairs and "outer" in place):
            assert contents(view, time) == wanted(query, GOOD, time), time


def test_a_group_that_fails_costs_no_other_group() -> None:
    query = "SELECT k % 2 AS g, 10 // (count(*) - 3) AS x FROM t GROUP BY g"
    view = run(query, {"t": GOOD["t"]}, None)
    # rows of odd k: 3, 4, 3, 3, 2; of even k: 2, 2, 2, 3, 3
    odd, even = {1: 3, 2: 4, 3: 3, 4: 3, 5: 2}, {1: 2, 2: 2, 3: 2, 4: 3, 5: 3}
    for time in range(1, 6):
        counts = {1: odd[time], 0: even[time]}
        assert len(view.errors_at(time)) == sum(count == 3 for count in counts.values())
        expected = {(group, 10 // (count - 3)) for group, count in counts.items() if count != 3}
        assert contents(view, time) == Counter(map(str, expected)), time


NEGATIVE = {
    "group": "SELECT k, count(*) AS n, sum(n) AS s FROM t GROUP BY k",
    "extremes": "SELECT k, min(n) AS a FROM t GROUP BY k",
    "recomputed": "SELECT k, string_agg(v, ',' ORDER BY v) AS s FROM t GROUP BY k",
    "distinct": "SELECT DISTINCT k, v FROM t",
    "distinct aggregate": "SELECT k, count(DISTINCT v) AS n FROM t GROUP BY k",
    "top-k": "SELECT k, v FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) <= 1",
    "window": "SELECT k, v, count(*) OVER (PARTITION BY k) AS n FROM t",
    "union": "SELECT k FROM t UNION SELECT k FROM t",
    "intersect all": "SELECT k, v FROM t INTERSECT ALL SELECT k, v FROM t",
    "except": "SELECT k, v FROM t EXCEPT SELECT k, v FROM t WHERE k = 77",
    "semi join": "SELECT DISTINCT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.w > t.n)",
    "join, then group": "SELECT t.k, count(*) AS n FROM t JOIN u ON u.w > t.n GROUP BY t.k",
}  # fmt: skip


@pytest.mark.parametrize("cuts", [None, [6]], ids=["each time", "at once"])
@pytest.mark.parametrize("operator", NEGATIVE)
def test_a_row_that_is_there_less_than_no_times_is_an_error_of_its_key(
    operator: str, cuts: Sequence[int] | None
) -> None:
    """Of key 4 there is -1 at the times 2 and 3."""
    query = NEGATIVE[operator]
    deletions: list[Change] = [((4, "1", 4), 2, -2), ((4, "1", 4), 4, 2)]
    view = run(query, {"t": GOOD["t"] + deletions, "u": GOOD["u"]}, cuts)
    tables = {"t": GOOD["t"], "u": GOOD["u"]}
    others = tables | {"t": [change for change in GOOD["t"] if change[0][0] != 4]}
    for time in range(max(1, view.since), 6):
        is_wrong = time in {2, 3}
        assert bool(view.errors_at(time)) == is_wrong, (time, view.errors_at(time))
        assert contents(view, time) == wanted(query, others if is_wrong else tables, time), time
