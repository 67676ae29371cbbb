"""Windows over neighbours: exact at every time, at the price of what a change moves."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.ids import CollectionId
from streams.operators import block_sums, interesting_times, neighbourhoods, running_sums
from streams.operators.local import LocalDataflow
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import (
    Column,
    Groupwise,
)
from streams.plan.window_frames import Before
from streams.progress import interval_of
from streams.testing import maintain
from streams.trace.arrange import order, ordered
from streams.trace.columns import Ints, Words, hash_keys
from tests.support.examples import examples
from tests.support.work import counted

Row = tuple[int | None, int | None, str | None]
History = list[tuple[Row, int, int]]
TYPES = (pa.int32(), pa.int32(), pa.string())
TIMES = 24
ROWS = (
    "lag(x) OVER w",
    "lead(x, 2, 0) OVER w",
    "lag(s, -1, 'none') OVER w",
    "first_value(x) OVER (w ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
    "last_value(s) OVER (w ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW)",
    "CAST(sum(x) OVER (w ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS BIGINT)",
    "count(*) FILTER (WHERE s = 'a') OVER (w ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING)",
    "max(s) OVER (w ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING)",
    "avg(x) OVER (w ROWS BETWEEN 1 PRECEDING AND 1 PRECEDING)",
    "sum(x::DECIMAL(9, 1)) OVER (w ROWS 1 PRECEDING)",
)
RUNNING = (
    "row_number() OVER w",
    "count(*) OVER (w ROWS UNBOUNDED PRECEDING)",
    "CAST(sum((x - 5) * 5000000000) OVER peers AS BIGINT)",
    "sum(x::DECIMAL(9, 1)) OVER (w ROWS UNBOUNDED PRECEDING)",
    "count(x) OVER peers",
    "rank() OVER peers",
)
DECIDED = (
    "max(x) OVER peers",
    "min(x) OVER (w ROWS UNBOUNDED PRECEDING)",
    "max(s) OVER (w ROWS UNBOUNDED PRECEDING)",
    "min(s) OVER peers",
    "bool_or(x % 3 = 0) OVER peers",
    "bool_and(x < 7) OVER (w ROWS UNBOUNDED PRECEDING)",
    "first_value(s⟦ ORDER BY {order}⟧) OVER peers",
    "first_value(x) OVER (w ROWS UNBOUNDED PRECEDING)",
    "last_value(s⟦ ORDER BY {order}⟧) OVER peers",
)
GROUPS = (
    "count(*) OVER (peers GROUPS BETWEEN CURRENT ROW AND CURRENT ROW)",
    "count(*) OVER (peers GROUPS BETWEEN 1 PRECEDING AND 2 FOLLOWING EXCLUDE TIES)",
    "CAST(sum(x) OVER (peers GROUPS BETWEEN 2 PRECEDING AND 1 PRECEDING) AS BIGINT)",
    "max(s) OVER (peers GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE GROUP)",
    "min(x) OVER (peers RANGE BETWEEN CURRENT ROW AND CURRENT ROW EXCLUDE CURRENT ROW)",
    "first_value(s⟦ ORDER BY {order}⟧) OVER (peers GROUPS BETWEEN 1 FOLLOWING AND 1 FOLLOWING)",
)
RANGE = (
    "count(*) OVER (peers RANGE BETWEEN {2} PRECEDING AND CURRENT ROW)",
    "count(x) OVER (peers RANGE BETWEEN {1} PRECEDING AND {2} FOLLOWING EXCLUDE TIES)",
    "CAST(sum(x) OVER (peers RANGE BETWEEN {3} PRECEDING AND {1} PRECEDING) AS BIGINT)",
    "max(s) OVER (peers RANGE BETWEEN CURRENT ROW AND {2} FOLLOWING EXCLUDE GROUP)",
    "last_value(s⟦ ORDER BY {order}⟧) OVER (peers RANGE BETWEEN {0} FOLLOWING"
    " AND {3} FOLLOWING)",
)


@dataclass(frozen=True)
class Line:
    """A value made from x that orders rows, and some constants to measure by."""

    sql: str
    steps: tuple[str, ...]


LINES = (
    Line("x", ("0", "1", "2", "3")),
    Line("(x + 116)::TINYINT", ("0", "1", "1", "2")),  # 127 is the last
    Line("x::DECIMAL(9, 2) * 0.25", ("0.0", "0.25", "0.5", "0.75")),
    Line("(x // 2)::DECIMAL(9, 2)", ("0.0", "0.5", "1.0", "2.5")),
    Line("DATE '2024-01-24' + x * 2", tuple(f"INTERVAL {days} DAYS" for days in (0, 1, 2, 4))),
    Line(
        "TIMESTAMP '2024-01-28' + to_days(x * 3 % 34)",
        (
            "INTERVAL 1 HOUR",
            "INTERVAL 2 DAYS",
            "INTERVAL '1 month'",
            "INTERVAL '1 month 1 day'",
        ),
    ),
)


def history(chance: random.Random) -> History:
    """Inserts, retractions of rows that are there, and at times of rows that are not."""
    live: list[Row] = []
    changes: History = []
    for time in sorted(chance.choices(range(TIMES), k=chance.randrange(90))):
        if live and chance.random() < 0.45:
            changes.append((live.pop(chance.randrange(len(live))), time, -1))
            continue
        row = (
            chance.choice([1, 1, 1, 2, None]),
            chance.choice([None, *range(12)]),
            chance.choice(["a", "b", None]),
        )
        count = chance.choice([1, 1, 1, 3])
        live += [row] * count
        changes.append((row, time, count))
    return changes


def table(rows: History) -> pa.Table:
    arrays = [pa.array([row[i] for row, _, _ in rows], kind) for i, kind in enumerate(TYPES)]
    arrays += [pa.array([row[i] for row in rows], pa.int64()) for i in (1, 2)]
    return pa.table(arrays, names=["g", "x", "s", "_time", "_diff"])


@dataclass(frozen=True)
class Query:
    """Calls over `t` with a column `o` beside its own. In ⟦⟧ stands what pins down DuckDB."""

    line: str
    partition: str
    descending: bool
    calls: tuple[str, ...]

    @property
    def view(self) -> str:
        return self._text("t", re.sub("⟦.*?⟧", "", ", ".join(self.calls)), "")

    @property
    def pinned(self) -> str:
        numbered = "(SELECT *, row_number() OVER (PARTITION BY g, x, s) AS i FROM t)"
        calls = ", ".join(self.calls).replace("⟦", "").replace("⟧", "")
        text = self._text(
            numbered, calls.format(order=f"{self._order}, g, x, s, i"), ", g, x, s, i"
        )
        return f"SELECT * EXCLUDE (i) FROM ({text})"

    @property
    def _order(self) -> str:
        return f"o{' DESC' if self.descending else ''}"

    def _text(self, source: str, calls: str, ties: str) -> str:
        own = f"{self.partition}ORDER BY {self._order}"
        windows = f"WINDOW w AS ({own}{ties}), peers AS ({own})"
        return f"SELECT *, {calls} FROM (SELECT *, {self.line} AS o FROM {source}) {windows}"


def query(chance: random.Random) -> Query:
    line = chance.choice(LINES)
    counted = ROWS + GROUPS + RUNNING + DECIDED
    kinds = [ROWS, counted, GROUPS, RANGE, RANGE, RUNNING, DECIDED, DECIDED, RUNNING + DECIDED]
    some = chance.choice(kinds)
    calls = chance.sample(some, chance.randint(1, 3))
    calls_ = [f"{_measured(call, line.steps)} AS o{i}" for i, call in enumerate(calls)]
    partition = chance.choice(["PARTITION BY g ", ""])
    return Query(line.sql, partition, chance.random() < 0.4, tuple(calls_))


def _measured(call: str, steps: tuple[str, ...]) -> str:
    for place, step in enumerate(steps):
        call = call.replace(f"{{{place}}}", step)
    return call


def answer(
    connection: duckdb.DuckDBPyConnection, rows: History, time: int, asked: Query
) -> list[str] | None:
    """DuckDB's rows with ties broken by the whole row; None for an error."""
    counts: Counter[Row] = Counter()
    for row, when, diff in rows:
        counts[row] += diff if when <= time else 0
    if min(counts.values(), default=0) < 0:
        return None
    there = list(counts.elements())
    arrays = [pa.array([row[i] for row in there], kind) for i, kind in enumerate(TYPES)]
    connection.register("t", pa.table(arrays, names=["g", "x", "s"]))
    try:
        return sorted(map(str, connection.sql(asked.pinned).fetchall()))
    except duckdb.OutOfRangeException:
        return None


