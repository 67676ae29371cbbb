"""Filters that follow from the distance of times take away nothing that a query shows.

With and without them a view has the same rows and the same errors at each time, also over the
times at which a calendar ends, where sums fail, and over those that are unknown.
"""

import random
from collections import Counter
from importlib import import_module

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.plan.analyses.time_bounds import POINTS, earliest, later, latest
from streams.plan.scalar import Call, Form, Literal, Ref, Scalar
from streams.plan.to_sql import sql
from streams.testing import maintain
from streams.testing.maintain import Maintained
from tests.support.examples import examples

PUSHDOWN = import_module("streams.plan.passes.pushdown")
TABLES = dict.fromkeys("ab", "id BIGINT, page VARCHAR, ts TIMESTAMP, until TIMESTAMP, x DOUBLE")
LAST = 24
LOWEST, HIGHEST = -9_223_372_022_400_000_000, 9_223_372_036_854_775_806
FAR = [
    None, LOWEST, LOWEST + 1, LOWEST + 3_000, LOWEST + 86_400_000_000, -(1 << 60), -5_000,
    1 << 60, HIGHEST - 86_400_000_000, HIGHEST - 3_000, HIGHEST - 1, HIGHEST, HIGHEST + 1,
    -HIGHEST - 1,
]  # fmt: skip
"""Microseconds: no time, the ends of the calendar and what is near them, both infinities."""

