"""Variance, covariance and regression, exact and rounded once; errors stay in a group."""

import math
import random
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from streams.testing import Maintained, maintain
from streams.trace.exact.rationals import quotients, roots

POOLS = [
    [0.1, 0.2, 0.3, -0.4, 1e10],
    [1e9 + 0.1, 1e9 + 0.2, 1e9 + 0.3],
    [5e-324, 1e-300, -3e-310],
    [1e154, -1e154, 3.0],
]


def of_doubles(pairs: list[tuple[float, float]], query: str) -> Maintained:
    """The view over pairs (y, x), after as many others came and went."""
    rows = [(y, x, 0, 1) for y, x in pairs] + [(0.7, -1e3, 0, 2), (0.7, -1e3, 1, -2)]
    kinds = [pa.float64(), pa.float64(), pa.int64(), pa.int64()]
    columns = zip(zip(*rows, strict=True), kinds, strict=True)
    arrays = [pa.array(values, kind) for values, kind in columns]
    table = pa.table(arrays, names=["y", "x", "_time", "_diff"])
    return maintain(query, {"t": "y DOUBLE, x DOUBLE"}, {"t": table}, [1, 2])


@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_deviations_are_exact_and_rounded_once(pool: list[float]) -> None:
    chance = random.Random(str(pool))
    pairs = [(chance.choice(pool), chance.choice(pool)) for _ in range(9)]
    calls = "var_pop(y) AS v, covar_samp(y, x) AS c, regr_slope(y, x) AS s, stddev(y) AS d"
    (row,) = of_doubles(pairs, f"SELECT {calls} FROM t").at(1).to_pylist()
    ys, xs = ([Fraction(pair[i]) for pair in pairs] for i in (0, 1))
    zero, n = Fraction(0), 9
    y, x = sum(ys, zero) / n, sum(xs, zero) / n
    yy, xx = sum(((b - y) ** 2 for b in ys), zero), sum(((a - x) ** 2 for a in xs), zero)
    yx = sum(((b - y) * (a - x) for b, a in zip(ys, xs, strict=True)), zero)
    assert row["v"] == _double(yy / n)
    assert row["c"] == _double(yx / (n - 1))
    assert row["s"] == (_double(yx / xx) if xx else math.nan)
    below, above = math.nextafter(row["d"], 0), math.nextafter(row["d"], math.inf)
    half = [(Fraction(row["d"]) + Fraction(neighbour)) / 2 for neighbour in (below, above)]
    assert half[0] ** 2 <= yy / (n - 1) <= half[1] ** 2


def _double(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def test_quotients_and_roots_by_zero_and_beyond_all_doubles() -> None:
    above = np.array([1, -(1 << 3000), 1 << 3000, 4, -9, 0], object)
    below = np.array([0, 1, -1, 1, 1, 5], object)
    assert str(quotients(above, below).tolist()) == "[nan, -inf, -inf, 4.0, -9.0, 0.0]"
    assert str(roots(above, below).tolist()) == "[nan, -inf, -inf, 2.0, -3.0, 0.0]"


SPECIAL = [math.inf, -math.inf, math.nan, 0.0, 2.5, 2.5, 1.0, -3.0, None]
OF_PAIRS = (
    "covar_pop", "covar_samp", "corr", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept",
    "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
)  # fmt: skip
OF_ONE = ("var_pop", "var_samp", "stddev_pop", "stddev_samp", "sem")


def test_values_that_are_nan_or_infinite_are_what_duckdb_makes_of_them() -> None:
    """Of groups of 1 to 4 pairs, where DuckDB says the same of both orders of the rows."""
    chance = random.Random(3)
    rows = [
        (group, chance.choice(SPECIAL), chance.choice(SPECIAL))
        for group in range(600)
        for _ in range(1 + group % 4)
    ]
    kinds = [pa.int32(), pa.float64(), pa.float64()]
    columns = zip(zip(*rows, strict=True), kinds, strict=True)
    table = pa.table([pa.array(values, kind) for values, kind in columns], ["g", "y", "x"])
    calls = [f"{name}(y, x)" for name in OF_PAIRS] + [f"{name}(y)" for name in OF_ONE]
    listed = ", ".join(f"{call} AS c{place}" for place, call in enumerate(calls))
    query = f"SELECT g, {listed} FROM t GROUP BY g"
    updates = table.append_column("_time", pa.array([0] * len(rows)))
    updates = updates.append_column("_diff", pa.array([1] * len(rows)))
    definition = {"t": "g INTEGER, y DOUBLE, x DOUBLE"}
    got = _by_group(maintain(query, definition, {"t": updates}).at(0))
    backwards = table.take(list(reversed(range(len(rows)))))
    forth, back = (_by_group(_duckdb(query, t)) for t in (table, backwards))
    alike = [
        (group, place)
        for group in got
        for place in range(len(calls))
        if _is_same(forth[group][place], back[group][place])
    ]
    assert len(alike) > 0.9 * len(got) * len(calls)
    different = [
        (calls[place], forth[group][place], got[group][place])
        for group, place in alike
        if not _is_same(forth[group][place], got[group][place])
    ]
    assert different == []


def _duckdb(query: str, t: pa.Table) -> pa.Table:
    connection = duckdb.connect(config={"threads": 1})
    connection.register("t", t)
    return connection.sql(query).to_arrow_table()


def _by_group(table: pa.Table) -> dict[int, list[float | None]]:
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return {group: list(values) for group, *values in rows}


def _is_same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    is_nan = math.isnan(one) and math.isnan(other)
    return is_nan or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


QUERIES = [
    "SELECT g, bitstring_agg(n, 0, 9)::VARCHAR AS b FROM t GROUP BY g",
    "SELECT g, nth_value(n, 1) OVER (PARTITION BY g ORDER BY n ROWS n PRECEDING) AS b FROM t",
]


@pytest.mark.parametrize("query", QUERIES)
def test_an_error_is_one_of_its_group_and_heals(query: str) -> None:
    rows = [(1, 5, 0, 1), (2, 3, 0, 1), (2, -7, 1, 1), (2, -7, 2, -1)]
    names = ["g", "n", "_time", "_diff"]
    table = pa.table([pa.array(values) for values in zip(*rows, strict=True)], names=names)
    for cuts in ([1, 2, 3], [3]):
        view = maintain(query, {"t": "g INTEGER, n INTEGER"}, {"t": table}, cuts)
        assert view.errors_at(0) == view.errors_at(2) == []
        assert len(view.errors_at(1)) == 1
        assert {row["g"] for row in view.at(1).to_pylist()} == {1}
        assert view.at(0).num_rows == view.at(2).num_rows == 2