def colliding(_: Sequence[pa.Array], rows: int) -> Words:
    """One hash for all keys."""
    return np.full(rows, 7, np.uint64)


def check(seed: int, *, negative: bool) -> None:
    chance = random.Random(seed)
    rows = history(chance)
    if negative:
        row, first, count = chance.choice(rows) if rows else ((1, 1, "a"), 0, 1)
        early = chance.randint(0, first)
        rows = [((row, early, -count)), *rows, (row, TIMES - 2, count)]
    text = query(chance)
    cuts = sorted({*chance.sample(range(1, TIMES), chance.randrange(6)), TIMES})
    columns = {"t": "g INTEGER, x INTEGER, s VARCHAR"}
    with (
        patch.object(neighbourhoods, "MOST_CELLS", chance.choice([1, 50, 1 << 18])),
        patch.object(block_sums, "BLOCK", chance.choice([1, 2, 1 << 10])),
        patch.object(block_sums, "_CHUNK", chance.choice([1, 1 << 10])),
        patch.object(ordered, "_SCANNED", chance.choice([0, 32])),
        patch.object(interesting_times, "hash_keys", chance.choice([hash_keys, colliding])),
    ):
        view = maintain(
            text.view, columns, {"t": table(rows)}, cuts, merge_factor=chance.choice([0, 2])
        )
    connection = duckdb.connect()
    connection.execute("SET default_null_order = 'postgres'; SET integer_division = true")
    for time in range(view.since, view.upper):
        want = answer(connection, rows, time, text)
        assert bool(view.errors_at(time)) == (want is None), (text.view, time)
        if want is not None:
            actual = sorted(str(tuple(row.values())) for row in view.at(time).to_pylist())
            assert actual == want, (text.view, time)


