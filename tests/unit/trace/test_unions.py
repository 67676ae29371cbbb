# ruff: noqa: E501 - SQL is easier to read in one line
"""A union and the struct that carries it say the same, however deep, and stand in one order."""

import duckdb
import pytest

from streams.trace.kernel.kernel import Kernel, arrow_type, printed_type, typed
from streams.trace.kernel.unions import as_key, as_struct, as_union, carrier_type, has_union

MEMBERS = (
    'a INTEGER, b VARCHAR, s STRUCT(x INTEGER, "y""\'z" DOUBLE[]), u UNION(p INTEGER, q DOUBLE),'
    " \"TAG\" DATE, l UNION(p INTEGER, q INTEGER[])[], e ENUM('x,(', 'y')"
)
UNION = f"UNION({MEMBERS})"
VALUES = [
    "union_value(a := 1)",
    "union_value(a := NULL::INTEGER)",
    "union_value(b := 'x')",
    "union_value(b := NULL::VARCHAR)",
    "union_value(s := {'x': 1, 'y\"''z': ['-0.0'::DOUBLE, 'nan', NULL]})",
    "union_value(s := {'x': NULL::INTEGER, 'y\"''z': NULL::DOUBLE[]})",
    'union_value(s := NULL::STRUCT(x INTEGER, "y""\'z" DOUBLE[]))',
    "union_value(u := union_value(p := 1)::UNION(p INTEGER, q DOUBLE))",
    "union_value(u := union_value(p := NULL::INTEGER)::UNION(p INTEGER, q DOUBLE))",
    "union_value(u := NULL::UNION(p INTEGER, q DOUBLE))",
    "union_value(\"TAG\" := DATE '2020-01-01')",
    "union_value(l := [union_value(p := NULL)::UNION(p INTEGER, q INTEGER[]), NULL])",
    "union_value(e := 'x,('::ENUM('x,(', 'y'))",
    "NULL",
]
SHAPES = [
    ("{}", "{}"),
    ("[{}, NULL]", "{}[]"),
    ("[{}, NULL]", "{}[2]"),
    ("{{'k': {}, 'z': 1}}", "STRUCT(k {}, z INTEGER)"),
    ("MAP {{1: {}}}", "MAP(INTEGER, {})"),
    ("row({}, 2)", "TUPLE({}, INTEGER)"),
    ("{{'k': [{{'z': {}}}]}}", "STRUCT(k STRUCT(z {})[])"),
]


def filled(shape: str, kind: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t (n INTEGER, u {kind.format(UNION)})")
    for number, value in enumerate(VALUES):
        constant = shape.format(f"({value})::{UNION}")
        connection.execute(
            f"INSERT INTO t VALUES ({number}, ({constant})::{kind.format(UNION)})"
        )
    connection.execute("INSERT INTO t VALUES (99, NULL)")
    return connection


@pytest.mark.parametrize(("shape", "kind"), SHAPES)
def test_what_is_carried_comes_back_and_has_the_same_order_and_hash(
    shape: str, kind: str
) -> None:
    connection = filled(shape, kind)
    type_ = str(connection.table("t").types[1])
    connection.execute(f"CREATE TABLE k AS SELECT *, {as_struct('u', type_)} AS k FROM t")
    assert str(connection.table("k").types[2]) == carrier_type(type_)
    assert not has_union(carrier_type(type_))
    back = f"SELECT *, {as_union('k', type_)} AS v FROM k"
    shown = "u IS NOT DISTINCT FROM v, hash(u) = hash(k), typeof(u) = typeof(v)"
    for value in ("u::VARCHAR", "to_json(u)::VARCHAR", as_struct("u", type_)):
        other = value.replace("u:", "v:").replace("(u)", "(v)")
        other = as_struct("v", type_) if other == value else other
        shown += f", {value} IS NOT DISTINCT FROM {other}"
    for row in connection.execute(f"SELECT {shown} FROM ({back})").fetchall():
        assert all(row)
    for order in ("", "DESC", "DESC NULLS LAST"):
        of_unions, of_structs = (
            connection.execute(f"SELECT n FROM k ORDER BY {by} {order}, n").fetchall()
            for by in ("u", "k")
        )
        assert of_unions == of_structs


def test_a_key_equals_where_the_union_does() -> None:
    connection = filled("{}", "{}")
    type_ = str(connection.table("t").types[1])
    struct = as_struct("u", type_)
    connection.execute(
        f"CREATE TABLE k AS SELECT *, {struct} AS k, {as_key(struct, type_)} AS w FROM t"
    )
    pairs = "SELECT (a.u = b.u) IS TRUE, (a.w = b.k) IS TRUE, (a.w IS NULL) = (a.u IS NULL) FROM k a, k b"
    rows = connection.execute(pairs).fetchall()
    assert all(one == other and nulls for one, other, nulls in rows)
    assert sum(one for one, _, _ in rows) == 8  # those whose member is not NULL


def test_a_column_of_unions_is_one_of_structs_in_arrow() -> None:
    assert arrow_type("UNION(a INT)[]") == arrow_type("STRUCT(tag UTINYINT, a INTEGER)[]")
    assert arrow_type("UNION(Tag INT)") == arrow_type("STRUCT(tag_ UTINYINT, Tag INTEGER)")
    assert not has_union("STRUCT(\"UNION(\" INTEGER, e ENUM('UNION('))")
    assert printed_type("union(a int)") == "UNION(a INTEGER)"


def test_a_kernel_reads_structs_as_unions() -> None:
    kernel = Kernel()
    kind = "UNION(a INTEGER, e ENUM('z', 'a'))"
    sql = f"SELECT {as_struct('x', kind)} AS x FROM (VALUES ('a'::ENUM('z', 'a')::{kind})) v(x)"
    table = kernel.query(sql)
    assert table["x"].to_pylist() == [{"tag": 1, "a": None, "e": "a"}]
    table = table.cast(table.schema.set(0, table.schema.field(0).with_type(arrow_type(kind))))
    answer = kernel.query_as(
        "SELECT x.e::VARCHAR AS e, typeof(x) AS t FROM r", {"r": (table, [kind])}
    )
    assert answer.to_pylist() == [{"e": "a", "t": kind}]
    assert typed("c0", "INT") == "CAST(c0 AS INTEGER)"
