"""EMIT ON CLOSE: each row once, at the end of its window, however a history is cut and killed.

Times are milliseconds and windows ten of them; rows come at their event times, and late ones
afterwards. A few are taken back, as in the output of a view.
"""

import random
from collections.abc import Mapping
from importlib import import_module
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streams.testing import maintain
from tests.support.closing_windows import Rows, expected, lived, stepped
from tests.support.examples import examples

CLICKS = "id BIGINT, page VARCHAR, ts TIMESTAMP"
TABLES = {"clicks": CLICKS, "buys": CLICKS}
LAST, WINDOWS, TWO_WINDOWS = 60, 24, 20
CLOSING, BORN = 1, 20  # the seed and the birth of histories that close windows
PUSHDOWN = import_module("streams.plan.passes.pushdown")
TEN = "INTERVAL '10 milliseconds'"
START = f"time_bucket({TEN}, ts)"
TUMBLING = (
    f"SELECT {START} AS s, page, count(*) AS n, sum(id)::BIGINT AS ids FROM clicks GROUP BY ALL"
)
HOPS = f"""SELECT s, s + {TEN} AS window_end, page, count(*) AS n FROM (
    SELECT page, unnest(range(time_bucket(INTERVAL '5 milliseconds', ts) - INTERVAL
        '5 milliseconds', ts + INTERVAL '1 microsecond', INTERVAL '5 milliseconds')) AS s
    FROM clicks) GROUP BY ALL"""

NEARBY = "b.ts BETWEEN c.ts - INTERVAL '7 milliseconds' AND c.ts + INTERVAL '4 milliseconds'"
MOVING = """count(*) OVER (PARTITION BY page ORDER BY ts
    RANGE BETWEEN INTERVAL '{}' PRECEDING AND {})"""

