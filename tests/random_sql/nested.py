"""Expressions over lists, arrays, structs, maps and unions, and casts between them."""

from tests.random_sql.tables import Term
from tests.random_sql.writer import Writer

_PARTS = [
    ("number", 'STRUCT(x INTEGER, "Y y" VARCHAR)', "{0}.x"),
    ("text", 'STRUCT(x INTEGER, "Y y" VARCHAR)', '{0}."Y y"'),
    ("number", "MAP(VARCHAR, INTEGER)", "{0}['x']"),
    ("VARCHAR[]", "MAP(VARCHAR, INTEGER)", "map_keys({0})"),
    ("list", "MAP(VARCHAR, INTEGER)", "map_values({0})"),
    ("number", "MAP(VARCHAR, INTEGER[])", "{0}['a'][1]"),
    ("number", "STRUCT(x INTEGER)[]", "{0}[1].x"),
    ("list", "STRUCT(x INTEGER)[]", "list_transform({0}, lambda e: e.x)"),
    ("number", "INTEGER[3]", "{0}[2]"),
    ("number", "INTEGER[2][2]", "{0}[1][2]"),
    ("list", "INTEGER[][]", "flatten({0})"),
    ("list", "INTEGER[][]", "{0}[1]"),
    ("float", "DOUBLE[3]", "{0}[1]"),
    ("float", "DOUBLE[]", "list_sum({0})"),
    ("float", "STRUCT(a DOUBLE, b INTERVAL)", "{0}.a"),
    ("INTERVAL", "STRUCT(a DOUBLE, b INTERVAL)", "{0}.b"),
    ("float", "MAP(INTEGER, DOUBLE)", "{0}[1]"),
    ("number", "STRUCT(s STRUCT(a INTEGER, b BOOLEAN))", "{0}.s.a"),
    ("bool", "STRUCT(s STRUCT(a INTEGER, b BOOLEAN))", "{0}.s.b"),
    ("number", "UNION(n INTEGER, t VARCHAR)", "{0}.n"),
    ("text", "UNION(n INTEGER, t VARCHAR)", "{0}.t"),
    ("text", "UNION(n INTEGER, t VARCHAR)", "union_tag({0})::VARCHAR"),
    ("list", "UNION(s STRUCT(x INTEGER, y VARCHAR), l INTEGER[])", "{0}.l"),
    ("number", "UNION(s STRUCT(x INTEGER, y VARCHAR), l INTEGER[])", "{0}.s.x"),
    ("number", "UNION(n INTEGER, t VARCHAR)[]", "{0}[1].n"),
    ("UNION(n INTEGER, t VARCHAR)", "UNION(n INTEGER, t VARCHAR)[]", "{0}[1]"),
    ("UNION(n INTEGER, t VARCHAR)", "STRUCT(u UNION(n INTEGER, t VARCHAR), x INTEGER[2])",
     "{0}.u"),
    ("number", "STRUCT(u UNION(n INTEGER, t VARCHAR), x INTEGER[2])", "{0}.x[1]"),
]  # fmt: skip
"""Parts of nested values: the kind of the part, the kind of the whole, the expression."""

_CASTS = [
    ("INTEGER[3]", "list", "{0}::INTEGER[]"),
    ("list", "INTEGER[3]", "TRY_CAST({0} AS INTEGER[3])"),
    ("list", "VARCHAR[]", "{0}::VARCHAR[]"),
    ("list", "DOUBLE[]", "{0}::DOUBLE[]"),
    ("DOUBLE[3]", "FLOAT[3]", "{0}::FLOAT[3]"),
    ("FLOAT[3]", "FLOAT[]", "{0}::FLOAT[]"),
    ("VARCHAR[]", "list", "TRY_CAST({0} AS INTEGER[])"),
    ("INTEGER[2][2]", "INTEGER[][]", "{0}::INTEGER[][]"),
    ("json", "list", "TRY_CAST({0} AS INTEGER[])"),
    ("number", "UNION(n INTEGER, t VARCHAR)",
     "TRY_CAST({0} AS INTEGER)::UNION(n INTEGER, t VARCHAR)"),
    ("text", "UNION(n INTEGER, t VARCHAR)", "{0}::UNION(n INTEGER, t VARCHAR)"),
    ("list", "UNION(s STRUCT(x INTEGER, y VARCHAR), l INTEGER[])",
     "union_value(l := {0})::UNION(s STRUCT(x INTEGER, y VARCHAR), l INTEGER[])"),
    ("number", 'STRUCT(x INTEGER, "Y y" VARCHAR)',
     "{{'Y y': {0}, 'x': TRY_CAST({0} AS INTEGER)}}::STRUCT(x INTEGER, \"Y y\" VARCHAR)"),
    ("number", "STRUCT(s STRUCT(a INTEGER, b BOOLEAN))",
     "{{'s': {{'b': {0} > 1, 'a': 2}}}}::STRUCT(s STRUCT(a INTEGER, b BOOLEAN))"),
    ("text", "MAP(VARCHAR, INTEGER)", "MAP {{coalesce({0}, ''): length({0})::INTEGER}}"),
    ("MAP(VARCHAR, INTEGER)", "MAP(VARCHAR, INTEGER[])",
     "map_from_entries(list_transform(map_entries({0}), lambda e: (e.key, [e.value])))"),
    ("list", "STRUCT(x INTEGER)[]", "list_transform({0}, lambda e: {{'x': e}})"),
    ("list", "INTEGER[][]", "[{0}, NULL, {0}]"),
]  # fmt: skip
"""Casts that no row makes fail: the kind that is cast, the kind it becomes, the expression."""

_SAME = [
    "coalesce({0}, {1})", "CASE WHEN {p} THEN {0} ELSE {1} END", "[{0}, {1}][2]",
    "{{'k': {0}, 'v': {1}}}.v", "list_value({1}, {0})[2]", "nullif({0}, {1})",
    "MAP {{1: {0}}}[1]", "list_transform([{0}], lambda e: e)[1]", "({0}, 1)[1]",
    "least({0}, {1})", "greatest({0}, {1})",
]  # fmt: skip
"""What gives back a value of any type, through others."""

_PACKED = [
    "{{'k': {0}, 'n': {1}}}", "[{0}, NULL]", "row({0}, {1})", "MAP {{'k': {0}}}",
    "[{{'k': {0}}}, {{'k': NULL}}]", "array_value({0}, {0})", "union_value(k := {0})",
    "{{'u': union_value(k := {0}), 'l': [{1}]}}",
]  # fmt: skip
"""What packs values into one of a type that nothing else has."""


def patterns(kind: str) -> list[tuple[str, str]]:
    """Expressions of a kind over terms of others: (the other kind, the expression)."""
    parts = [(type_, pattern) for part, type_, pattern in _PARTS if part == kind]
    return parts + [(source, pattern) for source, type_, pattern in _CASTS if type_ == kind]


def same() -> list[str]:
    """Expressions of the kind of their arguments, whatever it is."""
    return _SAME


def packed(writer: Writer, terms: list[Term]) -> Term:
    """Terms packed into one; its type is told by itself alone."""
    one, other = (writer.chance.among(terms) for _ in range(2))
    text = writer.chance.among(_PACKED).format(one.sql, other.sql)
    return Term(text, writer.alias("packed "))
