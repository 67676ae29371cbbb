# ruff: noqa: E501 - a query is easier to read in one line
"""The language, construct by construct: queries over t and u that a view keeps exactly.

No query has ties that show, so that DuckDB has one answer to each.
"""

from tests.support.maintained import History

COLUMNS = {
    "t": {
        "id": "BIGINT", "g": "BIGINT", "v": "DOUBLE", "s": "VARCHAR", "l": "BIGINT[]",
        "j": "JSON", "d": "DATE", "ts": "TIMESTAMP",
    },
    "u": {"id": "BIGINT", "w": "VARCHAR"},
}  # fmt: skip

_ONE = [
    "1",
    "1",
    "1.5",
    "'a'",
    "[1, 2]",
    """'{"a":[1,2],"b":{"c":3}}'""",
    "'2020-01-01'",
    "'2020-01-01 10:00:00'",
]
_TWO = [
    "2",
    "1",
    "2.5",
    "'b'",
    "[]",
    """'[1,{"x":null}]'""",
    "'2020-01-02'",
    "'2020-01-02 10:00:00'",
]
_THREE = ["3", "2", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL"]
_FOUR = ["4", "2", "-1.0", "'a'", "[5, NULL]", """'"text"'""", "'2021-01-01'", "'2021-01-01'"]
_FIVE = ["5", "NULL", "7.0", "'z'", "[3]", "'{}'", "'2019-01-01'", "'2019-01-01'"]

HISTORY: dict[str, History] = {
    "t": [
        *((row, 0, 1) for row in (_ONE, _TWO, _THREE, _FOUR, _FIVE)),
        (_TWO, 1, -1), (_FIVE, 2, -1), (_TWO, 3, 1), (_ONE, 4, -1),
    ],
    "u": [(["1", "'x'"], 0, 1), (["2", "'y'"], 0, 1), (["4", "'z'"], 1, 1), (["2", "'y'"], 2, -1)],
}  # fmt: skip

CONSTRUCTS = (
    "SELECT t.id, q.* FROM t CROSS JOIN LATERAL generate_series(1, t.g) WITH ORDINALITY AS q(x, o)",
    "SELECT id, j->'a' AS a, j->>'$.b.c' AS c, json_array_length(j) AS n, json_keys(j) AS k, json_type(j) AS ty, json_valid(s) AS va FROM t",
    """SELECT id, unnest(from_json(j->'a', '["BIGINT"]')) AS x FROM t""",
    "SELECT id, unnest(CAST(j->'a' AS BIGINT[])) AS x FROM t",
    """SELECT id, to_json(l) AS x, json_object('a', s, 'b', v) AS o, json_merge_patch(j, '{"q":1}') AS m FROM t""",
    "SELECT json_structure(j) AS x FROM t",
    "SELECT t.id, u.w FROM t JOIN u USING (id)",
    "SELECT id, w FROM t NATURAL JOIN u",
    "SELECT id, w FROM t NATURAL FULL JOIN u",
    "SELECT id, w FROM t FULL JOIN u USING (id)",
    "SELECT id FROM t SEMI JOIN u USING (id)",
    "SELECT id FROM t ANTI JOIN u USING (id)",
    "SELECT t.id, x.w FROM t, LATERAL (SELECT w FROM u WHERE u.id < t.id ORDER BY u.id DESC LIMIT 1) x",
    "SELECT id, (SELECT max(w) FROM u WHERE u.id <= t.id AND EXISTS (SELECT 1 FROM t t2 WHERE t2.g = t.g AND t2.id > u.id)) AS m FROM t",
    "SELECT id FROM t WHERE id > ALL (SELECT id FROM u)",
    "SELECT id FROM t WHERE id = ANY (SELECT id FROM u)",
    "SELECT id FROM t WHERE g <> ALL (SELECT id FROM u WHERE u.id <> t.id)",
    "SELECT id FROM t WHERE g NOT IN (SELECT g FROM t)",
    "SELECT id, row_number() OVER (PARTITION BY g ORDER BY id) AS r FROM t QUALIFY r = 1",
    "SELECT DISTINCT ON (g) g, id FROM t ORDER BY g, id",
    "SELECT id FROM t ORDER BY id LIMIT 2 OFFSET 1",
    "SELECT id FROM t ORDER BY id OFFSET 2",
    "SELECT g, count(DISTINCT s) FILTER (WHERE id > 1) AS c, sum(DISTINCT v) FILTER (WHERE id > 1) AS x, string_agg(DISTINCT s, ',' ORDER BY s) FILTER (WHERE id>0) AS y FROM t GROUP BY g HAVING count(*) > 1",
    "SELECT id, sum(id) OVER w AS x, count(*) OVER w AS n FROM t WINDOW w AS (PARTITION BY g ORDER BY id)",
    "SELECT id, sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) AS x FROM t",
    "SELECT id, sum(id) OVER (ORDER BY g GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) AS x FROM t",
    "SELECT id, sum(id) OVER (ORDER BY g RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE GROUP) AS x FROM t",
    "SELECT * FROM (VALUES (1,'a'),(2,'b')) v(a,b)",
    "VALUES (1,'a'),(2,NULL)",
    "SELECT g, s, count(*) AS n, grouping(g, s) AS gr FROM t GROUP BY GROUPING SETS ((g), (s), ()) ",
    "SELECT g, s, count(*) AS n FROM t GROUP BY ROLLUP (g, s)",
    "SELECT g, s, count(*) AS n FROM t GROUP BY CUBE (g, s)",
    "SELECT count(*) AS n, sum(v) AS x FROM t WHERE false",
    "SELECT id FROM t UNION SELECT id FROM u",
    "SELECT id FROM t UNION ALL BY NAME SELECT w, id FROM u",
    "SELECT g FROM t INTERSECT ALL SELECT id FROM u",
    "SELECT g FROM t EXCEPT ALL SELECT id FROM u",
    "SELECT id, CASE WHEN v > 1 THEN 'x' ELSE s END AS c, try_cast(s AS INT) AS tc FROM t",
    "SELECT id, [x + 1 for x in l] AS lc, list_filter(l, lambda x: x > 1) AS lf FROM t",
    "SELECT id, map {'a': v, s: 2} AS m FROM t WHERE s IS NOT NULL AND s <> 'a'",
    "SELECT id, struct_pack(a := s, b := l) AS st FROM t",
    "SELECT COLUMNS('i.*') FROM t",
    "SELECT * EXCLUDE (l, j) REPLACE (g + 1 AS g) FROM t",
    "SELECT * RENAME (id AS idd) FROM u",
    "FROM u",
    "FROM u SELECT w",
    "SELECT (SELECT id FROM u WHERE u.id = t.id) AS x FROM t",
    "SELECT id FROM t WHERE (SELECT count(*) FROM u WHERE u.id = t.id) > 0",
    "SELECT id FROM t GROUP BY ALL ORDER BY ALL",
    "SELECT first_value(id IGNORE NULLS) OVER (PARTITION BY g ORDER BY id) AS x, lag(id, 1, 0) OVER (ORDER BY id) AS y, ntile(2) OVER (ORDER BY id) AS z, cume_dist() OVER (ORDER BY id) AS c FROM t",
    "SELECT id, g IS DISTINCT FROM id AS x, id BETWEEN 1 AND 3 AS y, s LIKE 'a%' AS z, s SIMILAR TO 'a.*' AS zz FROM t",
    "SELECT id FROM t WHERE (id, g) IN (SELECT id, id FROM u)",
    "SELECT unnest(l) AS x, id FROM t",
    "SELECT unnest({'a': id, 'b': s}) FROM t",
    "SELECT unnest([{'a': id, 'b': s}], recursive := true) FROM t",
    "SELECT arg_min(s, id) AS a, arg_max(s, v) AS b, max(id, 2) AS top2, any_value(s ORDER BY id) AS av, first(s ORDER BY id DESC) AS f, bit_and(id) AS ba, bool_or(v > 1) AS bo, product(id) AS p, entropy(s) AS e, kurtosis(v) AS k, skewness(v) AS sk, mad(v) AS mad FROM t",
    "SELECT t.id, x FROM t, LATERAL (SELECT unnest(t.l) AS x)",
    "SELECT time_bucket(INTERVAL 1 DAY, ts) AS b, count(*) AS n FROM t GROUP BY b",
    "SELECT date_trunc('month', ts) AS b, d + INTERVAL 1 MONTH AS m, ts - INTERVAL 1 YEAR AS y, d - DATE '2019-01-01' AS dd, extract(epoch FROM ts) AS e, strftime(ts, '%Y') AS sf FROM t",
    "SELECT 1 AS a WHERE EXISTS (SELECT * FROM t)",
    "WITH x AS MATERIALIZED (SELECT id FROM t) SELECT a.id FROM x a JOIN x b USING (id)",
    "SELECT id FROM t WHERE s IN ('a','b') AND s GLOB '*' AND s ~ 'a'",
    "SELECT id, ts AT TIME ZONE 'America/New_York' AS z FROM t",
    "SELECT sum(v) AS total, g FROM t GROUP BY g HAVING total > 1",
    "SELECT id, s COLLATE NOCASE AS x FROM t",
    "SELECT g, sum(id) OVER () AS z, sum(count(*)) OVER (ORDER BY g) AS y FROM t GROUP BY g, id",
    "SELECT regr_slope(v, id) AS a, regr_intercept(v, id) AS b, regr_r2(v, id) AS r, regr_count(v, id) AS c, regr_sxx(v, id) AS sx, regr_avgx(v, id) AS ax, corr(v, id) AS co, covar_pop(v, id) AS cp FROM t",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id AND EXISTS (SELECT 1 FROM t t2 WHERE t2.id = u.id AND t2.g = t.g))",
    "SELECT id FROM t WHERE id IN (SELECT u.id FROM u WHERE u.w > ANY (SELECT s FROM t t2 WHERE t2.g = t.g))",
    "SELECT id, (SELECT list(w ORDER BY w) FROM u WHERE u.id IN (SELECT unnest(t.l))) AS x FROM t",
    "SELECT g FROM t GROUP BY g HAVING sum(id) > (SELECT min(id) FROM u WHERE u.id <> coalesce(t.g, 0))",
    "SELECT CASE WHEN id IN (SELECT id FROM u) THEN 1 ELSE 0 END AS m, id FROM t ORDER BY (SELECT max(id) FROM u), id LIMIT 2",
    "SELECT g, stddev(v) FILTER (WHERE id > 1) AS a, count(DISTINCT v) FILTER (WHERE id < 9) AS b, max(DISTINCT v) AS c, list(DISTINCT s ORDER BY s) FILTER (WHERE s <> 'z') AS d, quantile_disc(v, 0.5) FILTER (WHERE id > 0) AS e FROM t GROUP BY g",
    "SELECT id, x.* FROM t LEFT JOIN LATERAL (SELECT u.id AS uid, w FROM u WHERE u.id <= t.id ORDER BY u.id LIMIT 1) x ON true",
    "SELECT id, nth_value(id, 2) OVER w AS a, last_value(id) OVER (w ROWS UNBOUNDED PRECEDING) AS b, percent_rank() OVER w AS c, dense_rank() OVER w AS d FROM t WINDOW w AS (PARTITION BY g ORDER BY id)",
    "SELECT id, count(*) FILTER (WHERE v > 1) OVER (ORDER BY id) AS c, string_agg(s, ',') OVER (ORDER BY id) AS d FROM t",
    "SELECT DISTINCT ON (g) g, s FROM t ORDER BY g, id DESC",
    "SELECT * FROM u RIGHT JOIN (SELECT id AS tid FROM t) q ON u.id < q.tid",
    "SELECT id FROM t WHERE v > (SELECT avg(v) FROM t t2 WHERE t2.g IS NOT DISTINCT FROM t.g)",
    "SELECT g, quantile_cont(v, 0.5) AS a, quantile_disc(v, [0.25, 0.5]) AS b, median(v) AS m FROM t GROUP BY g",
    "SELECT list(s ORDER BY id) AS a, array_agg(DISTINCT s ORDER BY s) AS b, histogram(s) AS h FROM t",
    "SELECT id FROM t ORDER BY id LIMIT 50%",
)
