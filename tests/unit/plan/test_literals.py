"""Constants as DuckDB holds them inside become text that means the same value and type.

Most constants of a query are casts from text. Those that DuckDB computes while it binds come
as internal values: here they are made by a variable, which the binder puts in place.
"""

import duckdb
import pytest

from streams.plan.bind.literals import literal
from streams.plan.duckdb_plan import parse
from streams.plan.keywords import KEYWORDS, RESERVED
from streams.plan.type_names import identifier, type_name
from tests.support.plan_tables import VALUES, connect

CONSTANTS = [
    "NULL::INTEGER", "true", "(-128)::TINYINT", "255::UTINYINT",
    "18446744073709551615::UBIGINT",
    "'-170141183460469231731687303715884105728'::HUGEINT", "(-1)::HUGEINT",
    "'340282366920938463463374607431768211455'::UHUGEINT",
    "1.1::FLOAT", "'nan'::FLOAT", "-0.0::DOUBLE", "1e300", "'nan'::DOUBLE", "'-inf'::DOUBLE",
    "0.1::DOUBLE + 0.2::DOUBLE", "5e-324::DOUBLE",
    "-0.05::DECIMAL(3,2)", "123.45::DECIMAL(38,10)", "7::DECIMAL(4,0)",
    "-99999999999999999999999999999999.999999::DECIMAL(38,6)",
    "''", "'it''s \"x\"'", "'a' || chr(0) || 'b'", "chr(0)", "'é😀\n\\'",
    "'\\xAA\\x00b\\x5C'::BLOB", "''::BLOB",
    "DATE '2024-02-29'", "DATE '-0044-03-15'", "'infinity'::DATE", "'-infinity'::DATE",
    "DATE '5877642-06-25 (BC)'", "DATE '290000-01-01'", "DATE '0001-01-01'",
    "TIME '00:00:00'", "TIME '23:59:59.999999'", "TIME '24:00:00'",
    "'12:34:56.5+02:30'::TIMETZ", "'00:00:00-15:59:59'::TIMETZ", "'23:00:00+15:59'::TIMETZ",
    "TIMESTAMP '1969-12-31 23:59:59.999999'", "'infinity'::TIMESTAMP", "'-infinity'::TIMESTAMP",
    "TIMESTAMP '290000-01-01 00:00:00'", "TIMESTAMP '0044-03-15 (BC) 12:00:00'",
    "TIMESTAMPTZ '2024-02-29 12:00:00+02'", "'infinity'::TIMESTAMPTZ",
    "'2024-02-29 12:34:56.123456789'::TIMESTAMP_NS", "'2024-02-29 12:34:56.789'::TIMESTAMP_MS",
    "'1900-01-01'::TIMESTAMP_S", "'12:00:00.123456789'::TIME_NS",
    "INTERVAL '14 months -3 days 5 microseconds'", "INTERVAL '-1 year 100 hours'",
    "'00000000-0000-0000-0000-000000000001'::UUID",
    "'ffffffff-8000-0000-0000-0000000000ff'::UUID",
    "'q''r'::ENUM('p', 'q''r')", "'{\"a\": [1]}'::JSON",
    "[]::INTEGER[]", "[1, NULL, 3]::TINYINT[]", "[[1], NULL, []]", "['it''s']",
    "[1, 2]::INTEGER[2]", "{'a': 1, 'B \"b': [DATE '2024-01-01'], 'n': NULL::INTEGER}",
    "MAP {'a': 1, 'b': NULL}", "MAP {}::MAP(INTEGER, DOUBLE)", "row(1, 'x')",
    "union_value(n := 1)", "'t'::UNION(n INTEGER, t VARCHAR)",
]  # fmt: skip


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return connect()


@pytest.mark.parametrize("constant", CONSTANTS)
def test_an_inner_value_is_written_exactly(
    constant: str, connection: duckdb.DuckDBPyConnection
) -> None:
    connection.execute(f"SET VARIABLE x = {constant}")
    call = "SELECT json_serialize_plan('SELECT getvariable(''x'')', optimize := false)"
    plan = parse(connection.execute(call).fetchall()[0][0]).records("plans")[0]
    (record,) = plan.records("expressions")
    written = literal(record.record("value"))
    expected, actual = (
        connection.execute(
            f"SELECT typeof(v), v::VARCHAR, hash(v), v IS NOT DISTINCT FROM ({constant})"
            f" FROM (SELECT ({text}) AS v)"
        ).fetchall()
        for text in (constant, written.sql)
    )
    assert actual == expected
    assert written.type == expected[0][0]


def test_the_keywords_are_those_of_the_pinned_duckdb(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    rows = connection.execute(
        "SELECT keyword_name, keyword_category FROM duckdb_keywords()"
    ).fetchall()
    assert {name for name, _ in rows} == KEYWORDS
    assert {name for name, category in rows if category == "reserved"} == RESERVED


def test_type_names_are_those_that_duckdb_prints(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    names = ["a", "B", "Y y", "key", "year", "é", 'q"t', "1a", "select"]
    fields = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}" INTEGER' for name in names)
    types = [values[0] for values in VALUES.values()]
    types += [f"STRUCT({fields})[]", "MAP(STRUCT(a INTEGER[2]), DECIMAL(4,1)[])", "TIME_NS"]
    for type_ in types:
        call = "SELECT json_serialize_plan(?, optimize := false)"
        answer = connection.execute(call, [f"SELECT NULL::{type_}"]).fetchall()
        plan = parse(answer[0][0]).records("plans")[0]
        (expression,) = plan.records("expressions")
        shape = expression.record("return_type" if expression.has("return_type") else "value")
        record = shape.record("type") if shape.has("type") and not shape.has("id") else shape
        printed = connection.execute(f"SELECT typeof(NULL::{type_})").fetchall()[0][0]
        assert type_name(record) == printed


def test_names_are_quoted_where_they_must_be() -> None:
    assert [identifier(name) for name in ("a", "select", "A b", 'x"y', "1a", "year")] == [
        "a", '"select"', '"A b"', '"x""y"', '"1a"', "year",
    ]  # fmt: skip
