# ruff: noqa: E501 - a query, and the values of a type, are easier to read in one line
"""Every type that a column may have, every place where a value may stand, and a history."""

from tests.support.maintained import History

INTEGERS = {
    "TINYINT": ("-128", "127", "0"),
    "SMALLINT": ("-32768", "32767", "0"),
    "INTEGER": ("-2147483648", "2147483647", "7"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807", "7"),
    "HUGEINT": (
        "'-170141183460469231731687303715884105728'",
        "'170141183460469231731687303715884105727'",
        "-1",
    ),
    "UTINYINT": ("0", "255", "128"),
    "USMALLINT": ("0", "65535", "32768"),
    "UINTEGER": ("0", "4294967295", "2147483648"),
    "UBIGINT": ("0", "18446744073709551615", "9223372036854775808"),
    "UHUGEINT": (
        "0",
        "'340282366920938463463374607431768211455'",
        "'170141183460469231731687303715884105728'",
    ),
}
"""The extremes, and what would be taken for another number under another sign."""

FLOATS = ("'nan'", "'-0.0'", "'0.0'", "'inf'", "'-inf'", "1.5", "-1e30")

TYPES = INTEGERS | {
    "DECIMAL(4,1)": ("-999.9", "999.9", "0.1"),
    "DECIMAL(18,4)": ("-99999999999999.9999", "0.0001", "2"),
    "DECIMAL(38,0)": ("'-99999999999999999999999999999999999999'", "1", "2"),
    "DECIMAL(38,10)": ("'9999999999999999999999999999.9999999999'", "'-0.0000000001'", "2"),
    "FLOAT": FLOATS,
    "DOUBLE": (*FLOATS, "0.1", "1e300", "5e-324"),
    "VARCHAR": ("''", "'a'", "'A'", "'é'", "'e\u0301'", "'😀'", "'a' || chr(0) || 'b'", "'\uffff'"),
    "BLOB": ("''", "'\\x00'", "'\\xFF\\x00'", "'a'"),
    "BOOLEAN": ("true", "false"),
    "BIT": ("'0'", "'00'", "'1'", "'101010101'"),
    "DATE": ("'2024-02-29'", "'infinity'", "'-infinity'", "'0044-03-15 (BC)'", "'9999-12-31'"),
    "TIME": ("'00:00:00'", "'23:59:59.999999'", "'24:00:00'"),
    "TIME WITH TIME ZONE": ("'12:00:00+02:30'", "'09:30:00+00'", "'10:30:00+01'"),
    "TIMESTAMP": ("'2024-02-29 12:34:56.789012'", "'infinity'", "'-infinity'", "'1969-12-31'"),
    "TIMESTAMP_S": ("'2024-02-29 12:34:56'", "'1969-12-31 23:59:59'"),
    "TIMESTAMP_MS": ("'2024-02-29 12:34:56.789'", "'1969-12-31 23:59:59.999'"),
    "TIMESTAMP_NS": ("'2024-02-29 12:34:56.123456789'", "'1969-12-31 23:59:59.999999999'"),
    "TIMESTAMP WITH TIME ZONE": ("'2024-02-29 12:34:56+02'", "'2024-02-29 10:34:56+00'", "'infinity'"),
    "INTERVAL": ("INTERVAL '1 month'", "INTERVAL '30 days'", "INTERVAL '720 hours'", "INTERVAL '-5 s'"),
    "UUID": (
        "'00000000-0000-0000-0000-000000000001'",
        "'80000000-0000-0000-0000-000000000000'",
        "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
    ),
    "ENUM('z', 'a')": ("'z'", "'a'"),
    "JSON": ("'{\"a\": 1}'", "'{\"a\":1}'", "'null'", "'[]'", "'\"x\"'"),
    "INTEGER[]": ("[]", "[NULL]", "[1, NULL, 3]", "[1]"),
    "VARCHAR[][]": ("[]", "[[]]", "[['a', NULL], NULL]"),
    "INTEGER[3]": ("[1, 2, 3]", "[1, NULL, 3]"),
    'STRUCT(x INTEGER, "Y y" VARCHAR)': ("{'x': 1, 'Y y': 'z'}", "{'x': NULL, 'Y y': NULL}", "{'x': 1, 'Y y': NULL}"),
    "STRUCT(l INTEGER[])[]": ("[]", "[{'l': [1, NULL]}, NULL]", "[{'l': NULL}]"),
    "STRUCT(s STRUCT(n STRUCT(v VARCHAR, i INTEGER), b STRUCT(x BOOLEAN)))": (
        "{'s': {'n': {'v': 'a', 'i': 1}, 'b': {'x': true}}}",
        "{'s': {'n': NULL, 'b': {'x': NULL}}}",
        "{'s': NULL}",
        "{'s': {'n': {'v': NULL, 'i': 2}, 'b': NULL}}",
    ),
    "MAP(INTEGER, STRUCT(a STRUCT(l VARCHAR[])[]))[2]": (
        "[MAP {1: {'a': [{'l': ['x', NULL]}, NULL]}}, MAP {}]",
        "[NULL, MAP {2: {'a': []}, 1: NULL}]",
    ),
    "MAP(VARCHAR, INTEGER)": ("MAP {}", "MAP {'x': 1, 'y': NULL}", "MAP {'y': NULL, 'x': 1}"),
    "DOUBLE[]": ("['-0.0'::DOUBLE]", "[0.0]", "['nan'::DOUBLE, NULL]", "[]"),
    "STRUCT(f DOUBLE, i INTERVAL)": ("{'f': '-0.0'::DOUBLE, 'i': INTERVAL '1 month'}", "{'f': 0.0, 'i': INTERVAL '30 days'}"),
    "FLOAT[3]": ("['1', '-0.0', 'nan']", "['1', '0', 'nan']", "[NULL, 'inf', '1.5']"),
    "MAP(DOUBLE, STRUCT(\"a b\" INTERVAL[2], f FLOAT)[])": (
        "MAP {'-0.0': [{'a b': [INTERVAL '1 month', NULL], 'f': '-0.0'}]}",
        "MAP {'0.0': [{'a b': [INTERVAL '30 days', NULL], 'f': 0.0}]}",
        "MAP {'1.5': NULL, 'nan': [NULL, {'a b': NULL, 'f': 'nan'}]}",
    ),
    "UNION(n INTEGER, t VARCHAR)": ("union_value(n := 1)", "union_value(t := 'x')"),
    "UNION(f DOUBLE, s STRUCT(x FLOAT, u UNION(p INTEGER, q DATE)), l VARCHAR[])": (
        "union_value(f := '-0.0'::DOUBLE)",
        "union_value(f := 0.0::DOUBLE)",
        "union_value(s := {'x': 'nan'::FLOAT, 'u': union_value(p := NULL::INTEGER)})",
        "union_value(s := {'x': 1, 'u': NULL})",
        "union_value(f := NULL::DOUBLE)",
        "union_value(l := ['a', NULL])",
        "union_value(l := NULL::VARCHAR[])",
    ),
    "MAP(VARCHAR, UNION(n INTEGER, t VARCHAR)[2])": (
        "MAP {'a': ['x', NULL]}",
        "MAP {'a': [1, NULL], 'b': NULL}",
        "MAP {}",
    ),
    "BIGNUM": ("'12345678901234567890123456789012345678901234567890'", "'-1'"),
}  # fmt: skip
"""Types by name, each with values that are easily mistaken for one another; NULL is added."""

USES = {
    "keys of groups and joins": "SELECT a.x, a.n, b.k FROM (SELECT x, count(*) AS n FROM t"
    " GROUP BY x) a JOIN t b ON a.x = b.x",
    "a join on NULLs too": "SELECT a.k, a.x, b.x AS y FROM t a LEFT JOIN u b"
    " ON a.x IS NOT DISTINCT FROM b.x",
    "aggregates": "SELECT k, min(x) AS lo, max(x) AS hi, count(DISTINCT x) AS n FROM t GROUP BY k",
    "lists": "SELECT k, array_agg({x} ORDER BY x) AS l FROM t WHERE x IN (SELECT x FROM t) GROUP BY k",
    "distinct first rows": "SELECT DISTINCT x FROM (SELECT x, k FROM t ORDER BY x DESC, k LIMIT 4)",
    "windows": "SELECT x, k, row_number() OVER (PARTITION BY x ORDER BY k) AS r,"
    " rank() OVER (ORDER BY x) AS p, lag(k) OVER (ORDER BY x, k) AS b FROM t",
    "sets": "SELECT x, 1 AS n FROM (SELECT x FROM t EXCEPT SELECT x FROM u) UNION ALL"
    " SELECT x, 2 FROM (SELECT x FROM t EXCEPT ALL (SELECT x FROM u UNION SELECT x FROM t WHERE k = 1))"
    " UNION ALL SELECT x, 3 FROM (SELECT x FROM t INTERSECT ALL SELECT x FROM u)"
    " UNION ALL SELECT x, 4 FROM t WHERE x NOT IN (SELECT x FROM u WHERE x IS NOT NULL)",
}
"""Queries over t (k, x) and u (x); `{x}` is x such that equal values print alike."""

ALIKE = {"FLOAT": "x + 0", "DOUBLE": "x + 0", "INTERVAL": "normalized_interval(x)"}
"""Inside a list -0.0 prints apart from 0.0, and a month from its 30 days."""


def query(use: str, kind: str) -> str:
    """The query of a use for a column of this type."""
    return USES[use].replace("{x}", ALIKE.get(kind, "x"))


def histories(kind: str) -> dict[str, History]:
    """Every value and NULL in t, some twice; half of them go and one comes back. u has a few."""
    values = ["NULL", *TYPES[kind]]
    t: History = []
    for number, value in enumerate(values):
        t.append(([str(number % 2), value], 0, 1 + number % 2))
        if number % 2:
            t.append(([str(number % 2), value], 1, -1 - number % 3 % 2))
    t += [(["1", values[-1]], 2, 1), (["0", values[1]], 2, 1)]
    u: History = [([value], at % 2, 1) for at, value in enumerate(values[1::2])]
    u += [(["NULL"], 2, 1), ([values[1]], 3, -1)]
    return {"t": t, "u": u}