NEAR = "b.ts BETWEEN a.ts - INTERVAL '3 ms' AND a.ts + INTERVAL '2 ms'"
FRAME = "ORDER BY ts RANGE BETWEEN INTERVAL '3 ms' PRECEDING AND INTERVAL '2 ms' FOLLOWING"
TURNED = (
    "ORDER BY ts DESC RANGE BETWEEN INTERVAL '1 day' PRECEDING AND INTERVAL '3 ms' FOLLOWING"
)
OPEN = "mz_now() < a.ts + INTERVAL '5 ms'"
JOINS = (
    f"FROM a JOIN b ON {NEAR} WHERE {OPEN}",
    f"FROM a JOIN b ON {NEAR} WHERE mz_now() <= b.ts",
    f"FROM a JOIN b ON {NEAR} WHERE mz_now() < greatest(a.ts, b.ts + INTERVAL '1 day')",
    f"FROM a JOIN b ON a.page = b.page AND a.ts <= b.ts - INTERVAL '1 ms' WHERE {OPEN}",
    f"FROM a JOIN b ON a.ts - INTERVAL '1 month' < b.ts AND a.id >= b.id WHERE {OPEN}",
    f"FROM a JOIN b ON a.ts + INTERVAL '1 ms' <= b.ts WHERE {OPEN}",
    f"FROM a JOIN b ON a.ts BETWEEN b.ts AND b.until WHERE {OPEN} AND 4 // (b.id - a.id) < 9",
    f"FROM a JOIN b ON a.ts <= b.ts + to_days((b.id * 1000000)::INTEGER) WHERE {OPEN}",
    f"FROM a JOIN b ON a.ts <= b.until AND a.until <= b.ts WHERE {OPEN} AND mz_now() < a.until",
    "FROM a JOIN b ON a.ts <= b.ts WHERE mz_now() < time_bucket(INTERVAL '8 hours', a.ts)",
    "FROM a JOIN b ON a.ts <= b.ts WHERE mz_now() < time_bucket(INTERVAL '7 days', a.ts)",
    "FROM a JOIN b ON a.ts <= b.ts WHERE mz_now() < a.ts - INTERVAL '1 ms'",
    "FROM a JOIN b ON a.ts <= b.ts WHERE mz_now() < date_trunc('minute', a.ts)"
    " + INTERVAL '1 minute'",
    "FROM a JOIN b ON time_bucket(INTERVAL '4 ms', a.ts) <= date_trunc('day', b.ts)"
    f" WHERE {OPEN}",
    f"FROM a JOIN b ON a.ts <= b.ts JOIN b c ON b.ts - INTERVAL '2 ms' <= c.ts WHERE {OPEN}",
    f"FROM a LEFT JOIN b ON {NEAR} WHERE {OPEN}",
    f"FROM a LEFT JOIN b ON {NEAR} AND 4 // (b.id - a.id) < 9 WHERE {OPEN}",
    f"FROM a LEFT JOIN b ON {NEAR} WHERE mz_now() < coalesce(b.ts, a.ts) + INTERVAL '4 ms'",
    f"FROM a LEFT JOIN b ON {NEAR} WHERE mz_now() < greatest(b.until, a.ts)",
    f"FROM a JOIN b ON {NEAR} AND b.ts <= b.until WHERE mz_now() < a.ts AND mz_now() < b.until",
)
QUERIES = (
    *(f"SELECT a.id, b.id AS other, a.ts {join}" for join in JOINS),
    f"SELECT id FROM a WHERE {OPEN} AND EXISTS (FROM b WHERE {NEAR} AND b.id <> a.id)",
    f"SELECT id FROM a WHERE {OPEN} AND NOT EXISTS (FROM b WHERE {NEAR} AND b.id <> a.id)",
    f"SELECT id, (SELECT b.id FROM b WHERE {NEAR}) AS one FROM a WHERE {OPEN}",
    f"SELECT id, (SELECT count(*) FROM b WHERE {NEAR}) AS n FROM a WHERE {OPEN}",
    f"SELECT * FROM (SELECT id, ts, count(*) OVER (PARTITION BY page {FRAME}) AS n FROM a) a"
    f" WHERE {OPEN}",
    f"SELECT * FROM (SELECT id, ts, min(id) OVER ({FRAME}) AS n, first(id) OVER ({TURNED}) AS f"
    f" FROM a) a WHERE {OPEN} AND 9 // (id - n) < 4",
    f"SELECT ts, sum(n)::BIGINT AS n FROM (SELECT ts, count(*) OVER ({FRAME}) AS n FROM a) a"
    f" GROUP BY ts HAVING {OPEN}",
    f"SELECT * FROM (SELECT id, ts, sum(7 // id) OVER ({FRAME}) AS n FROM a) a WHERE {OPEN}",
    f"SELECT * FROM (SELECT id, ts, sum(x) OVER ({FRAME}) AS n FROM a) a WHERE {OPEN}",
    f"SELECT * FROM (SELECT id, ts, count(*) OVER (PARTITION BY 7 // id {FRAME}) AS n FROM a) a"
    f" WHERE {OPEN}",
    f"SELECT * FROM (SELECT id, ts, count(*) OVER ({FRAME}) AS n FROM a) a"
    " WHERE mz_now() < greatest(ts, TIMESTAMP '1970-01-01 00:00:00.009')",
    "SELECT * FROM (SELECT id, ts, count(*) OVER (ORDER BY ts NULLS FIRST RANGE BETWEEN"
    " INTERVAL '3 ms' PRECEDING AND UNBOUNDED FOLLOWING) AS n FROM a) a"
    " WHERE mz_now() < coalesce(ts, TIMESTAMP '1970-01-01 00:00:00.009')",
)


def changes(chance: random.Random, far: float) -> pa.Table:
    """Rows at about their time, or late; some go again; some have times that are far."""
    rows = []
    for number in range(12):
        at = chance.choice(FAR) if chance.random() < far else chance.randrange(LAST * 1000)
        until = chance.choice(FAR) if chance.random() < far else chance.randrange(LAST * 1000)
        time = chance.randrange(LAST)
        x = chance.choice([0.1, 1e16, -1e16, 3.3])
        row = (number % 5, chance.choice("xy"), at, until, x)
        rows.append((*row, time, 1))
        if chance.random() < 0.2:
            rows.append((*row, chance.randrange(time, LAST), -1))
    point = pa.timestamp("us")
    fields = (pa.int64(), pa.string(), point, point, pa.float64(), pa.int64(), pa.int64())
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, type_) for values, type_ in zip(columns, fields, strict=True)]
    return pa.table(arrays, names=["id", "page", "ts", "until", "x", "_time", "_diff"])