VIEWS: Mapping[str, tuple[str, str]] = {
    "tumbling": (TUMBLING, f"s + {TEN}"),
    "tumbling by its end": (
        f"SELECT {START} + {TEN} AS window_end, count(*) AS n FROM clicks GROUP BY window_end",
        "window_end",
    ),
    "sums of doubles": (
        f"SELECT {START} AS s, sum(id * 0.5::DOUBLE) AS x, avg(-id::DOUBLE) AS y"
        " FROM clicks GROUP BY s",
        f"s + {TEN}",
    ),
    "hopping": (HOPS, "window_end"),
    "sessions": (
        f"""SELECT page, min(ts) AS first, max(ts) AS last, count(*) AS n
        FROM (SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY page ORDER BY ts, id)
                AS session
            FROM (SELECT *, coalesce(ts - lag(ts) OVER (PARTITION BY page ORDER BY ts, id)
                >= {TEN}, true) AS begins FROM clicks))
        GROUP BY page, session""",
        f"last + {TEN}",
    ),
    "rows": ("SELECT id, ts FROM clicks WHERE page <> 'b'", f"ts + {TEN}"),
    "rows whose window is short": (
        "SELECT id, ts AS seen FROM clicks",
        "seen - INTERVAL '1 us'",
    ),
    "with time zones": (
        "SELECT ts::TIMESTAMP WITH TIME ZONE AS z, count(*) AS n FROM clicks GROUP BY z",
        f"z + {TEN}",
    ),
    "the best of each": (
        f"SELECT *, {START} AS s FROM clicks"
        f" QUALIFY row_number() OVER (PARTITION BY {START} ORDER BY id DESC, page) <= 2",
        f"s + {TEN}",
    ),
    "shares": (
        f"SELECT *, count(*) OVER (PARTITION BY s) AS n FROM (SELECT page, {START} AS s"
        " FROM clicks)",
        f"s + {TEN}",
    ),
    "the busiest page": (
        f"""WITH counts AS ({TUMBLING})
        SELECT counts.s, counts.page, counts.n FROM counts
        JOIN (SELECT s, max(n) AS most FROM counts GROUP BY s) AS top
        ON counts.s = top.s AND counts.n = top.most""",
        f"s + {TEN}",
    ),
    "two streams": (
        f"""SELECT c.s, c.id, b.id AS bought
        FROM (SELECT id, page, {START} AS s FROM clicks) c
        LEFT JOIN (SELECT id, page, {START} AS s FROM buys) b
        ON c.s = b.s AND c.page = b.page""",
        f"s + {TEN}",
    ),
    "either stream": (
        f"""SELECT s, c.id, b.id AS bought FROM (SELECT id, {START} AS s FROM clicks) c
        FULL JOIN (SELECT id, {START} AS s FROM buys) b USING (s)""",
        f"s + {TEN}",
    ),
    "either stream by more than the window": (
        f"""SELECT coalesce(b.s, c.s) AS s, c.id, b.id AS bought, c.page IS NULL AS lone
        FROM (SELECT id, page, {START} AS s FROM clicks) c
        FULL JOIN (SELECT id, page, {START} AS s FROM buys) b
        ON b.page = c.page AND c.s = b.s AND c.id < b.id""",
        f"s + {TEN}",
    ),
    "either stream by windows that may be unknown": (
        f"""SELECT coalesce(c.s, b.s) AS s, c.id, b.id AS bought
        FROM (SELECT id, {START} AS s FROM clicks) c
        FULL JOIN (SELECT id, {START} AS s FROM buys) b
        ON c.s IS NOT DISTINCT FROM b.s""",
        f"coalesce(s, TIMESTAMP '1970-01-01 00:00:00.03') + {TEN}",
    ),
    "clicks without buys": (
        f"""SELECT DISTINCT page, {START} AS s FROM clicks c WHERE NOT EXISTS (
            FROM buys b WHERE b.page = c.page AND time_bucket({TEN}, b.ts) = time_bucket({TEN},
            c.ts))""",
        f"s + {TEN}",
    ),
    "both": (
        f"SELECT page, {START} AS s FROM clicks UNION ALL SELECT page, {START} FROM buys",
        f"s + {TEN}",
    ),
    "rows that expire": (
        "SELECT id, ts FROM clicks WHERE mz_now() < ts + INTERVAL '7 milliseconds'",
        "ts + INTERVAL '7 milliseconds'",
    ),
    "buys nearby": (
        f"SELECT c.id, b.id AS bought, c.ts FROM clicks c JOIN buys b ON {NEARBY}",
        f"ts + {TEN}",
    ),
    "buys nearby by the later one": (
        f"""SELECT c.id, b.id AS bought, c.ts, b.ts AS bought_at FROM clicks c JOIN buys b
        ON c.page = b.page AND {NEARBY}""",
        "greatest(bought_at + INTERVAL '3 milliseconds', ts)",
    ),
    "buys nearby, if there are any": (
        f"SELECT c.id, b.id AS bought, c.ts FROM clicks c LEFT JOIN buys b ON {NEARBY}",
        f"ts + {TEN}",
    ),
    "buys nearby by the later one, if there are any": (
        f"""SELECT c.id, b.id AS bought, coalesce(b.ts, c.ts) AS last, c.ts
        FROM clicks c LEFT JOIN buys b ON {NEARBY} AND b.id < c.id""",
        "greatest(last, ts) + INTERVAL '3 milliseconds'",
    ),
    "buys of the same window": (
        f"""SELECT c.id, b.id AS bought, c.ts FROM clicks c JOIN buys b
        ON {START.replace("ts", "c.ts")} = {START.replace("ts", "b.ts")}""",
        f"ts + {TEN}",
    ),
    "clicks with a buy nearby": (
        f"SELECT id, ts FROM clicks c WHERE EXISTS (FROM buys b WHERE {NEARBY})",
        f"ts + {TEN}",
    ),
    "clicks without a buy nearby": (
        f"SELECT id, ts FROM clicks c WHERE NOT EXISTS (FROM buys b WHERE {NEARBY}"
        " AND b.page = c.page AND b.id % 3 = 0)",
        f"ts + {TEN}",
    ),
    "a buy nearby": (
        f"SELECT id, ts, (SELECT max(b.id) FROM buys b WHERE {NEARBY}) AS bought FROM clicks c",
        f"ts + {TEN}",
    ),
    "buys nearby in each window": (
        f"""SELECT {START.replace("ts", "c.ts")} AS s, count(*) AS n, sum(b.id)::BIGINT AS ids
        FROM clicks c JOIN buys b ON {NEARBY} GROUP BY s""",
        f"s + {TEN}",
    ),
    "a way through three": (
        """SELECT a.id, b.id AS next, c.id AS last, a.ts FROM clicks a
        JOIN buys b ON a.ts BETWEEN b.ts - INTERVAL '6 milliseconds' AND b.ts
        JOIN clicks c ON b.ts BETWEEN c.ts - INTERVAL '5 milliseconds' AND c.ts""",
        "ts + INTERVAL '14 milliseconds'",
    ),
    "while something holds": (
        """SELECT c.id, b.id AS of, c.ts FROM clicks c JOIN buys b
        ON c.ts >= b.ts AND c.ts < b.ts + to_milliseconds(b.id % 9)""",
        "ts + INTERVAL '5 milliseconds'",
    ),
    "moving": (
        f"SELECT id, ts, {MOVING.format('7 milliseconds', 'CURRENT ROW')} AS n FROM clicks",
        "ts + INTERVAL '8 milliseconds'",
    ),
    "moving both ways": (
        f"""SELECT id, ts, {MOVING.format("3500 us", "INTERVAL '4 ms' FOLLOWING")} AS n,
            max(id) OVER (PARTITION BY page ORDER BY ts DESC RANGE BETWEEN
                INTERVAL '2 ms' PRECEDING AND INTERVAL '6 ms' FOLLOWING) AS latest
        FROM clicks""",
        "ts + INTERVAL '5 milliseconds'",
    ),
    "moving in each window": (
        f"""SELECT {START} AS s, sum(n)::BIGINT AS n, count(*) AS rows FROM (SELECT ts,
            {MOVING.format("7 milliseconds", "CURRENT ROW")} AS n FROM clicks) GROUP BY s""",
        f"s + {TEN}",
    ),
    "moving over buys nearby": (
        f"""SELECT id, ts, {MOVING.format("7 milliseconds", "CURRENT ROW")} AS n
        FROM (SELECT c.id, c.page, c.ts FROM clicks c JOIN buys b ON {NEARBY})""",
        "ts + INTERVAL '8 milliseconds'",
    ),
    "never": ("SELECT id, CASE WHEN id > 9 THEN ts END AS e FROM clicks", "e"),
}


