"""The relations that plan tests query, and a DuckDB with random rows in them."""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import duckdb
import pyarrow as pa

from streams.ids import CollectionId
from streams.plan.compile import Relation
from streams.plan.physical import Column
from streams.plan.type_names import quoted
from streams.trace.kernel.unions import as_struct, as_union, carrier_type, has_union

# Every type DuckDB has that a table can hold, with values at its edges.
VALUES = {
    "tiny": ("TINYINT", "NULL", "-128", "127", "0", "3"),
    "small": ("SMALLINT", "NULL", "-32768", "5"),
    "i": ("INTEGER", "NULL", "-2147483648", "2147483647", "0", "1", "7"),
    "big": ("BIGINT", "NULL", "-9223372036854775808", "9223372036854775807", "42"),
    "huge": ("HUGEINT", "NULL", "'-170141183460469231731687303715884105728'", "1"),
    "utiny": ("UTINYINT", "NULL", "255", "2"),
    "ubig": ("UBIGINT", "NULL", "18446744073709551615", "2"),
    "uhuge": ("UHUGEINT", "NULL", "'340282366920938463463374607431768211455'", "2"),
    "f": ("FLOAT", "NULL", "'nan'", "'-0.0'", "1.1", "'inf'"),
    "d": ("DOUBLE", "NULL", "'nan'", "'-0.0'", "0.0", "1e300", "'-inf'", "0.1"),
    "dec": ("DECIMAL(10,2)", "NULL", "-12345678.90", "0.01", "1.50"),
    "wide": ("DECIMAL(38,10)", "NULL", "1234567890123456789012345678.0123456789", "0"),
    "s": ("VARCHAR", "NULL", "''", "'abc'", "'it''s; \"x\" -- y'", "'é😀\\n'", "'12'"),
    "bl": ("BLOB", "NULL", "'\\xAA\\x00b'", "''"),
    "bits": ("BIT", "NULL", "'0101'", "'111'"),
    "bo": ("BOOLEAN", "NULL", "true", "false"),
    "dt": ("DATE", "NULL", "'2024-02-29'", "'infinity'", "'0044-03-15 (BC)'"),
    "ti": ("TIME", "NULL", "'23:59:59.999999'", "'00:00:00'"),
    "tz": ("TIME WITH TIME ZONE", "NULL", "'12:00:00+02:30'"),
    "ts": ("TIMESTAMP", "NULL", "'2024-02-29 12:34:56.789012'", "'-infinity'", "'1969-12-31'"),
    "tsz": ("TIMESTAMP WITH TIME ZONE", "NULL", "'2024-02-29 12:34:56+02'"),
    "ns": ("TIMESTAMP_NS", "NULL", "'2024-02-29 12:34:56.123456789'"),
    "ms": ("TIMESTAMP_MS", "NULL", "'2024-02-29 12:34:56.123'"),
    "sec": ("TIMESTAMP_S", "NULL", "'2024-02-29 12:34:56'"),
    "iv": ("INTERVAL", "NULL", "INTERVAL '1 month'", "INTERVAL '30 days'", "INTERVAL '-5 s'"),
    "id": ("UUID", "NULL", "'00000000-0000-0000-0000-000000000001'"),
    "e": ("ENUM('z', 'q''r')", "NULL", "'z'", "'q''r'"),
    "l": ("INTEGER[]", "NULL", "[]", "[1, NULL, 3]", "[5, 2, 9]"),
    "a": ("INTEGER[3]", "NULL", "[1, 2, 3]"),
    "st": ('STRUCT(x INTEGER, "Y y" VARCHAR)', "NULL", "{'x': 1, 'Y y': 'z'}"),
    "m": ("MAP(VARCHAR, INTEGER)", "NULL", "MAP {'x': 1, 'y': NULL}", "MAP {}"),
    "un": ("UNION(n INTEGER, t VARCHAR)", "NULL", "union_value(n := 1)", "'text'",
           "union_value(t := NULL::VARCHAR)"),
    "j": ("JSON", "NULL", '\'{"a": [1, {"b": null}]}\'', "'3'"),
    "no": ("BIGNUM", "NULL", "'12345678901234567890123456789012345678901234567890'"),
    "ls": ("STRUCT(x INTEGER)[]", "NULL", "[{'x': 1}, NULL]"),
}  # fmt: skip