def shown(view: Maintained) -> list[tuple[Counter[str], list[str]]]:
    """The rows and the errors at each time; times as microseconds."""
    return [
        (Counter(map(str, numbered(view.at(time)))), view.errors_at(time))
        for time in range(view.since, view.upper)
    ]


def numbered(rows: pa.Table) -> list[dict[str, object]]:
    arrays = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in rows.columns
    ]
    numbers: list[dict[str, object]] = pa.table(arrays, names=rows.column_names).to_pylist()
    return numbers


@pytest.mark.parametrize("query", QUERIES)
@given(
    seed=st.integers(0, 1 << 32),
    far=st.sampled_from([0.0, 0.2, 0.8]),
    cuts=st.sets(st.integers(1, LAST + 3), max_size=4),
)
@examples(4)
def test_what_follows_from_distances_changes_nothing(
    query: str, seed: int, far: float, cuts: set[int]
) -> None:
    chance = random.Random(seed)
    updates = {name: changes(chance, far) for name in TABLES}
    uppers = sorted({*cuts, LAST + 4})
    derived = shown(maintain(query, TABLES, updates, uppers))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PUSHDOWN, "implied_conjuncts", lambda *_: ())
        patched.setattr(PUSHDOWN, "seen_conjunct", lambda *_: None)
        plain = shown(maintain(query, TABLES, updates, uppers))
    assert derived == plain


LENGTHS = (
    "0 months 0 days -4000 microseconds", "0 months 0 days 4000 microseconds",
    "0 months 0 days 25200000000 microseconds", "0 months 0 days 28800000000 microseconds",
    "0 months 1 days 0 microseconds", "0 months 7 days 0 microseconds",
    "1 months 0 days 0 microseconds",
)  # fmt: skip
UNITS = ("second", "minute", "hour", "day", "week", "month", "year")


def made_of(time: Scalar) -> list[Scalar]:
    """What is made of a time and constants."""
    intervals = [
        Literal(f"CAST('{length}' AS INTERVAL)", "INTERVAL", length) for length in LENGTHS
    ]
    units = [Literal(f"CAST('{unit}' AS VARCHAR)", "VARCHAR", f"'{unit}'") for unit in UNITS]
    cuts = [("time_bucket", interval) for interval in intervals[1:]]
    cuts += [("date_trunc", unit) for unit in units]
    sums = ((sign, term) for sign in "+-" for term in intervals)
    return [
        *(Call(Form.FUNCTION, name, (term, time), time.type) for name, term in cuts),
        *(Call(Form.INFIX, sign, (time, term), time.type) for sign, term in sums),
    ]


@pytest.mark.parametrize("kind", sorted(POINTS))
def test_bounds_hold_and_fail_at_one_end_of_the_calendar(kind: str) -> None:
    column = Ref(0, kind, "ts")
    once = made_of(column)
    con = duckdb.connect()
    con.execute("SET TimeZone='UTC'")
    values = ", ".join(f"({at})" for at in FAR if at is not None and abs(at) <= HIGHEST)
    moments = f"SELECT make_timestamp(us)::{kind} AS c0 FROM (VALUES {values}) v(us)"
    con.execute(f"CREATE TABLE t AS {moments}")

    def wrong(time: Scalar, micros: int, sign: str) -> bool:
        own, limit = sql(time), sql(later(column, micros))
        failing = f"c0 {sign} make_timestamp(0)::{kind} AND TRY({own}) IS NULL"
        beyond = f"TRY({own}) {'>' if sign == '<' else '<'} TRY({limit})"
        count = f"SELECT count(*) FROM t WHERE ({failing}) OR {beyond}"
        return con.execute(count).fetchone() != (0,)

    bounds = 0
    for time in [*once, *(twice for one in once for twice in made_of(one))]:
        above, below = latest(time), earliest(time)
        if above is not None:
            assert not wrong(time, above.columns[column], "<"), sql(time)
        if below is not None:
            assert not wrong(time, below[1], ">"), sql(time)
        bounds += (above is not None) + (below is not None)
    assert bounds > 100
