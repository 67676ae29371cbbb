"""Values of every type in every place: at every time what DuckDB says, or CREATE refuses."""

import random
import re

import pyarrow as pa
import pytest

from streams.testing import maintain
from tests.support.maintained import Tables, compare
from tests.support.type_uses import TYPES, USES, histories, query

ASTRAY = {(kind, "a join on NULLs too") for kind in TYPES if re.search(r"\[\d+\]", kind)}
"""Where DuckDB itself is wrong: of two equal rows on the right it shows one as [0, 0, 0]."""


HALVES = [0, pytest.param(1, marks=pytest.mark.long)]
"""Of the places of a type: every other one, so that each place has half of the types."""


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("kind", TYPES)
def test_values_of_every_type_are_kept_wherever_they_stand(kind: str, half: int) -> None:
    chance = random.Random(kind)
    columns = {"t": {"k": "INTEGER", "x": kind}, "u": {"x": kind}}
    tables = Tables(columns, chance, histories(kind))
    for use in [*USES][(half + [*TYPES].index(kind)) % 2 :: 2]:
        text = query(use, kind)
        if (kind, use) not in ASTRAY:
            compare(tables, tables.maintain(text, chance), text, every=2)


def test_a_history_holds_no_row_a_negative_number_of_times() -> None:
    for kind in TYPES:
        for rows in histories(kind).values():
            counts: dict[tuple[str, ...], int] = {}
            for row, _, diff in sorted(rows, key=lambda case: case[1]):
                counts[tuple(row)] = counts.get(tuple(row), 0) + diff
                assert counts[tuple(row)] >= 0, (kind, row)


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("SELECT v::VARCHAR AS s FROM t", "-0.0"),
        ("SELECT v::VARCHAR AS s FROM (FROM t UNION ALL FROM t LIMIT 1)", "-0.0"),
        ("SELECT a.v::VARCHAR AS s FROM t a JOIN t b ON a.v = b.v", "-0.0"),
        ("SELECT v::VARCHAR AS s FROM (SELECT v FROM t GROUP BY v)", "0.0"),
        ("SELECT v::VARCHAR AS s FROM (SELECT DISTINCT v FROM t)", "0.0"),
        ("SELECT v::VARCHAR AS s FROM (SELECT v FROM t INTERSECT SELECT v FROM t)", "0.0"),
        ("SELECT max(v)::VARCHAR AS s FROM t", "0.0"),
        ("SELECT min(v)::VARCHAR AS s FROM t", "0.0"),
    ],
)  # fmt: skip
def test_a_zero_loses_its_sign_where_rows_are_compared_and_nowhere_else(
    query: str, shown: str
) -> None:
    """D281: DuckDB shows -0.0 in each, since no 0.0 is there."""
    rows = pa.table({"v": [-0.0], "_time": [0], "_diff": [1]})
    view = maintain(query, {"t": "v DOUBLE"}, {"t": rows}, [1])
    assert view.at(0).column("s").to_pylist() == [shown]
