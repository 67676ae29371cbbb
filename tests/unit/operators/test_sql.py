"""Views against DuckDB: every type, sums bit for bit, and the arguments of maintain."""

import random
from fractions import Fraction

import pytest

from streams.errors import InvalidStatement, InvalidUsage
from streams.testing import maintain
from tests.support.maintained import Tables, compare, history
from tests.support.plan_tables import NESTED, VALUES, connect

WIDE = [
    "SELECT a.{c}, b.{c} AS other FROM every a JOIN every b ON a.{c} = b.{c}",
    "SELECT {c}, count(*) AS n FROM every GROUP BY {c}",
    "SELECT DISTINCT {c} FROM every WHERE {c} IS NOT NULL",
    "SELECT count({c}) AS n, min({c}) AS low, max({c}) AS high FROM every",
]


HALVES = [0, pytest.param(1, marks=pytest.mark.long)]
"""Of the queries of a type: every other one, so that each query has half of the types."""


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("column", sorted(VALUES | NESTED))
def test_every_type_is_payload_and_key(column: str, half: int) -> None:
    chance = random.Random(column)
    kind = (VALUES | NESTED)[column][0]
    tables = Tables({"every": {column: kind}}, chance)
    for template in WIDE[(half + sorted(VALUES | NESTED).index(column)) % 2 :: 2]:
        query = template.format(c=f'"{column}"')
        try:
            view = tables.maintain(query, chance)
        except InvalidStatement:
            assert "min(" in template
            assert column in {"bits", "bitss", "e", "enums", "tz"}
            continue
        compare(tables, view, query, every=2)


BRACES = [
    "SELECT s || '{t}' AS x, s ~* 'a{1}' AS y, s LIKE '%{rows}' AS z FROM texts",
    "SELECT {'a{t}': s} AS x, \"q{0}\" AS y FROM texts WHERE s <> '{0}'",
    "SELECT TRY(CAST(s || '{t}' AS INTEGER)) AS x, s || 'a''{t}' AS y FROM texts",
    "SELECT string_agg(s || '{t}', '{n}' ORDER BY s) AS x FROM texts",
    "SELECT \"q{0}\" || '{t}' AS k, count(*) FILTER (s = '{t}') AS n FROM texts GROUP BY 1",
    "SELECT s, lag(s, 1, '{t}') OVER (PARTITION BY s || '{' ORDER BY \"q{0}\") AS x FROM texts",
    "SELECT unnest([s, '{t}']) AS x FROM texts",
    "SELECT a.s FROM texts a JOIN texts b ON a.s || '{t}' = b.\"q{0}\" || '{t}' AND a.s > '{'",
]


@pytest.mark.parametrize("query", BRACES)
def test_braces_in_a_text_or_a_name_are_text(query: str) -> None:
    chance = random.Random(query)
    tables = Tables({"texts": {"s": "VARCHAR", "q{0}": "VARCHAR"}}, chance)
    pool = {"VARCHAR": ["'a'", "'{t}'", "'b{3}'", "NULL"]}
    kinds = ["VARCHAR", "VARCHAR"]
    tables.histories["texts"] = list(history(chance, kinds, pool, range(8, 14)))
    compare(tables, tables.maintain(query, chance), query)


def test_a_row_that_fails_beside_booleans_in_a_list() -> None:
    chance = random.Random(1)
    tables = Tables({"t": {"n": "INTEGER"}}, chance)
    tables.histories["t"] = [(["0"], 0, 1), (["1"], 0, 1), (["0"], 1, -1)]
    query = (
        "SELECT [n > 0, error_if_zero] AS x FROM (SELECT n, 1 // n = 1 AS error_if_zero FROM t)"
    )
    view = tables.maintain(query, chance)
    assert view.errors_at(0)
    assert view.at(1)["x"].combine_chunks().flatten().storage.to_pylist() == [1, 1]