NESTED = {
    "bools": ("BOOLEAN[]", "NULL", "[true, NULL]", "[]", "[false]"),
    "bool": ("STRUCT(b BOOLEAN)", "NULL", "{'b': true}", "{'b': NULL}"),
    "flags": ("MAP(BOOLEAN, BOOLEAN)", "NULL", "MAP {true: false}", "MAP {}"),
    "ids": ("UUID[]", "NULL", "['00000000-0000-0000-0000-000000000001']", "[]"),
    "jsons": ("JSON[]", "NULL", "['{\"a\": 1}', NULL]", "[]"),
    "bitss": ("BIT[]", "NULL", "['0101', '1']", "[]"),
    "enums": ("ENUM('z', 'a')[]", "NULL", "['a', 'z']", "['z']", "[]"),
    "tuple": ("TUPLE(BOOLEAN, UUID)", "NULL", "(true, NULL)", "(false, NULL)"),
    "lf": ("FLOAT[]", "NULL", "'[nan, -0.0]'", "'[0.0, 1.5]'", "[]", "'[NULL, 2.5]'"),
    "ld": ("DOUBLE[]", "NULL", "'[nan, -0.0]'", "'[0.0, 1.5]'", "[]", "'[inf, NULL]'"),
    "lv": ("VARCHAR[]", "NULL", "['a', NULL]", "[]", "['b', 'a', 'b']"),
    "ll": ("INTEGER[][]", "NULL", "[[1], NULL, []]", "[]", "[[2, 1]]"),
    "liv": ("INTERVAL[]", "NULL", "[INTERVAL '1 month', NULL]", "[INTERVAL '30 days']"),
    "af": ("FLOAT[3]", "NULL", "'[1.0, 2.5, -0.0]'", "'[0.0, 3.0, 4.0]'"),
    "ad": ("DOUBLE[3]", "NULL", "'[nan, 2.5, -0.0]'", "'[0.0, 3.0, 4.0]'"),
    "sd": ("STRUCT(a DOUBLE, b INTERVAL)", "NULL", "'{a: -0.0, b: 1 day}'",
           "'{a: nan, b: NULL}'"),
    "ss": ("STRUCT(s STRUCT(a INTEGER, b BOOLEAN))", "NULL", "{'s': NULL}",
           "{'s': {'a': 1, 'b': true}}"),
    "md": ("MAP(INTEGER, DOUBLE)", "NULL", "'{1=nan, 2=-0.0}'", "MAP {}"),
    "ml": ("MAP(VARCHAR, INTEGER[])", "NULL", "MAP {'a': [1, NULL], 'b': NULL}", "MAP {}"),
    "us": ("UNION(s STRUCT(x INTEGER, y VARCHAR), l INTEGER[])", "NULL",
           "union_value(s := {'x': 1, 'y': NULL})", "union_value(l := [1, NULL])",
           "union_value(l := NULL::INTEGER[])"),
    "lu": ("UNION(n INTEGER, t VARCHAR)[]", "NULL", "[union_value(n := 1), NULL]", "[]",
           "[union_value(n := NULL::INTEGER)]"),
    "su": ("STRUCT(u UNION(n INTEGER, t VARCHAR), x INTEGER[2])", "NULL",
           "{'u': union_value(t := 'x'), 'x': [1, NULL]}", "{'u': NULL, 'x': NULL}",
           "{'u': union_value(n := NULL::INTEGER), 'x': NULL}"),
    "aa": ("INTEGER[2][2]", "NULL", "[[1, 2], [3, NULL]]", "[NULL, [1, 2]]"),
}  # fmt: skip

