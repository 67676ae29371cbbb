# ruff: noqa: E501 - a query is easier to read in few lines
"""Unions in views: at every time what DuckDB says, with members that are NULL and retractions."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.maintained import History, Tables, compare, history

UNION = (
    "UNION(n INTEGER, t VARCHAR, f DOUBLE, s STRUCT(x INTEGER, y FLOAT), l INTEGER[],"
    " u UNION(p INTEGER, q DATE))"
)
VALUES = [
    "NULL",
    "union_value(n := 1)",
    "union_value(n := NULL::INTEGER)",
    "union_value(t := 'a')",
    "union_value(t := NULL::VARCHAR)",
    "union_value(f := 'nan'::DOUBLE)",
    "union_value(s := {'x': 1, 'y': 0::FLOAT})",
    "union_value(s := {'x': NULL::INTEGER, 'y': 'nan'::FLOAT})",
    "union_value(s := NULL::STRUCT(x INTEGER, y FLOAT))",
    "union_value(l := [1, NULL])",
    "union_value(u := union_value(p := 1)::UNION(p INTEGER, q DATE))",
    "union_value(u := union_value(p := NULL::INTEGER)::UNION(p INTEGER, q DATE))",
    "union_value(u := NULL::UNION(p INTEGER, q DATE))",
]
POOL = {"INTEGER": ["1", "2", "NULL"], UNION: VALUES}
COLUMNS = {"t": {"k": "INTEGER", "x": UNION}, "w": {"x": UNION}}
TOLD = "union_tag(x)::VARCHAR AS g, x::VARCHAR AS v"
"""A value of x such that a NULL and each member's NULL are told apart."""

QUERIES = {
    "members": "SELECT k, x, x.n, x.t AS y, x.s.x AS z, x.u.p, x.l[1] AS e, union_tag(x) AS g FROM t"
    " WHERE x.n IS NULL OR x = union_value(n := 1)",
    "groups": f"SELECT {TOLD}, n, m FROM (SELECT x, count(*) AS n, sum(k) AS m FROM t GROUP BY x)",
    "extremes": "SELECT k, union_tag(lo)::VARCHAR AS g, hi::VARCHAR AS v, n, a FROM"
    " (SELECT k, min(x) AS lo, max(x) AS hi, count(DISTINCT x) AS n, count(x) AS a,"
    " first(x ORDER BY x) AS f FROM t GROUP BY k)",
    "lists": "SELECT k, list(x ORDER BY x DESC) AS l, list(union_tag(x)::VARCHAR ORDER BY x) AS m,"
    " max(x, 2) AS two, string_agg(x, ',' ORDER BY x, k) AS s FROM t GROUP BY k",
    "inner": "SELECT a.k, union_tag(b.x) AS g, b.x::VARCHAR AS v FROM t a JOIN w b ON a.x = b.x",
    "left": "SELECT a.k, union_tag(b.x) AS g, b.x::VARCHAR AS v FROM t a LEFT JOIN w b"
    " ON a.x = b.x AND a.k = 1",
    "full": "SELECT a.k, union_tag(b.x) AS g, a.x::VARCHAR AS v FROM t a FULL JOIN w b"
    " ON a.x IS NOT DISTINCT FROM b.x",
    "either": "SELECT a.k, b.x::VARCHAR AS v FROM t a JOIN w b"
    " ON (a.x = b.x AND a.k = 1) OR (a.x = b.x AND a.k = 2) OR a.k = b.x.n",
    "in": f"SELECT k, {TOLD}, x IN (SELECT x FROM w) AS i,"
    " x IN (SELECT x FROM w WHERE x IS NOT NULL) AS j FROM t",
    "not in": f"SELECT k, {TOLD} FROM t WHERE x NOT IN (SELECT x FROM w WHERE x IS NOT NULL)"
    " AND NOT EXISTS (SELECT 1 FROM w WHERE w.x = t.x AND w.x.n = 2)",
    "correlated": f"SELECT k, {TOLD}, (SELECT count(*) FROM w WHERE w.x = t.x) AS n FROM t",
    "sets": f"SELECT {TOLD}, 1 AS w FROM (SELECT x FROM t UNION SELECT x FROM w) UNION ALL"
    f" SELECT {TOLD}, 2 FROM (SELECT x FROM t EXCEPT ALL SELECT x FROM w) UNION ALL"
    f" SELECT {TOLD}, 3 FROM (SELECT x FROM t INTERSECT SELECT x FROM w)",
    "top": f"SELECT k, {TOLD} FROM (FROM t ORDER BY x DESC NULLS LAST, k LIMIT 3 OFFSET 1)"
    f" UNION ALL SELECT k, {TOLD} FROM (SELECT DISTINCT ON (k) k, x FROM t ORDER BY k, x)",
    "windows": "SELECT k, union_tag(l)::VARCHAR AS g, l::VARCHAR AS v, r, c, m FROM (SELECT k,"
    " lag(x, 1, union_value(n := 9)) OVER (PARTITION BY k ORDER BY x) AS l,"
    " rank() OVER (ORDER BY x) AS r, count(*) OVER (PARTITION BY x) AS c,"
    " max(x) OVER (PARTITION BY k) AS m FROM t)",
    "nested": "SELECT s, l, m, n FROM (SELECT {'a': x, 'b': [x, NULL]} AS s, [[x]] AS l,"
    " MAP {1: row(x, k)} AS m, count(*) AS n FROM t GROUP BY ALL)",
    "nested keys": "SELECT a.s, b.s AS o FROM (SELECT {'a': [x]} AS s FROM t) a"
    " JOIN (SELECT {'a': [x]} AS s FROM w) b ON a.s = b.s",
    "unnested": "SELECT k, unnest(l) AS e, n FROM"
    " (SELECT k, list(x) AS l, max([x]) AS n FROM t GROUP BY k)",
    "expressions": "SELECT k, coalesce(x, union_value(n := 7)) AS c, nullif(x, 'a'::VARCHAR) AS d,"
    " x IN (union_value(n := 1), 'a') AS i, x < 'a'::VARCHAR AS b, hash(x) AS h, to_json(x) AS j,"
    " list_transform([x], lambda y: union_tag(y)::VARCHAR || coalesce(x.n, k)) AS l,"
    ' union_value("tag" := x) AS w, x::UNION(n BIGINT, t VARCHAR, f DOUBLE,'
    " s STRUCT(x BIGINT, y FLOAT), l INTEGER[], u UNION(p INTEGER, q DATE), z DATE) AS o FROM t",
    "constants": "SELECT * FROM (VALUES (1, 1::UNION(a INTEGER, b VARCHAR)),"
    " (2, 'x'::VARCHAR::UNION(a INTEGER, b VARCHAR)), (3, NULL)) v(i, y) JOIN t ON t.k = v.y.a",
    "NULL alone": "SELECT k, union_value(q := k::VARCHAR) AS y, [union_value(q := 'a')] AS l FROM t"
    " UNION ALL SELECT k, n, list_transform(e, lambda v: v::UNION(q VARCHAR))"
    " FROM (SELECT k, lag(n) OVER (ORDER BY k) AS n, e FROM (SELECT k, NULL AS n, [NULL] AS e FROM t))"
    " WHERE NOT (union_value(q := k::VARCHAR) IS NOT DISTINCT FROM n)",
    "recursion": "WITH RECURSIVE r(x, i) AS (SELECT x, 0 FROM w UNION SELECT t.x, i + 1"
    f" FROM r JOIN t ON t.x = r.x WHERE i < 2) SELECT {TOLD}, i FROM r",
}


