"""Which comparisons with constants hold for all rows of an import that a dataflow looks at."""

import pytest

from streams.plan.analyses.column_bounds import (
    ColumnComparison,
    ColumnMembership,
    column_comparisons,
    column_memberships,
)
from streams.plan.compile import compile_select
from streams.plan.physical import Dataflow
from tests.support.plan_tables import catalog

FOUND = {
    "a > 1": [ColumnComparison(0, ">", 1)],
    "3 <= a AND n = -5": [ColumnComparison(0, ">=", 3), ColumnComparison(4, "=", -5)],
    "a BETWEEN 1 AND 3": [ColumnComparison(0, ">=", 1), ColumnComparison(0, "<=", 3)],
    "b >= 'x''y' AND b < 'é'": [
        ColumnComparison(1, ">=", "x'y"),
        ColumnComparison(1, "<", "é"),
    ],
    "v < 1.5 AND v = 2": [ColumnComparison(2, "<", 1.5), ColumnComparison(2, "=", 2.0)],
    "n < 9223372036854775807": [ColumnComparison(4, "<", 9223372036854775807)],
    "a = 1 AND 10 // n > 2": [ColumnComparison(0, "=", 1)],
    # NaN is above all doubles, and in no range
    "v > 1.5 AND v >= 0": [],
    "v < 0.12345678901234567": [],
    "a = 1 OR n = 2": [],
    "a <> 1 AND b LIKE 'x%'": [],
    "a + 1 > 2 AND n > 1.5 AND p > 1 AND b > a::VARCHAR AND a = NULL": [],
    "b = '1' COLLATE NOCASE": [],
}


@pytest.mark.parametrize("where", FOUND)
def test_comparisons_with_constants_hold_for_all_rows_that_count(where: str) -> None:
    assert _compared(f"SELECT b FROM t WHERE {where}") == FOUND[where]


@pytest.mark.parametrize(
    ("query", "conditions"),
    [
        ("SELECT a FROM t", []),
        ("FROM t", []),
        ("SELECT b FROM t WHERE a = 1 UNION ALL SELECT b FROM t WHERE a = 1 AND n > 1", [
            ColumnComparison(0, "=", 1)]),
        ("SELECT b FROM t WHERE a = 1 UNION ALL SELECT b FROM t WHERE a = 2", []),
        ("SELECT b FROM t WHERE a = 1 UNION ALL SELECT b FROM t", []),
        ("SELECT count(*) AS n FROM t LEFT JOIN k ON t.a = k.a AND t.n = 3", []),
        (
            "SELECT count(*) AS n FROM t JOIN k ON t.a = k.a AND t.n = 3",
            [ColumnComparison(4, "=", 3)],
        ),
        ("SELECT a FROM t WHERE n = 3 AND mz_now() <= n", [ColumnComparison(4, "=", 3)]),
    ],
)  # fmt: skip
def test_what_one_reader_wants_is_not_left_out(
    query: str, conditions: list[ColumnComparison]
) -> None:
    assert _compared(query) == conditions


@pytest.mark.parametrize(
    ("where", "memberships"),
    [
        ("a = 3 AND n > 2", [ColumnMembership(0, (3,))]),
        ("a IN (3, -4) AND b = 'x'", [
            ColumnMembership(0, (3, -4)), ColumnMembership(1, ("x",))]),
        ("b IN ('x''y', ', ''z', '') AND v IN (1.5)", [
            ColumnMembership(1, ("x'y", ", 'z", "")), ColumnMembership(2, (1.5,))]),
        ("a IN (3, NULL)", []),
        ("a IN (3, n)", []),
        ("a NOT IN (3, 4)", []),
        ("a IN (3) OR n IN (4)", []),
        ("v IN (1.5, 0.12345678901234567)", []),
        ("(a, b) IN ((3, 'x'), (4, 'y'))", []),
    ],
)  # fmt: skip
def test_columns_equal_one_of_constants_in_all_rows_that_count(
    where: str, memberships: list[ColumnMembership]
) -> None:
    dataflow, index = _planned(f"SELECT p FROM t WHERE {where}")
    assert list(column_memberships(dataflow, index)) == memberships


def _compared(query: str) -> list[ColumnComparison]:
    return list(column_comparisons(*_planned(query)))


def _planned(query: str) -> tuple[Dataflow, int]:
    """The plan of a query, and the index of t among its imports."""
    dataflow = compile_select(query, catalog()).dataflow
    (index,) = [
        i for i, imported in enumerate(dataflow.imports) if str(imported.collection) == "s1"
    ]
    return dataflow, index