SMALL = {
    "t": {"a": "INTEGER", "b": "VARCHAR", "v": "DOUBLE", "p": "DECIMAL(8,2)", "n": "BIGINT"},
    "U": {"a": "BIGINT", "w": "VARCHAR", "x Y": "INTEGER"},
    "k": {"a": "SMALLINT", "w": "VARCHAR", "g": "INTEGER"},
}
KEYED = {
    "facts": (
        {"id": "BIGINT", "customer": "INTEGER", "supplier": "INTEGER", "v": "INTEGER"},
        ["id"],
    ),
    "customers": ({"id": "INTEGER", "nation": "INTEGER", "name": "VARCHAR"}, ["id"]),
    "suppliers": ({"id": "INTEGER", "nation": "SMALLINT", "name": "VARCHAR"}, ["id"]),
    "nations": ({"id": "SMALLINT", "name": "VARCHAR"}, ["id"]),
    "lines": ({"fact": "BIGINT", "line": "INTEGER", "v": "DOUBLE"}, ["fact", "line"]),
}  # fmt: skip
"""Relations with the columns of their keys, as upserts make them."""
LITERALS = {
    "INTEGER": ["NULL", "0", "1", "2", "3", "-1"],
    "SMALLINT": ["NULL", "0", "1", "2", "3"],
    "BIGINT": ["NULL", "0", "1", "2", "3", "4"],
    "VARCHAR": ["NULL", "'x'", "'xy'", "'z'", "'1'"],
    "DOUBLE": ["NULL", "'-0.0'", "0.0", "'nan'", "1.5", "-2.25"],
    "DECIMAL(8,2)": ["NULL", "0.00", "1.50", "-3.25"],
}


def catalog() -> dict[str, Relation]:
    relations = {
        name: Relation(CollectionId(f"s{number}"), tuple(Column(*c) for c in columns.items()))
        for number, (name, columns) in enumerate(SMALL.items(), start=1)
    }
    wide = tuple(Column(name, values[0]) for name, values in VALUES.items())
    return relations | {"every": Relation(CollectionId("s9"), wide)} | keyed()


def keyed() -> dict[str, Relation]:
    """The relations that have keys."""
    return {
        name: Relation(
            CollectionId(f"k{number}"), tuple(Column(*c) for c in of.items()), (tuple(key),)
        )
        for number, (name, (of, key)) in enumerate(KEYED.items(), start=1)
    }


def append_only() -> dict[str, Relation]:
    """The small relations, as sources with ENVELOPE NONE have them."""
    return {name: replace(catalog()[name], monotone=True) for name in SMALL}


def connect() -> duckdb.DuckDBPyConnection:
    """A connection to a database in memory, and to nothing else."""
    return as_plans_mean(duckdb.connect(config={"disable_database_invalidation": "true"}))


def as_plans_mean(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """The connection, with the settings with which a plan's expressions are computed."""
    connection.execute("SET integer_division = true")
    connection.execute("SET default_null_order = 'postgres'")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET threads = 1")
    return connection


def fill(connection: duckdb.DuckDBPyConnection, chance: random.Random, rows: int = 12) -> None:
    """Create the relations with random rows."""
    for name, columns in SMALL.items():
        body = ", ".join(f'"{column}" {type_}' for column, type_ in columns.items())
        connection.execute(f'CREATE OR REPLACE TABLE "{name}" ({body})')
        many = [[chance.choice(LITERALS[t]) for t in columns.values()] for _ in range(rows)]
        _insert(connection, name, many[: chance.randrange(rows + 1)])
    for name, (columns, key) in KEYED.items():
        body = ", ".join(f"{column} {type_}" for column, type_ in columns.items())
        connection.execute(f"CREATE OR REPLACE TABLE {name} ({body})")
        many = [[chance.choice(LITERALS[t]) for t in columns.values()] for _ in range(rows)]
        places = [list(columns).index(column) for column in key]
        latest = {tuple(row[place] for place in places): row for row in many}
        _insert(connection, name, list(latest.values()))
    body = ", ".join(f'"{name}" {values[0]}' for name, values in VALUES.items())
    connection.execute(f"CREATE OR REPLACE TABLE every ({body})")
    _insert(
        connection,
        "every",
        [[chance.choice(values[1:]) for values in VALUES.values()] for _ in range(rows)],
    )


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: list[list[str]]) -> None:
    for row in rows:  # each on its own: a list of them would have one type a column first
        connection.execute(f'INSERT INTO "{table}" VALUES ({", ".join(row)})')


