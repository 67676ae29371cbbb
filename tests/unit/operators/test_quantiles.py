"""Quantiles by search: DuckDB's own answer at every time, at the price of what changed."""

import random
from collections import Counter
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.ids import CollectionId
from streams.operators.local import LocalDataflow
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Column, Reduce
from streams.progress import interval_of
from streams.testing import maintain
from tests.support.examples import examples
from tests.support.work import counted

Row = tuple[int | None, str | None]
History = list[tuple[Row, int, int]]
TIMES = 24

TYPES = {
    "INTEGER": [*"0123456789", "-2147483648", "2147483647"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807", "3", "4", "9007199254740993"],
    "UBIGINT": ["0", "18446744073709551615", "5", "6"],
    "HUGEINT": [
        "-170141183460469231731687303715884105727",
        "0",
        "17",
        "18",
        "10000000000000000000",
    ],
    "DOUBLE": ["-inf", "inf", "nan", "0.1", "0.7", "-0.0", "0.0", "1e300", "3.3"],
    "FLOAT": ["-inf", "inf", "nan", "0.1", "0.7", "-3.3", "1e30"],
    "DECIMAL(4,1)": ["0.1", "0.7", "-0.2", "99.9", "-99.8"],
    "DECIMAL(9,2)": ["0.1", "0.7", "-0.2", "12345.67"],
    "DECIMAL(18,3)": ["0.1", "0.7", "-0.2", "123456789012345.678"],
    "DECIMAL(38,2)": ["0.1", "0.7", "-0.2", "1234567890123456789012345.67"],
    "DATE": ["2020-01-01", "2020-01-04", "1960-02-03", "1999-12-31"],
    "TIME": ["00:00:00.000001", "01:02:03.456789", "23:59:59", "12:00:00.5"],
    "TIMESTAMP": ["2020-01-01 01:02:03.456789", "1960-02-03 04:05:06.000001", "1999-12-31"],
    "TIMESTAMPTZ": ["2020-01-01 01:02:03.456789+00", "1999-12-31 00:00:00+00"],
    "VARCHAR": ["", "a", "ab", "b", "ä", "zebra and other animals"],
    "BOOLEAN": ["true", "false"],
}
DISCRETE = {"VARCHAR", "BOOLEAN"}
LONG = {"UBIGINT", "FLOAT", "DECIMAL(4,1)", "DECIMAL(18,3)", "TIME", "TIMESTAMPTZ"}
"""Types that are searched like another one."""
KINDS = [pytest.param(k, marks=pytest.mark.long if k in LONG else ()) for k in TYPES]
SHARES = ("0", "0.1", "0.25", "0.333", "0.5", "0.9", "0.95", "1")


def history(chance: random.Random, values: list[str], most: int = 80) -> History:
    """Inserts and retractions; often of a row at the time at which it came."""
    live: list[Row] = []
    changes: History = []
    for time in sorted(chance.choices(range(TIMES), k=chance.randrange(most))):
        if live and chance.random() < 0.45:
            changes.append((live.pop(chance.randrange(len(live))), time, -1))
            continue
        row = (chance.choice([1, 1, 1, 2, None]), chance.choice([None, *values]))
        count = chance.choice([1, 1, 1, 3])
        live += [row] * count
        changes.append((row, time, count))
        if chance.random() < 0.2:
            changes.append((live.pop(), time, -1))
    return changes


def connected() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'; SET arrow_lossless_conversion = true")
    return connection


DUCKDB = connected()


def table(rows: History, kind: str) -> pa.Table:
    types = {"g": pa.int32(), "x": pa.string(), "_time": pa.int64(), "_diff": pa.int64()}
    columns = [[g, x, time, diff] for (g, x), time, diff in rows]
    arrays = [
        pa.array([row[i] for row in columns], type_) for i, type_ in enumerate(types.values())
    ]
    DUCKDB.register("r", pa.table(arrays, names=list(types)))
    text = f"SELECT g, CAST(x AS {kind}) AS x, _time, _diff FROM r"
    return DUCKDB.sql(text).to_arrow_table()


def counts(rows: History, time: int) -> Counter[Row]:
    multiset: Counter[Row] = Counter()
    for row, when, diff in rows:
        multiset[row] += diff if when <= time else 0
    return multiset


def answer(rows: History, time: int, query: str, changes: pa.Table) -> list[str]:
    """What DuckDB says of the rows that are there."""
    place = {row: i for i, (row, _, _) in enumerate(rows)}
    there = [place[row] for row in counts(rows, time).elements()]
    DUCKDB.register("t", changes.select(["g", "x"]).take(pa.array(there, pa.int64())))
    return shown(DUCKDB.sql(query).to_arrow_table())


def shown(unordered: pa.Table) -> list[str]:
    """Rows in an order; equal numbers of whatever kind, and the two zeros, look the same."""
    DUCKDB.register("f", unordered)
    rows = DUCKDB.sql("SELECT * FROM f").fetchall()
    return sorted(str([_plain(value) for value in row]) for row in rows)


def _plain(value: object) -> object:
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, Decimal) and value == int(value):
        return int(value)  # a HUGEINT travels as either
    return value


def calls(chance: random.Random, kind: str) -> list[str]:
    share = chance.choice(SHARES)
    calls_ = ["median(x)", f"quantile_disc(x, {share})", f"quantile(x, {share})"]
    if kind not in DISCRETE:
        calls_ += [f"quantile_cont(x, {share})"] * 3
        calls_ += [f"percentile_cont({share}) WITHIN GROUP (ORDER BY x)"]
    calls_ = chance.sample(calls_, chance.randint(1, len(calls_)))
    return [
        call + chance.choice(["", "", " FILTER (WHERE g IS NULL OR x IS DISTINCT FROM x)"])
        if chance.random() < 0.3
        else call
        for call in calls_
    ]