@pytest.mark.parametrize(
    "calls",
    [ROWS, GROUPS, RANGE, RUNNING, DECIDED],
    ids=["rows", "groups", "range", "running", "decided"],
)
@pytest.mark.parametrize("line", LINES, ids=[line.sql for line in LINES])
def test_all_of_these_are_kept_by_their_neighbours(calls: tuple[str, ...], line: Line) -> None:
    columns = tuple(
        Column(*column) for column in [("g", "INTEGER"), ("x", "INTEGER"), ("s", "VARCHAR")]
    )
    calls_ = tuple(_measured(call, line.steps) for call in calls)
    text = Query(line.sql, "PARTITION BY g ", True, calls_).view
    nodes = compile_view(text, {"t": Relation(CollectionId("t"), columns)}).dataflow.nodes
    assert [node.why for node in nodes if isinstance(node, Groupwise)] == [""]


@given(st.integers(0, 2**32))
@examples(12)
def test_neighbours_agree_with_duckdb_at_every_time(seed: int) -> None:
    check(seed, negative=False)


@given(st.integers(0, 2**32))
@examples(6)
def test_a_group_is_an_error_while_a_row_is_there_a_negative_number_of_times(
    seed: int,
) -> None:
    check(seed, negative=True)


def test_a_group_heals_with_all_its_rows() -> None:
    rows: History = [((2, 11, None), 2, -1), ((1, 8, "a"), 2, 1), ((2, 11, None), 4, 1)]
    query = "SELECT x, lag(x) OVER (ORDER BY x) AS o FROM t"
    columns = {"t": "g INTEGER, x INTEGER, s VARCHAR"}
    view = maintain(query, columns, {"t": table(rows)}, [3, 5])
    assert view.errors_at(2) == view.errors_at(3) != []
    assert (view.at(4).to_pylist(), view.errors_at(4)) == ([{"x": 8, "o": None}], [])