EXACT = [
    ("avg", "TINYINT"), ("avg", "INTEGER"), ("avg", "BIGINT"), ("avg", "UBIGINT"),
    ("avg", "HUGEINT"), ("avg", "DECIMAL(4,1)"), ("avg", "DECIMAL(9,2)"),
    ("avg", "DECIMAL(18,2)"), ("avg", "DECIMAL(18,6)"), ("avg", "DECIMAL(38,2)"),
    ("avg", "DECIMAL(30,25)"),
    ("sum", "BIGINT"), ("sum", "UBIGINT"), ("sum", "HUGEINT"), ("sum", "DECIMAL(18,2)"),
    ("sum", "DECIMAL(38,10)"), ("sum", "BOOLEAN"), ("sum", "TINYINT"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "kind"), EXACT)
def test_sums_and_averages_are_duckdbs_bit_for_bit(function: str, kind: str) -> None:
    """Large and small values, negative ones, and one group of each size."""
    connection = connect()
    low, high = {
        "TINYINT": (-128, 127),
        "INTEGER": (-(2**31), 2**31 - 1),
        "BIGINT": (-(2**63), 2**63 - 1),
        "UBIGINT": (0, 2**64 - 1),
        "HUGEINT": (-(2**120), 2**120),
        "BOOLEAN": (0, 1),
    }.get(kind, (0, 0))
    chance = random.Random(f"{function} {kind}")
    if kind.startswith("DECIMAL"):
        precision, scale = map(int, kind[8:-1].split(","))
        integer_digits = min(precision, 36) - scale

        def literal() -> str:
            digits = chance.randint(1, max(integer_digits, 1))
            number = chance.randint(0, 10 ** min(digits, integer_digits) - 1)
            fraction = f"{chance.randint(0, 10**scale - 1):0{scale}d}"
            return f"'{chance.choice(['', '-'])}{number}.{fraction}'::{kind}"
    else:

        def literal() -> str:
            return f"'{chance.randint(low, high)}'::{kind}"

    rows = [(group, literal()) for group in range(60) for _ in range(chance.randint(1, 9))]
    values = ", ".join(f"({group}, {value}, 0, 1)" for group, value in rows)
    connection.execute(f"CREATE TABLE t AS FROM (VALUES {values}) AS v(g, x, _time, _diff)")
    query = f"SELECT g, {function}(x) AS y FROM t GROUP BY g"
    connection.execute("SET arrow_lossless_conversion = true")
    updates = connection.sql("FROM t").to_arrow_table()
    view = maintain(query, {"t": f"g INTEGER, x {kind}"}, {"t": updates}, [1])
    connection.register("got", view.at(0))
    # The optimizer may turn avg into sum / count, which is rounded twice.
    connection.execute("PRAGMA disable_optimizer")
    want = dict(connection.execute(query).fetchall())
    actual = dict(connection.execute("SELECT g, y FROM got").fetchall())
    if function == "avg":
        exact = connection.execute("SELECT g, list(x) FROM t GROUP BY g").fetchall()
        assert actual == {g: float(sum(map(Fraction, xs)) / len(xs)) for g, xs in exact}
        # DuckDB rounds to 64 bits first, which shows in one of a thousand
        if kind != "DECIMAL(30,25)":  # and then its divisor is rounded too
            assert sum(actual[g] != want[g] for g in actual) <= 2
    else:
        assert actual == want


def test_arguments_are_checked() -> None:
    with pytest.raises(InvalidUsage, match="engine"):
        maintain("SELECT 1 AS x", {}, {}, engine="flink")  # type: ignore[arg-type]
    with pytest.raises(InvalidUsage, match="ascending"):
        maintain("SELECT 1 AS x", {}, {}, [3, 3])
    with pytest.raises(InvalidUsage, match="not defined"):
        maintain("SELECT 1 AS x", {}, {"t": None})
    view = maintain("SELECT 1 AS x", {}, {}, [3])
    assert view.at(2).to_pylist() == [{"x": 1}]
    with pytest.raises(InvalidUsage, match="outside"):
        view.at(3)