def searched(query: str, kind: str) -> bool:
    """Whether no aggregate of the view is computed anew."""
    relation = Relation(CollectionId("t"), (Column("g", "INTEGER"), Column("x", kind)))
    nodes = compile_view(query, {"t": relation}).dataflow.nodes
    aggregates = [
        call for node in nodes if isinstance(node, Reduce) for call in node.aggregates
    ]
    return bool(aggregates) and not any(call.sql for call in aggregates)


def check(seed: int, kind: str) -> None:
    chance = random.Random(seed)
    rows = history(chance, TYPES[kind])
    outputs = ", ".join(f"{call} AS o{i}" for i, call in enumerate(calls(chance, kind)))
    by = chance.choice(["", " GROUP BY g"])
    more = chance.choice(["", ", count(*) AS n, min(x) AS least, count(DISTINCT x) AS d"])
    query = f"SELECT {'g, ' if by else ''}{outputs}{more} FROM t{by}"
    assert searched(query, kind)
    cuts = sorted({*chance.sample(range(1, TIMES), chance.randrange(6)), TIMES})
    changes, columns = table(rows, kind), {"t": f"g INTEGER, x {kind}"}
    factor = chance.choice([0, 2])
    view = maintain(query, columns, {"t": changes}, cuts, merge_factor=factor)
    for time in range(view.since, view.upper):
        assert shown(view.at(time)) == answer(rows, time, query, changes), (query, time, rows)
        assert view.errors_at(time) == []


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32))
@examples(2)
def test_quantiles_agree_with_duckdb_at_every_time(kind: str, seed: int) -> None:
    check(seed, kind)


@given(st.integers(0, 2**32))
@examples(8)
def test_a_group_is_an_error_while_a_value_has_a_negative_count(seed: int) -> None:
    chance = random.Random(seed)
    rows = history(chance, TYPES["INTEGER"], 40)
    row, early = (
        (chance.choice([1, None]), chance.choice(TYPES["INTEGER"])),
        chance.randrange(9),
    )
    rows += [(row, early, -2), (row, chance.randrange(early, TIMES), 2)]
    rows.sort(key=lambda case: case[1])
    query = "SELECT g, median(x) AS m, quantile_disc(x, 0.9) AS d FROM t GROUP BY g"
    cuts = sorted({*chance.sample(range(1, TIMES), chance.randrange(9)), TIMES})
    changes = table(rows, "INTEGER")
    view = maintain(query, {"t": "g INTEGER, x INTEGER"}, {"t": changes}, cuts)
    for time in range(view.since, view.upper):
        negative = min(counts(rows, time).values(), default=0) < 0
        assert bool(view.errors_at(time)) == negative, (rows, time)
        if not negative:
            assert shown(view.at(time)) == answer(rows, time, query, changes), (rows, time)


APART = {
    "DISTINCT": "median(DISTINCT x)",
    "a list of shares": "quantile_cont(x, [0.1, 0.5])",
    "a list of one share": "quantile_disc(x, [0.5])",
    "from the greatest value down": "quantile_cont(x, -0.3)",
    "a share that is no decimal": "quantile_disc(x, 0.3::DOUBLE)",
}


@pytest.mark.parametrize("call", APART.values(), ids=APART)
def test_other_quantiles_are_computed_anew(call: str) -> None:
    assert not searched(f"SELECT {call} AS o FROM t", "INTEGER")


def work(query: str, directory: Path, values: np.ndarray, times: np.ndarray) -> int:
    """The rows that a step looks at, in a group of 100,000 rows."""
    relation = Relation(CollectionId("t"), (Column("g", "INTEGER"), Column("x", "BIGINT")))
    dataflow = compile_view(query, {"t": relation}).dataflow
    local = LocalDataflow(dataflow, directory, buckets=1)
    local.step(interval_of(0, 1, as_of=True), {})
    everything = np.random.default_rng(1).permutation(100_000) * 10
    for part in range(4):
        some = everything[part::4]
        local.step(
            interval_of(part + 1, part + 2), {0: updates(some, np.full(len(some), part + 1))}
        )
    with counted() as done:
        local.step(interval_of(5, int(times.max()) + 1), {0: updates(values, times)})
    return done.rows


def updates(values: np.ndarray, times: np.ndarray) -> pa.Table:
    size = len(values)
    return pa.table(
        {
            "g": pa.array(np.zeros(size), pa.int32()),
            "x": pa.array(values, pa.int64()),
            "time": pa.array(times, pa.int64()),
            "diff": np.ones(size, np.int64),
        }
    )


CALLS = ("median(x)", "quantile_cont(x, 0.9)", "quantile_disc(x, 0.001)")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", [3, 500_003, 999_983])
def test_one_change_looks_at_its_rank(call: str, value: int, tmp_path: Path) -> None:
    query = f"SELECT g, {call} AS o FROM t GROUP BY g"
    assert work(query, tmp_path, np.array([value]), np.array([5])) < 100


@pytest.mark.parametrize("call", CALLS)
def test_many_times_look_as_far_as_the_changes_reach(call: str, tmp_path: Path) -> None:
    query = f"SELECT g, {call} AS o FROM t GROUP BY g"
    values = np.arange(300) * 371 + 1
    assert work(query, tmp_path, values, np.arange(300) + 5) < 20 * len(values)