def outputs(text: str, rows: History, cuts: list[int], time: int) -> list[object]:
    """The column `o` of a view over `t`, in order."""
    columns = {"t": "g INTEGER, x INTEGER, s VARCHAR"}
    view = maintain(text, columns, {"t": table(rows)}, cuts)
    assert view.errors_at(time) == []
    return sorted(row["o"] for row in view.at(time).to_pylist())


def test_a_month_reaches_as_far_as_its_longest_day() -> None:
    """31 March less a month is 29 February, which plus a month is 29 March."""
    day = "TIMESTAMP '2024-02-29' + to_days(x)"
    frame = "RANGE BETWEEN INTERVAL 1 MONTH PRECEDING AND CURRENT ROW"
    text = f"SELECT count(*) OVER (ORDER BY d {frame}) AS o FROM (SELECT *, {day} AS d FROM t)"
    rows: History = [((1, 31, None), 0, 1), ((1, 60, None), 0, 1), ((1, 0, None), 1, 1)]
    assert outputs(text, rows, [1, 2], 1) == [1, 2, 2]


def test_all_peers_see_a_change_however_many_they_are() -> None:
    sizes = {1: 200, 2: 60, 3: 30}
    rows: History = [((1, x, str(i)), 0, 1) for x, size in sizes.items() for i in range(size)]
    frame = "GROUPS BETWEEN CURRENT ROW AND 1 FOLLOWING"
    text = f"SELECT s, count(*) OVER (ORDER BY x {frame}) AS o FROM t"
    rows.append(((1, 2, "more"), 1, 1))
    assert outputs(text, rows, [1, 2], 1) == [30] * 30 + [91] * 61 + [261] * 200


def test_a_bound_that_is_no_value_fails_its_group_until_its_row_goes() -> None:
    frame = "RANGE BETWEEN CURRENT ROW AND 7 FOLLOWING"
    text = f"SELECT g, count(*) OVER (PARTITION BY g ORDER BY y {frame}) AS o FROM "
    text += "(SELECT *, (x + 100)::TINYINT AS y FROM t)"
    rows: History = [((1, 20, None), 0, 1), ((1, 21, None), 1, 1), ((2, 5, None), 1, 1)]
    rows += [((1, 19, None), 2, 1), ((1, 21, None), 3, -1)]
    columns = {"t": "g INTEGER, x INTEGER, s VARCHAR"}
    view = maintain(text, columns, {"t": table(rows)}, [1, 2, 3, 4])
    assert [len(view.errors_at(time)) for time in range(4)] == [0, 1, 1, 0]
    assert sorted(row["o"] for row in view.at(3).to_pylist()) == [1, 1, 2]


def test_running_sums_go_on_from_sums_beyond_64_bits() -> None:
    """Copies far before, in two runs and some of them gone again; then changes behind them."""
    source = f"(SELECT *, (x % 4 - 1) * {UNIT} AS v FROM t)"
    text = f"SELECT sum(v) OVER (ORDER BY x) AS o FROM {source}"
    values = [*range(300), *range(299)]
    rows: History = [((1, x, None), 0, 3) for x in values]
    rows += [((1, x, None), 1, -1) for x in values]
    rows += [((1, x, "b"), 1 + i, 1) for i, x in enumerate((302, 305, 302, 401))]
    view = maintain(
        text, {"t": "g INTEGER, x INTEGER, s VARCHAR"}, {"t": table(rows)}, [1, 2, 5]
    )
    counts = Counter(x for (_, x, _), _, diff in rows for _ in range(diff))
    counts.subtract(x for (_, x, _), _, diff in rows for _ in range(-diff))
    sums = np.cumsum([counts[x] * (x % 4 - 1) for x in range(402)])
    want = [int(sums[x]) * UNIT for x in range(402) for _ in range(counts[x])]
    assert sorted(int(row["o"]) for row in view.at(4).to_pylist()) == sorted(want)


UNIT = 4_000_000_000_000_000_000


COLUMNS = (Column("k", "BIGINT"), Column("v", "BIGINT"))


def updates(values: np.ndarray, times: np.ndarray) -> pa.Table:
    size = len(values)
    return pa.table(
        {
            "k": np.zeros(size, np.int64),
            "v": values,
            "time": times.astype(np.int64),
            "diff": np.ones(size, np.int64),
        }
    )