def history(chance: random.Random, count: int, late_share: float, born: int) -> pa.Table:
    """Rows at their event times, rounded down, or late; some go again; all from `born` on."""
    rows = []
    for number in range(count):
        at_us = None if chance.random() < 0.05 else chance.randrange(LAST * 1000)
        time = 0 if at_us is None else at_us // 1000
        if chance.random() < late_share:
            time = chance.randrange(time, LAST)
        row = (number, chance.choice("ab"), at_us)
        rows.append((*row, max(born, time), 1))
        if chance.random() < 0.15:
            rows.append((*row, max(born, chance.randrange(time, LAST)), -1))
    fields = (pa.int64(), pa.string(), pa.timestamp("us"), pa.int64(), pa.int64())
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, type_) for values, type_ in zip(columns, fields, strict=True)]
    return pa.table(arrays, names=["id", "page", "ts", "_time", "_diff"])


@pytest.mark.parametrize("name", VIEWS)
@given(
    seed=st.integers(0, 10_000),
    born=st.sampled_from([0, 17, 20, 45]),
    cuts=st.sets(st.integers(1, LAST + 20), max_size=8),
    kills=st.sets(st.integers(0, 8), max_size=3),
)
@example(seed=CLOSING, born=BORN, cuts=set(range(22, LAST + 20, 8)), kills={0, 3, 6})
@example(seed=2, born=0, cuts=set(), kills=set())
@examples(3)
def test_each_row_appears_once_at_its_end(
    name: str, seed: int, born: int, cuts: set[int], kills: set[int]
) -> None:
    query, end = VIEWS[name]
    chance = random.Random(seed)
    inputs = {table: history(chance, 25, 0.3, born) for table in TABLES}
    upper = LAST + 21
    uppers = [*sorted(cut for cut in cuts if cut > born + 1), upper]
    dies = {uppers[number] for number in kills if number < len(uppers) - 1}
    actual = lived(f"{query} EMIT ON CLOSE ({end})", TABLES, inputs, born, uppers, dies)
    assert actual == expected(query, end, inputs, born, upper)
    if (seed, born) == (CLOSING, BORN):  # what is compared is not nothing
        times = {row[-1] for row in actual}
        assert len(times) > 1
        assert born in times or name == "rows that expire"


def test_what_is_maintained_in_tests_is_the_same() -> None:
    query, end = VIEWS["tumbling"]
    clicks = history(random.Random(3), 25, 0.3, 10)
    view = maintain(
        f"{query} EMIT ON CLOSE ({end})", TABLES, {"clicks": clicks}, [30, LAST + 21]
    )
    actual = Rows()
    for row in view.updates.to_pylist():
        *values, diff = row.values()
        actual[tuple(values)] += diff
    assert actual == expected(query, end, {"clicks": clicks}, view.since, LAST + 21)


def long_history(windows: int) -> pa.Table:
    """Ten rows in each of so many windows."""
    count = windows * 10
    return pa.table(
        {
            "id": range(count),
            "page": ["ab"[number % 2] for number in range(count)],
            "ts": pa.array([number * 1000 for number in range(count)], pa.timestamp("us")),
            "_time": range(count),
            "_diff": [1] * count,
        }
    )


