"""Multiplicities at the end of 64 bits: the exact answer or a failure that says so."""

from collections import Counter

import pyarrow as pa
import pytest

from streams.testing import Maintained, maintain
from streams.trace.exact import diffs
from streams.trace.exact.diffs import DiffOverflow, TooManyCopies

HALF = 1 << 62
Change = tuple[int, int, int, int]
"""g, x, time, diff."""

TWICE: list[Change] = [(1, 5, 0, 1), (1, 1, 1, HALF), (1, 1, 2, HALF)]
"""A row that is there 2^63 times in the end."""

AGAIN: list[Change] = [*TWICE, (1, 1, 3, HALF), (1, 1, 4, HALF)]
"""A row that is there 2^64 times in the end, which wraps around to never."""

MANY: list[Change] = [
    *[(1, x, 1, HALF) for x in (1, 2, 3)],
    *[(1, x, 3, HALF) for x in (4, 5)],
    (1, 1, 5, -HALF),
]
"""Rows that fit, of a group that does not."""

CUTS = {"together": [9], "apart": [1, 2, 3, 4, 9]}
FIRST = "SELECT x FROM t ORDER BY x LIMIT 3"
DISTINCT_ON = "SELECT DISTINCT ON (g) g, x FROM t ORDER BY g, x"
EXTREMES = "SELECT g, min(x) AS m, max(x) AS n FROM t GROUP BY g"
DISTINCT = "SELECT g, count(DISTINCT x) AS n FROM t GROUP BY g"
MEDIAN = "SELECT g, quantile_disc(x, 0.5) AS q FROM t GROUP BY g"
LAG = "SELECT x, lag(x) OVER (PARTITION BY g ORDER BY x) AS y FROM t"
TOTAL = "SELECT x, sum(x) OVER (PARTITION BY g ORDER BY x) AS y FROM t"
QUERIES = [
    FIRST,
    DISTINCT_ON,
    EXTREMES,
    DISTINCT,
    MEDIAN,
    LAG,
    TOTAL,
    "SELECT g, mode(x) AS m FROM t GROUP BY g",
    "SELECT x, count(*) AS n FROM t GROUP BY x",
    "SELECT t.x, s.x AS y FROM t ASOF JOIN s ON t.g = s.g AND t.x >= s.x",
    "SELECT s.x, t.x AS y FROM s ASOF JOIN t ON t.g = s.g AND s.x >= t.x",
    "SELECT t.x, s.x AS y FROM t LEFT JOIN s ON t.x = s.x + 1",
    "SELECT x FROM t EXCEPT ALL SELECT x FROM s",
    "SELECT DISTINCT x FROM t",
    "WITH RECURSIVE r AS (SELECT x FROM t UNION SELECT x + 1 FROM r WHERE x < 3) FROM r",
]


def table(rows: list[Change]) -> pa.Table:
    kinds = [pa.int32(), pa.int64(), pa.int64(), pa.int64()]
    pairs = zip(zip(*rows, strict=True), kinds, strict=True)
    columns = [pa.array(column, kind) for column, kind in pairs]
    return pa.table(columns, names=["g", "x", "_time", "_diff"])


def view(query: str, rows: list[Change], cuts: list[int]) -> Maintained:
    tables = {"t": "g INTEGER, x BIGINT", "s": "g INTEGER, x BIGINT"}
    other = table([(1, 0, 0, 1), (1, 2, 0, 1)])
    return maintain(query, tables, {"t": table(rows), "s": other}, cuts)


def at(maintained: Maintained, time: int) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in maintained.at(time).to_pylist())


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("rows", [TWICE, AGAIN], ids=["half", "whole"])
def test_a_row_that_is_there_too_often_is_a_failure(
    query: str, rows: list[Change], cuts: list[int]
) -> None:
    with pytest.raises((DiffOverflow, TooManyCopies)):
        view(query, rows, cuts).at(8)


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_the_first_rows_do_not_count_those_behind_them(cuts: list[int]) -> None:
    rows_ = view(FIRST, MANY, cuts)
    assert at(rows_, 1) == at(rows_, 4) == [(1,)] * 3
    assert at(rows_, 5) == [(2,)] * 3
    rows_ = view(f"SELECT x FROM t ORDER BY x LIMIT 2 OFFSET {HALF - 1}", MANY, cuts)
    assert at(rows_, 1) == at(rows_, 4) == [(1,), (2,)]
    assert at(rows_, 5) == [(2,), (3,)]
    rows_ = view(DISTINCT_ON, MANY, cuts)
    assert at(rows_, 4) == [(1, 1)]
    assert at(rows_, 5) == [(1, 2)]


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_a_limit_may_be_as_large_as_any(cuts: list[int]) -> None:
    rows: list[Change] = [(1, 1, 1, 2), (1, 2, 3, 1)]
    limited = view(f"SELECT x FROM t ORDER BY x LIMIT {HALF} OFFSET 1", rows, cuts)
    assert at(limited, 3) == [(1,), (2,)]
    for offset in (HALF, diffs.LARGEST):
        limited = view(f"SELECT x FROM t ORDER BY x LIMIT {HALF} OFFSET {offset}", rows, cuts)
        assert at(limited, 3) == []


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_copies_are_made_of_no_more_rows_than_there_is_room_for(cuts: list[int]) -> None:
    rows: list[Change] = [(1, 1, 1, 1 << 40)]
    for query in (LAG, "SELECT x FROM t ORDER BY x LIMIT 1000000000000"):
        with pytest.raises(TooManyCopies, match="actual 1,"):
            view(query, rows, cuts)


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_sums_of_groups_do_not_count_together(cuts: list[int]) -> None:
    rows: list[Change] = [(g, 1, 1 + g % 3, HALF) for g in range(8)]
    groups = view("SELECT g, count(*) AS n, sum(x) AS s FROM t GROUP BY g", rows, cuts)
    assert at(groups, 8) == [(g, HALF, HALF) for g in range(8)]
    groups = view("SELECT g, x FROM t EXCEPT ALL SELECT g, x FROM s", rows, cuts)
    counts = Counter({row["g"]: row["_diff"] for row in groups.updates.to_pylist()})
    assert counts == Counter(dict.fromkeys(range(8), HALF))


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_ranks_of_quantiles_are_exact(cuts: list[int]) -> None:
    rows: list[Change] = [(1, 1, 1, HALF - 1), (1, 2, 3, HALF)]
    assert at(view(MEDIAN, rows, cuts), 8) == [(1, 2)]
    rows = [(1, x, 1 + x % 3, 1) for x in range(200)]
    query = "SELECT g, quantile_disc(x, 0.12345678901234567) AS q FROM t GROUP BY g"
    assert at(view(query, rows, cuts), 8) == [(1, 24)]