def work(query: str, directory: Path, values: np.ndarray, times: np.ndarray) -> int:
    """The rows that a step looks at, in a partition of 20,000 rows."""
    catalog = {"t": Relation(CollectionId("t"), COLUMNS)}
    local = LocalDataflow(compile_view(query, catalog).dataflow, directory, buckets=1)
    local.step(interval_of(0, 1, as_of=True), {})
    local.step(interval_of(1, 2), {0: updates(np.arange(20_000) * 10, np.ones(20_000))})
    with counted() as done:
        local.step(interval_of(2, int(times.max()) + 1), {0: updates(values, times)})
    return done.rows


SEEN = (
    "lag(v, 2) OVER (PARTITION BY k ORDER BY v)",
    "sum(v) OVER (PARTITION BY k ORDER BY v ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING)",
    "first_value(v) OVER (PARTITION BY k ORDER BY v ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)",
    "count(*) OVER (PARTITION BY k ORDER BY v GROUPS BETWEEN 2 PRECEDING AND 1 FOLLOWING)",
    "max(v) OVER (PARTITION BY k ORDER BY v DESC RANGE BETWEEN 20 PRECEDING AND 9 FOLLOWING)",
    "max(v) OVER (PARTITION BY k ORDER BY v DESC)",
    "min(v) OVER (PARTITION BY k ORDER BY v ROWS UNBOUNDED PRECEDING)",
    "max(v % 1000) OVER (PARTITION BY k ORDER BY v), lag(v) OVER (PARTITION BY k ORDER BY v)",
    "first_value(k) OVER (PARTITION BY k ORDER BY v)",
    "last_value(v) OVER (PARTITION BY k ORDER BY v)",
)


@pytest.mark.parametrize("call", SEEN)
def test_one_change_looks_at_its_neighbours(call: str, tmp_path: Path) -> None:
    query = f"SELECT k, v, {call} AS o FROM t"
    assert work(query, tmp_path, np.array([77_777]), np.array([2])) < 100


@pytest.mark.parametrize("call", SEEN[:3])
def test_a_changed_row_is_searched_once_in_a_run(call: str, tmp_path: Path) -> None:
    catalog = {"t": Relation(CollectionId("t"), COLUMNS)}
    query = f"SELECT k, v, {call} AS o FROM t"
    local = LocalDataflow(compile_view(query, catalog).dataflow, tmp_path, buckets=1)
    local.step(interval_of(0, 1, as_of=True), {})
    local.step(interval_of(1, 2), {0: updates(np.arange(20_000) * 10, np.ones(20_000))})
    with (
        patch.object(order, "bound", wraps=order.bound) as searched,
        patch.object(ordered, "read_on", wraps=ordered.read_on) as read,
    ):
        local.step(interval_of(2, 3), {0: updates(np.array([77_777]), np.array([2]))})
    assert searched.call_count == 1
    assert read.call_count == 2  # once on each side


def changed(diff: int, value: int, time: int) -> pa.Table:
    """One row of `updates` that comes, or goes."""
    one = updates(np.array([value]), np.array([time]))
    return one.set_column(3, "diff", pa.array([diff]))


@pytest.mark.parametrize("call", ["max(r)", "min(-r)", "bool_or(r > 8)"])
def test_a_change_of_what_decides_looks_as_far_as_others_do(call: str, tmp_path: Path) -> None:
    """In a run of 20,000 rows the greatest comes and goes, and each 100th has as great a value.

    The first of them is gone in a newer run before, so it decides nothing.
    """
    catalog = {"t": Relation(CollectionId("t"), COLUMNS)}
    window = "OVER (PARTITION BY k ORDER BY v ROWS UNBOUNDED PRECEDING)"
    source = "(SELECT *, CASE WHEN v % 1000 = 500 THEN 9 ELSE v % 7 END AS r FROM t)"
    query = f"SELECT k, v, {call} {window} AS o FROM {source}"
    local = LocalDataflow(compile_view(query, catalog).dataflow, tmp_path, buckets=1)
    local.step(interval_of(0, 1, as_of=True), {})
    local.step(interval_of(1, 2), {0: updates(np.arange(20_000) * 10, np.ones(20_000))})
    local.step(interval_of(2, 3), {0: changed(-1, 500, 2)})
    for time, diff, value in ((3, -1, 1_500), (4, 1, 1_500), (5, 1, 9_001)):
        with counted() as done:
            local.step(interval_of(time, time + 1), {0: changed(diff, value, time)})
        assert done.rows < 1_000, time


