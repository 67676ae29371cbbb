"""`streams.testing.maintain` in Spark's workers says what it says in process, bit for bit."""

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streams.testing import Maintained, maintain
from tests.random_sql.case import case
from tests.random_sql.chance import Chance
from tests.random_sql.judge import Judge
from tests.support import tpch
from tests.support.maintained import TIMES, Tables, compare
from tests.support.many_to_many import HOPS, tables

pytestmark = pytest.mark.integration


def updates(view: Maintained) -> list[str]:
    return sorted(map(str, view.updates.to_pylist()))


def on_both(tables: Tables, query: str, seed: int) -> None:
    """Both engines' updates are equal, and DuckDB's answers are those."""
    view = tables.maintain(query, random.Random(seed), "spark")
    local = tables.maintain(query, random.Random(seed), "local")
    assert updates(view) == updates(local)
    for time in range(view.since, view.upper):
        assert view.errors_at(time) == local.errors_at(time)
    compare(tables, local, query)


@pytest.mark.parametrize(
    "number", [21, *(pytest.param(number, marks=pytest.mark.long) for number in (3, 13, 16))]
)
def test_tpch_on_spark(spark: SparkSession, number: int) -> None:
    query, chance = tpch.QUERIES[number], random.Random(number)
    read = {name: of for name, of in tpch.COLUMNS.items() if name in query}
    histories = {name: list(tpch.changes(chance, name, TIMES)) for name in read}
    on_both(Tables(read, chance, histories), query, number)


def test_a_delta_join_on_spark(spark: SparkSession) -> None:
    """Lookups in the second round read what the first round's arrangements keep."""
    query = f"SELECT x.src, count(*) AS n FROM {HOPS} GROUP BY x.src"
    on_both(tables(query, random.Random(1)), query, 1)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(number, marks=pytest.mark.long) for number in (2, 3))]
)
def test_random_queries_on_spark(spark: SparkSession, seed: int) -> None:
    drawn, judge = case(Chance(random.Random(seed).randrange)), Judge()
    view, local = (judge.judge(drawn, engine) for engine in ("spark", "local"))
    assert updates(view) == updates(local)


def test_an_expression_that_fails_on_spark(spark: SparkSession) -> None:
    rows = pa.table({"x": [1, 2], "_time": [1, 1], "_diff": [1, 1]})
    deletions = pa.table({"x": [2], "_time": [3], "_diff": [-1]})
    view = maintain(
        "SELECT count(*) AS n FROM t WHERE error_if(x) > 0".replace(
            "error_if(x)", "1 // (x - 2)"
        ),
        {"t": "x BIGINT"},
        {"t": pa.concat_tables([rows, deletions])},
        engine="spark",
    )
    assert len(view.errors_at(1)) == 1
    assert view.errors_at(3) == []


def test_a_view_over_nothing_is_born_on_spark(spark: SparkSession) -> None:
    view = maintain("SELECT count(*) AS n FROM t", {"t": "x BIGINT"}, {}, [3], engine="spark")
    assert view.at(2).to_pylist() == [{"n": 0}]


def test_rows_go_by_themselves_on_spark(spark: SparkSession) -> None:
    rows = pa.table({"x": [3, 5], "_time": [1, 1], "_diff": [1, 1]})
    view = maintain(
        "SELECT x FROM t WHERE mz_now() < x",
        {"t": "x BIGINT"},
        {"t": rows},
        [2, 4, 9],
        engine="spark",
    )
    values = [sorted(view.at(time).column("x").to_pylist()) for time in range(1, 7)]
    assert values == [[3, 5], [3, 5], [5], [5], [], []]


def test_a_function_in_python_is_made_in_the_workers(spark: SparkSession) -> None:
    text = """CREATE FUNCTION inverse(x BIGINT) RETURNS DOUBLE LANGUAGE PYTHON AS $$
import pyarrow.compute as pc

def inverse(x):
    if pc.any(pc.equal(x, 0)).as_py():
        raise ZeroDivisionError
    return pc.divide(1.0, pc.cast(x, "double"))
$$"""
    rows = pa.table({"x": [1, 2, 0, 4, None, 4], "_time": [1] * 6, "_diff": [1] * 6})
    deletions = pa.table({"x": [0, 4], "_time": [3, 3], "_diff": [-1, -1]})
    query = (
        "SELECT inverse(x) AS i, count(*) AS n FROM t"
        " WHERE inverse(x) IS DISTINCT FROM 1 GROUP BY 1"
    )
    view, local = (
        maintain(
            query,
            {"t": "x BIGINT"},
            {"t": pa.concat_tables([rows, deletions])},
            engine=engine,
            functions=text,
        )
        for engine in ("spark", "local")
    )
    assert updates(view) == updates(local)
    assert view.errors_at(1) == local.errors_at(1)
    assert len(view.errors_at(1)) == 1
    assert view.errors_at(3) == []
    counts = {row["i"]: row["n"] for row in view.at(3).to_pylist()}
    assert counts == {0.5: 1, 0.25: 1, None: 1}
