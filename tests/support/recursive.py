# ruff: noqa: E501 - a query is easier to read in one line
"""Recursive queries over graphs that change, and what a naive evaluation says of them.

WITH RECURSIVE is judged by DuckDB. WITH MUTUALLY RECURSIVE, which it does not know, by the
words of its definition: tables for the bindings, empty at first, each filled anew in order by
its query until an iteration changes none.
"""

import random
from collections import Counter
from collections.abc import Sequence

import duckdb
import pyarrow as pa

from streams.plan.bind.mutual_recursion import QueryBlock, split
from streams.testing import Maintained, maintain
from tests.support.plan_tables import answer, connect

TABLES = {"e": "a BIGINT, b BIGINT", "r": "a BIGINT"}
TIMES = 5
Row = tuple[int, ...]
History = list[tuple[Row, int, int]]
Histories = dict[str, History]

RECURSIVE = {
    "reachable": "WITH RECURSIVE t(x) AS (SELECT a FROM r UNION SELECT b FROM t JOIN e ON a = x) SELECT x FROM t",
    "pairs": "WITH RECURSIVE t(x, y) AS (SELECT a, b FROM e UNION SELECT x, b FROM t, e WHERE y = a) SELECT x, y FROM t",
    "walks": "WITH RECURSIVE t(x, n) AS (SELECT a, 0 FROM r UNION ALL SELECT b, n + 1 FROM t JOIN e ON a = x WHERE n < 4) SELECT x, n FROM t",
    "walks without an end": "WITH RECURSIVE t(x, n) AS (SELECT a, 0 FROM r UNION ALL SELECT b, n + 1 FROM t LEFT JOIN e ON a = x WHERE n < 4) SELECT x, n, (SELECT count(*) FROM t) AS c FROM t",
    "on an inequality": "WITH RECURSIVE t(x, n) AS (SELECT a, 0 FROM r UNION SELECT b, n + 1 FROM t JOIN e ON a > x WHERE n < 3) SELECT x, n FROM t",
    "groups": "WITH RECURSIVE t(x, n) AS (SELECT a, 0 FROM r UNION ALL SELECT max(b), n + 1 FROM t JOIN e ON a = x WHERE n < 4 GROUP BY n, x) SELECT x, n FROM t",
    "a count of the last": "WITH RECURSIVE t(x) AS (SELECT a FROM r UNION SELECT count(*) FROM t WHERE x > 1) SELECT x FROM t",
    "rows over nothing": "WITH RECURSIVE t(x, n) AS (SELECT a, 0 FROM r UNION ALL SELECT count(*), coalesce(max(n), 0) + 1 FROM t HAVING coalesce(max(n), 0) < 3) SELECT x, n FROM t",
    "not in the last": "WITH RECURSIVE t(x) AS (SELECT a FROM r UNION SELECT b FROM t JOIN e ON a = x WHERE b NOT IN (SELECT x + 1 FROM t)) SELECT x FROM t",
    "the last twice": "WITH RECURSIVE t(x) AS (SELECT a FROM r UNION SELECT p.x + q.x + 1 FROM t p, t q WHERE p.x + q.x < 9) SELECT x FROM t",
    "except": "WITH RECURSIVE t(x) AS (SELECT a FROM r UNION (SELECT b FROM t JOIN e ON a = x EXCEPT ALL SELECT a FROM r)) SELECT x FROM t",
    "a window of the last": "WITH RECURSIVE t(x, n) AS (SELECT a, 0 FROM r UNION ALL SELECT x + row_number() OVER (ORDER BY x), n + 1 FROM t WHERE n < 3) SELECT x, n FROM t",
    "lists": "WITH RECURSIVE t(x, n) AS (SELECT a, 0 FROM r UNION ALL SELECT unnest([x + 1, x * 2]), n + 1 FROM t WHERE n < 3) SELECT x, n FROM t",
    "two": "WITH RECURSIVE t(x) AS (SELECT a FROM r UNION SELECT b FROM t JOIN e ON a = x), u(y) AS (SELECT x FROM t UNION SELECT a FROM u JOIN e ON b = y) SELECT x, y FROM t, u",
    "for each row": "SELECT a, (WITH RECURSIVE t(x) AS (SELECT r.a UNION ALL SELECT x + 1 FROM t WHERE x < 3) SELECT count(*) FROM t) AS n FROM r",
    "a counter": "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t WHERE x < (SELECT count(*) FROM e)) SELECT x FROM t",
}
MUTUAL = {
    "distances": "WITH MUTUALLY RECURSIVE d(x BIGINT, n BIGINT) AS (SELECT x, min(n) FROM (SELECT a AS x, 0 AS n FROM r UNION ALL SELECT b, n + 1 FROM d JOIN e ON a = x) GROUP BY x) SELECT x, n FROM d",
    "closure by squares": "WITH MUTUALLY RECURSIVE t(x BIGINT, y BIGINT) AS (SELECT a, b FROM e UNION SELECT p.x, q.y FROM t p JOIN t q ON p.y = q.x) SELECT x, y FROM t",
    "even and odd": "WITH MUTUALLY RECURSIVE even(x BIGINT) AS (SELECT a FROM r UNION SELECT b FROM odd JOIN e ON a = x), odd(x BIGINT) AS (SELECT b FROM even JOIN e ON a = x UNION SELECT x FROM odd) SELECT even.x, odd.x AS y FROM even, odd",
    "labels": "WITH MUTUALLY RECURSIVE l(x BIGINT, m BIGINT) AS (SELECT x, min(m) FROM (SELECT a AS x, a AS m FROM e UNION ALL SELECT b, b FROM e UNION ALL SELECT b, m FROM l JOIN e ON a = x UNION ALL SELECT a, m FROM l JOIN e ON b = x) GROUP BY x) SELECT m, count(*) AS n FROM l GROUP BY m",
    "not monotone": "WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 6) win(x BIGINT) AS (SELECT DISTINCT a FROM e WHERE b NOT IN (SELECT x FROM win)), n(c BIGINT) AS (SELECT count(*) FROM win) SELECT x, c FROM win, n",
    "sums": "WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 5) s(x BIGINT, n HUGEINT) AS (SELECT a, 1 + coalesce(sum(n), 0) FROM e LEFT JOIN s ON b = x GROUP BY a) SELECT x, n FROM s",
    "best": "WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 7) p(x BIGINT, c BIGINT) AS (SELECT a, 0 FROM r UNION ALL (SELECT b, c + b FROM p JOIN e ON a = x ORDER BY c + b DESC, b LIMIT 3)) SELECT x, c FROM p",
    "one after the other": "WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 4) p(x BIGINT) AS (SELECT a FROM r UNION ALL SELECT x + 1 FROM q), q(x BIGINT) AS (SELECT x * 2 FROM p) SELECT p.x, q.x AS y FROM p, q",
    "windows": "WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 3) w(x BIGINT, k BIGINT) AS (SELECT x, row_number() OVER (ORDER BY x, y) FROM (SELECT a AS x, b AS y FROM e UNION ALL SELECT x + k, k FROM w WHERE x < 6)) SELECT x, k FROM w",
    "a recursion in a binding": "WITH MUTUALLY RECURSIVE t(x BIGINT) AS (WITH RECURSIVE u(y) AS (SELECT a FROM r UNION SELECT b FROM u JOIN e ON a = y) SELECT y FROM u UNION SELECT x % 3 FROM t) SELECT x FROM t",
}