RUNS = (
    "row_number() OVER (PARTITION BY k ORDER BY v)",
    "sum(v) OVER (PARTITION BY k ORDER BY v)",
    "count(v) OVER (PARTITION BY k ORDER BY v ROWS UNBOUNDED PRECEDING)",
)


@pytest.mark.parametrize("call", RUNS)
def test_a_change_of_a_running_window_looks_at_what_is_behind_it(
    call: str, tmp_path: Path
) -> None:
    query = f"SELECT k, v, {call} AS o FROM t"
    assert work(query, tmp_path, np.array([199_501]), np.array([2])) < 500


@pytest.mark.parametrize("call", RUNS)
def test_what_was_summed_once_is_not_summed_again(call: str, tmp_path: Path) -> None:
    catalog = {"t": Relation(CollectionId("t"), COLUMNS)}
    query = f"SELECT k, v, {call} AS o FROM t"
    local = LocalDataflow(compile_view(query, catalog).dataflow, tmp_path, buckets=1)
    local.step(interval_of(0, 1, as_of=True), {})
    local.step(interval_of(1, 2), {0: updates(np.arange(20_000) * 10, np.ones(20_000))})
    weighed: list[int] = []

    def weights(before: Sequence[Before], columns: Sequence[pa.Array], size: int) -> Ints:
        weighed.append(size)
        return original(before, columns, size)

    original = running_sums.weights
    with patch.object(running_sums, "weights", weights):
        for time, value in ((2, 199_501), (3, 199_502)):
            weighed.clear()
            change = updates(np.array([value]), np.array([time]))
            local.step(interval_of(time, time + 1), {0: change})
    assert sum(weighed) < 3 * block_sums.BLOCK


@pytest.mark.parametrize("call", [SEEN[0], *SEEN[3:8]])
def test_many_times_look_at_the_neighbours_of_each(call: str, tmp_path: Path) -> None:
    query = f"SELECT k, v, {call} AS o FROM t"
    values = np.arange(300) * 371 + 1
    at_once = work(query, tmp_path, values, np.full(300, 2))
    apart = work(query, tmp_path, values, np.arange(300) + 2)
    assert apart <= 2 * at_once


APART = {
    "calls that order rows differently": "lag(v) OVER (ORDER BY v), lag(v) OVER (ORDER BY k)",
    "a frame without an end": "max(v) OVER (ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING)",
    "what is no sum of numbers": "bit_and(v) OVER (ORDER BY v)",
    "values of which equal ones differ": "max(v::DOUBLE) OVER (ORDER BY v)",
    "what counts distinct values": "dense_rank() OVER (ORDER BY v)",
    "the whole partition": "count(*) OVER ()",
    "peers by a computed offset": "sum(v) OVER (w RANGE BETWEEN k PRECEDING AND CURRENT ROW)",
    "values that are rounded": "sum(k) OVER (ORDER BY v::FLOAT RANGE 1 PRECEDING)",
    "values and rows": "lag(v) OVER w, count(*) OVER (w RANGE 1 PRECEDING)",
    "an offset that is computed": "lag(v, k) OVER (ORDER BY v)",
    "NULLs that are passed over": "lag(v IGNORE NULLS) OVER (ORDER BY v)",
    "sums of floats": "sum(v::DOUBLE) OVER (ORDER BY v ROWS 2 PRECEDING)",
}


@pytest.mark.parametrize("calls", APART.values(), ids=APART)
def test_what_looks_further_recomputes_the_partition(calls: str) -> None:
    catalog = {"t": Relation(CollectionId("t"), COLUMNS)}
    nodes = compile_view(
        f"SELECT k, v, {calls} FROM t WINDOW w AS (ORDER BY v)", catalog
    ).dataflow.nodes
    assert all(node.why for node in nodes if isinstance(node, Groupwise))