def most_held(text: str) -> tuple[int, int]:
    """The most rows that the state has in the first half of a long history, and afterwards.

    Of the first half the beginning does not count, in which no window closes yet.
    """
    inputs = {table: long_history(WINDOWS) for table in TABLES}
    held = []
    with stepped(text, TABLES, inputs, 0) as view:
        for lower, upper in pairwise([1, *range(TWO_WINDOWS, WINDOWS * 10, TWO_WINDOWS)]):
            view.step(lower, upper)
            held.append(view.held())
    half = len(held) // 2
    return max(held[half // 3 : half]), max(held[half:])


BOUNDED = (
    "tumbling",
    "tumbling by its end",
    "hopping",
    "sums of doubles",
    "the best of each",
    "shares",
    "the busiest page",
    "two streams",
    "either stream",
    "either stream by more than the window",
    "either stream by windows that may be unknown",
    "clicks without buys",
    "buys nearby",
    "buys nearby by the later one",
    "buys nearby, if there are any",
    "buys of the same window",
    "clicks with a buy nearby",
    "clicks without a buy nearby",
    "a buy nearby",
    "buys nearby in each window",
    "a way through three",
    "while something holds",
    "moving",
    "moving both ways",
    "moving in each window",
)


@pytest.mark.parametrize("name", BOUNDED)
def test_state_does_not_grow(name: str) -> None:
    query, end = VIEWS[name]
    first, afterwards = most_held(f"{query} EMIT ON CLOSE ({end})")
    assert afterwards <= 1.2 * first  # where it grows, it is more than 1.5 (below)


@pytest.mark.parametrize("name", ["tumbling", "the best of each"])
def test_without_the_total_form_of_the_filter_state_grows(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the test above measures is that: it says no where windows are kept."""
    monkeypatch.setattr(PUSHDOWN, "total", lambda _: None)
    query, end = VIEWS[name]
    first, afterwards = most_held(f"{query} EMIT ON CLOSE ({end})")
    assert afterwards > 1.5 * first


def test_without_the_filter_of_the_other_side_state_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for rule in ("equated_conjuncts", "implied_conjuncts"):  # either of them suffices
        monkeypatch.setattr(PUSHDOWN, rule, lambda *_: ())
    query, end = VIEWS["two streams"]
    first, afterwards = most_held(f"{query} EMIT ON CLOSE ({end})")
    assert afterwards > 1.5 * first


def test_without_the_filter_of_both_sides_state_of_a_full_join_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PUSHDOWN, "_of_either", lambda *_: ())
    query, end = VIEWS["either stream"]
    first, afterwards = most_held(f"{query} EMIT ON CLOSE ({end})")
    assert afterwards > 1.5 * first


def test_an_error_of_a_window_stays() -> None:
    """A window that closed without a row that failed is never put right: reads have to fail."""
    query = f"SELECT {START} AS s, sum(page::BIGINT) AS n FROM clicks GROUP BY s"
    at = pa.array([1000, 2000, 13000], pa.timestamp("us"))
    rows = {"id": [1, 2, 3], "page": ["1", "x", "3"], "ts": at}
    clicks = pa.table({**rows, "_time": [1, 2, 13], "_diff": [1, 1, 1]})
    view = maintain(
        f"{query} EMIT ON CLOSE (s + {TEN})", {"clicks": CLICKS}, {"clicks": clicks}, [40]
    )
    assert view.errors_at(1) == []
    assert view.errors_at(2) == view.errors_at(39) == ["cannot evaluate CAST(page AS BIGINT)"]


def test_an_error_of_a_part_of_the_first_contents_goes() -> None:
    """A sum that is no hour of a day yet, because half of the rows are in the next slice."""
    query = f"SELECT {START} AS s, make_time(sum(id)::BIGINT, 0, 0) AS n FROM clicks GROUP BY s"
    at = pa.array([1000, 2000], pa.timestamp("us"))
    rows = {"id": [90, -80], "page": ["a", "a"], "ts": at, "_time": [3, 3], "_diff": [1, 1]}
    text = f"{query} EMIT ON CLOSE (s + {TEN})"
    with stepped(text, {"clicks": CLICKS}, {"clicks": pa.table(rows)}, 3) as view:
        view.step(4, 40)
        diffs = [diff for part in view.errors for diff in part.column("diff").to_pylist()]
        assert diffs
        assert sum(diffs) == 0
        assert [row[-1] for row in view.rows()] == [10]
