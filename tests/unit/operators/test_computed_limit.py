"""LIMIT and OFFSET by values that are computed: DuckDB's rows and errors at every time."""

import random

import pyarrow as pa
import pytest

from streams.testing import maintain
from tests.support.maintained import Tables, compare, history

POOL = {"INTEGER": ["NULL", "0", "1", "2", "3", "7"]}
QUERIES = [
    "SELECT v FROM t ORDER BY v LIMIT (SELECT count(*) FROM u)",
    """SELECT v FROM t ORDER BY v DESC
        LIMIT (SELECT max(v) FROM u) OFFSET (SELECT min(v) FROM u)""",
    "SELECT v FROM t ORDER BY v OFFSET (SELECT max(v) FROM u)",
    "SELECT v FROM t ORDER BY v LIMIT 2 OFFSET (SELECT avg(v) FROM u)",
    "SELECT v FROM t ORDER BY v LIMIT (SELECT sum(v) * 10.5 FROM u WHERE v < 4)% OFFSET 1",
    "SELECT v FROM t ORDER BY v LIMIT 40% OFFSET (SELECT min(v) FROM u)",
    "SELECT v FROM t ORDER BY v LIMIT 1 + 2 OFFSET 1 + 0",
    "SELECT count(*) AS n FROM (SELECT v FROM t LIMIT (SELECT sum(v) FROM u))",
    """SELECT v FROM t WHERE v IN (
        SELECT v FROM u ORDER BY v LIMIT (SELECT count(*) // 2 FROM t))""",
]


@pytest.mark.parametrize("query", QUERIES)
def test_a_computed_limit_is_duckdbs_at_every_time(query: str) -> None:
    for seed in range(2):
        chance = random.Random(seed)
        columns = {name: {"v": "INTEGER"} for name in ("t", "u")}
        histories = {
            name: list(history(chance, ["INTEGER"], POOL, range(6, 20))) for name in columns
        }
        tables = Tables(columns, chance, histories)
        compare(tables, tables.maintain(query, chance), query)


@pytest.mark.parametrize(
    ("limit", "fails"),
    [
        ("(SELECT min(v) - 1 FROM t)", True),
        ("(SELECT 4611686018427387905 + min(v) FROM t)", True),
        ("(SELECT 4611686018427387904 + min(v) FROM t) OFFSET 4611686018427387904", False),
        ("(SELECT 101 + min(v) FROM t)%", True),
        ("(SELECT -0.5 + min(v) FROM t)%", True),
        ("(SELECT 'x' || min(v) FROM t)", True),
        ("(SELECT '2' || min(v) FROM t)", False),
    ],
)
def test_a_limit_that_is_no_number_of_rows_is_an_error(limit: str, fails: bool) -> None:
    rows = pa.table({"v": [0, 1], "_time": [1, 1], "_diff": [1, 1]})
    deletions = pa.table({"v": [0, 1], "_time": [2, 2], "_diff": [-1, -1]})
    changes = {"t": pa.concat_tables([rows, deletions])}
    view = maintain(f"SELECT v FROM t ORDER BY v LIMIT {limit}", {"t": "v BIGINT"}, changes)
    assert bool(view.errors_at(1)) is fails
    assert not view.errors_at(2)