def histories(chance: random.Random, nodes: int = 4, edges: int = 16) -> Histories:
    """Rows that come, go, and come back; small numbers, so that there are cycles."""
    sizes = {"e": (2, edges), "r": (1, 4)}
    return {
        name: list(_history(chance, arity, chance.randrange(most), nodes))
        for name, (arity, most) in sizes.items()
    }


def _history(chance: random.Random, arity: int, size: int, nodes: int) -> History:
    live: list[Row] = []
    history: History = []
    for at in sorted(chance.choices(range(TIMES), k=size)):
        if live and chance.random() < 0.45:
            history.append((live.pop(chance.randrange(len(live))), at, -1))
        else:
            row, count = (
                tuple(chance.randrange(nodes) for _ in range(arity)),
                chance.choice([1, 1, 2]),
            )
            live += [row] * count
            history.append((row, at, count))
    return history


def updates(history: History, arity: int) -> pa.Table:
    columns = {"ab"[i]: [row[i] for row, _, _ in history] for i in range(arity)}
    columns |= {"_time": [at for _, at, _ in history], "_diff": [diff for *_, diff in history]}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def kept(
    query: str, changes: Histories, cuts: Sequence[int] | None, buckets: int = 2
) -> Maintained:
    """The view over the relations' histories."""
    tables = {
        name: updates(fetched, len(TABLES[name].split(",")))
        for name, fetched in changes.items()
    }
    return maintain(query, TABLES, tables, cuts, buckets=buckets)


def naive(connection: duckdb.DuckDBPyConnection, query: str, most: int = 60) -> list[str]:
    """The answer over the tables as they are, sorted, as text."""
    block = split(query)
    if not block.bindings:
        return rows(connection, block.query)
    for binding in block.bindings:
        columns = ", ".join(f'"{column.name}" {column.type}' for column in binding.columns)
        connection.execute(f"CREATE OR REPLACE TABLE {binding.name} ({columns})")
    limit = most if block.limit.fails else block.limit.iterations
    for _ in range(limit):
        if not _iterate(connection, block):
            break
    else:
        assert not block.limit.fails, "still changes"
    return rows(connection, block.query)


def _iterate(connection: duckdb.DuckDBPyConnection, block: QueryBlock) -> bool:
    """Fill each binding's table anew; whether any has changed."""
    moved = False
    for binding in block.bindings:
        had = rows(connection, f"FROM {binding.name}")
        connection.execute(f"CREATE TEMP TABLE made AS {binding.cast}")
        connection.execute(f"DELETE FROM {binding.name}")
        connection.execute(f"INSERT INTO {binding.name} FROM made")
        connection.execute("DROP TABLE made")
        moved |= had != rows(connection, f"FROM {binding.name}")
    return moved


def rows(connection: duckdb.DuckDBPyConnection, query: str) -> list[str]:
    return sorted(map(str, answer(connection, query)[1]))


def fill(connection: duckdb.DuckDBPyConnection, changes: Histories, time: int) -> None:
    """Make the tables what the relations are at a time."""
    for name, columns in TABLES.items():
        connection.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")
        counts: Counter[Row] = Counter()
        for row, at, diff in changes[name]:
            if at <= time:
                counts[row] += diff
        if values := [f"({', '.join(map(str, row))})" for row in counts.elements()]:
            connection.execute(f"INSERT INTO {name} VALUES {', '.join(values)}")


def judge(view: Maintained, query: str, changes: Histories) -> None:
    """At every time the view holds what a naive evaluation says."""
    connection = connect()
    for time in range(view.since, view.upper):
        fill(connection, changes, time)
        want = naive(connection, query)
        assert not view.errors_at(time), (query, time, view.errors_at(time))
        connection.register("got", view.at(time))
        assert rows(connection, "FROM got") == want, (query, time)