def carry(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Make a table what plans read: with structs for unions in its columns."""
    columns = connection.execute(f'DESCRIBE "{name}"').fetchall()
    listed = carriers((column, kind) for column, kind, *_ in columns)
    connection.execute(f'ALTER TABLE "{name}" RENAME TO "whole {name}"')
    connection.execute(f'CREATE VIEW "{name}" AS SELECT {listed} FROM "whole {name}"')


def carriers(columns: Iterable[tuple[str, str]]) -> str:
    """SQL for columns, by name and type, with the structs that carry unions: Arrow's unions do
    not tell a NULL from a member that is NULL."""
    return ", ".join(f"{as_struct(quoted(n), kind)} AS {quoted(n)}" for n, kind in columns)


def in_arrow(connection: duckdb.DuckDBPyConnection, table: str, order: str) -> pa.Table:
    """The rows of a table, given in SQL, in an order, as `maintain` takes them."""
    described = connection.execute(f"DESCRIBE {table}").fetchall()
    listed = carriers((name, kind) for name, kind, *_ in described)
    return connection.sql(f"SELECT {listed} FROM {table} ORDER BY {order}").to_arrow_table()


def shown(query: str, columns: Sequence[Column]) -> str:
    """The query of a plan with the values of its view's columns."""
    listed = [f"{as_union(f'c{i}', column.type)} AS c{i}" for i, column in enumerate(columns)]
    return f"SELECT {', '.join(listed)} FROM ({query}) AS plan"


def answer(
    connection: duckdb.DuckDBPyConnection, query: str, types: list[str] | None = None
) -> tuple[list[str], list[str]]:
    """The types and the sorted rows, as `as_text` shows them; `types` where they are known."""
    if types is None:
        types = [str(type_) for type_ in connection.sql(query).types]
    names = ", ".join(f"c{i}" for i in range(len(types)))
    shown = ", ".join(as_text(f"c{i}", type_) for i, type_ in enumerate(types))
    text = f"SELECT {shown} FROM ({query.rstrip().rstrip(';')}) AS q({names})"
    return types, sorted(str(row) for row in connection.execute(text).fetchall())


def as_text(column: str, type_: str) -> str:
    """The value as text, in which equal values that print apart are one.

    Floats are rounded, large ones to ten digits: DuckDB's own sums differ in the last bits from
    run to run. A NaN is one, a zero has no sign, and an interval is compared by its length. A
    union is the struct that carries it, which tells a NULL from a member that is NULL.
    """
    if has_union(type_):
        return as_text(as_struct(column, type_), carrier_type(type_))
    if type_ in {"FLOAT", "DOUBLE"}:
        return (
            f"CASE WHEN isnan({column}) THEN 'nan' WHEN abs(round({column}, 9)) < 1e6"
            f" THEN CAST(round({column}, 9) + 0 AS VARCHAR)"
            f" ELSE format('{{:.9e}}', {column}::DOUBLE) END"
        )
    if type_ == "INTERVAL":
        return f"CAST(normalized_interval({column}) AS VARCHAR)"
    if type_ in {"FLOAT[]", "DOUBLE[]", "INTERVAL[]"}:
        values = f"list_transform({column}, lambda e: {as_text('e', type_[:-2])})"
        return f"CAST({values} AS VARCHAR)"
    if re.search(r"\b(FLOAT|DOUBLE|INTERVAL)\b", type_):
        unsigned = f"regexp_replace(CAST({column} AS VARCHAR), '-0\\.0\\b', '0.0', 'g')"
        return f"replace({unsigned}, '30 days', '1 month')"
    return f"CAST({column} AS VARCHAR)"