def tables(seed: int | str, pool: list[str]) -> tuple[Tables, random.Random]:
    chance = random.Random(seed)
    pools = POOL | {UNION: pool}
    histories: dict[str, History] = {
        name: list(history(chance, list(of.values()), pools, range(8, 20)))
        for name, of in COLUMNS.items()
    }
    return Tables(COLUMNS, chance, histories), chance


@pytest.mark.parametrize("name", QUERIES)
def test_a_view_of_unions_is_at_every_time_what_duckdb_says(name: str) -> None:
    relations, chance = tables(name, VALUES)
    query = QUERIES[name]
    compare(relations, relations.maintain(query, chance), query)


@examples(15)
@given(st.integers(0, 1 << 30), st.lists(st.sampled_from(VALUES), min_size=2, max_size=5))
def test_random_diffs_of_unions(seed: int, pool: list[str]) -> None:
    relations, chance = tables(seed, pool)
    query = QUERIES[
        chance.choice(["groups", "inner", "full", "in", "sets", "windows", "nested"])
    ]
    compare(relations, relations.maintain(query, chance), query)


def test_a_member_that_is_a_struct_is_read_of_rows_that_come_and_go() -> None:
    kind = "UNION(str VARCHAR, obj STRUCT(k VARCHAR, v INTEGER))"
    cells = ["union_value(str := 'a')", "union_value(obj := {'k': 'b', 'v': 1})", "NULL"]
    rows: History = [([cell], time, 1) for time, cell in enumerate(cells)]
    rows += [([cell], 3, -1) for cell in cells]
    relations = Tables({"tbl": {"union_struct": kind}}, random.Random(1), {"tbl": rows})
    query = "SELECT union_struct.str, union_struct.obj.v FROM tbl"
    compare(relations, relations.maintain(query, random.Random(2)), query)


def test_an_error_quotes_the_expression_as_it_was_written() -> None:
    relations, chance = tables(3, ["union_value(n := 1)"])
    view = relations.maintain("SELECT 1 // (x.n - 1) AS d FROM t WHERE k = 1", chance)
    errors = {error for time in range(view.since, view.upper) for error in view.errors_at(time)}
    assert errors in (set(), {"cannot evaluate 1 // (union_extract(x, 'n') - 1)"})
