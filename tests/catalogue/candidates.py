"""What is put to the test: calls, casts, keys and windows, each a part of one query."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import duckdb

from streams.bench.sql.signatures import CATALOGUE, Signature, calls, signatures
from tests.catalogue.values import TYPES

_COLUMN = re.compile(r"\b[xy]_\w+\b")
_ARGUMENT = re.compile(r"\b[xy]_\w+\b|'[^']*'|\b\d+(?:\.\d+)?\b")
"""A column or a constant."""
_ORDERED = {
    "list", "array_agg", "string_agg", "group_concat", "listagg", "first", "last", "any_value",
    "arbitrary", "mode", "arg_min", "arg_max", "min_by", "max_by", "argmin", "argmax",
    "arg_min_null", "arg_max_null", "arg_min_nulls_last", "arg_max_nulls_last", "lttb",
    "histogram", "histogram_exact",
}  # fmt: skip
"""Aggregates whose answer depends on the order of the rows."""
_KEYS = {
    "group": "SELECT {x} AS c, count(*) AS n FROM every GROUP BY 1",
    "distinct": "SELECT DISTINCT {x} AS c FROM every",
    "distinct on": "SELECT DISTINCT ON ({x}) {x} AS c FROM every ORDER BY {x}, id",
    "union": "SELECT {x} AS c FROM every UNION SELECT {y} FROM every",
    "except": "SELECT {x} AS c FROM every EXCEPT SELECT {y} FROM every WHERE g = 1",
    "intersect all": "SELECT {x} AS c FROM every INTERSECT ALL SELECT {y} FROM every",
    "join": "SELECT a.id, b.id AS other FROM every a JOIN every b ON a.{x} = b.{y}",
    "null-safe join": "SELECT a.id, b.id AS other FROM every a LEFT JOIN every b"
    " ON a.{x} IS NOT DISTINCT FROM b.{y} AND a.g = b.g",
    "less join": "SELECT a.id, b.id AS other FROM every a JOIN every b ON a.{x} < b.{y}",
    "in": "SELECT id, {x} IN (SELECT {y} FROM every WHERE g > 0) AS c FROM every",
    "top": "SELECT id, {x} AS c FROM every ORDER BY {x}, id LIMIT 3",
    "top desc": "SELECT id, {x} AS c FROM every ORDER BY {x} DESC NULLS LAST, id LIMIT 4",
    "top of group": "SELECT id, {x} AS c FROM every"
    " QUALIFY row_number() OVER (PARTITION BY g ORDER BY {x}, id) = 1",
    "scalar subquery": "SELECT id, (SELECT max({y}) FROM every) AS c FROM every",
    "count distinct": "SELECT g, count(DISTINCT {x}) AS c FROM every GROUP BY g",
    "list of structs": "SELECT g, list({{'k': {x}}} ORDER BY id) AS c FROM every GROUP BY g",
    "unnest": "SELECT id, unnest([{x}, {y}]) AS c FROM every",
    "values": "SELECT id, CASE WHEN g = 1 THEN {x} ELSE {y} END AS c FROM every",
    "full join": "SELECT a.id, b.id AS other FROM every a FULL JOIN every b"
    " ON a.{x} = b.{y} AND a.g = b.g",
    "anti join": "SELECT a.id, a.{x} AS c FROM every a ANTI JOIN every b ON a.{x} = b.{y}",
    "asof join": "SELECT a.id, b.c FROM every a ASOF LEFT JOIN"
    " (SELECT DISTINCT {y} AS c FROM every) b ON a.{x} >= b.c",
    "not in": "SELECT id FROM every WHERE {x} NOT IN (SELECT {y} FROM every WHERE g = 1)",
    "all": "SELECT id, {x} > ALL (SELECT {y} FROM every e WHERE e.g = every.g) AS c FROM every",
    "partition": "SELECT id, count(*) OVER (PARTITION BY {x}) AS c,"
    " lag({y}) OVER (PARTITION BY {x} ORDER BY id) AS d FROM every",
    "peers": "SELECT id, rank() OVER (ORDER BY {x} DESC NULLS LAST) AS c,"
    " count(*) OVER (ORDER BY {x}) AS n FROM every",
    "groups of peers": "SELECT id, count({y}) OVER (PARTITION BY g ORDER BY {x}"
    " GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE GROUP) AS c FROM every",
    "ordered list": "SELECT g, list(id ORDER BY {x} DESC NULLS LAST, id) AS c FROM every"
    " GROUP BY g",
    "recursion": "WITH RECURSIVE r(n, c) AS (SELECT 0, {x} FROM every UNION"
    " SELECT n + 1, {y} FROM r JOIN every ON c = {x} WHERE n < 2) FROM r",
    "rollup": "SELECT g, {x} AS c, count(*) AS n FROM every GROUP BY ROLLUP (g, {x})",
}
_WINDOWS = [
    "row_number()", "rank()", "dense_rank()", "percent_rank()", "cume_dist()", "ntile(3)",
    "lag({x})", "lead({x}, 2, {y})", "first_value({x})", "last_value({x})", "nth_value({x}, 2)",
    "fill({x})", "lag({x} IGNORE NULLS)", "min({x})", "max({x})", "count({x})", "sum({x})",
    "avg({x})", "list({x})", "count(DISTINCT {x})",
]  # fmt: skip
PARTNERS = 2
"""In how many calls of a form `covering` has each argument at each place."""
_WITHOUT_CALLS = {"cast", "try_cast"}
_FILTERED = 5
"""Of so many calls of an aggregate one has a FILTER."""
_OVER = "(PARTITION BY g ORDER BY {y}, id)"
_FRAME = "(PARTITION BY g ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)"


@dataclass(frozen=True)
class Candidate:
    """A part of a query. Shape `row`: an expression over one row; `group`: a call of an
    aggregate over the rows of a group; `query`: a whole query over `every`."""

    family: str
    function: str
    text: str
    shape: str = "row"

    @property
    def columns(self) -> list[str]:
        """The columns of `every` that it reads, but `id` and `g`."""
        return sorted(set(_COLUMN.findall(self.text)))


def known(connection: duckdb.DuckDBPyConnection) -> list[Signature]:
    """The overloads of DuckDB's catalogue."""
    return signatures(connection.execute(CATALOGUE).fetchall())


def candidates(connection: duckdb.DuckDBPyConnection) -> Iterator[Candidate]:
    """All of them, each once; DuckDB does not bind many of the calls."""
    candidates_of = [call for signature in known(connection) for call in _calls(signature)]
    yield from dict.fromkeys(candidates_of)
    yield from _casts()
    yield from _keys()


def covering(
    candidates: Iterable[Candidate], binds: Callable[[Candidate], bool]
) -> Iterator[Candidate]:
    """Of the calls of a function in one form, those that bind and bring an argument to a place.

    At that place it was in fewer than PARTNERS calls before. Of candidates without calls, all.
    """
    seen: Counter[tuple[str, int, str]] = Counter()
    for candidate in candidates:
        if candidate.shape == "query" or candidate.family in _WITHOUT_CALLS:
            yield candidate
            continue
        form = _ARGUMENT.sub("?", candidate.text)
        arguments = enumerate(_ARGUMENT.findall(candidate.text))
        places = [(form, place, argument) for place, argument in arguments]
        is_new = not places or any(seen[place] < PARTNERS for place in places)
        if is_new and binds(candidate):
            seen.update(places)
            yield candidate


def _calls(signature: Signature) -> Iterator[Candidate]:
    name, family = signature.name, signature.family
    if signature.kind != "aggregate":
        for text in calls(signature):
            yield Candidate(family, name, text)
        return
    for number, text in enumerate(calls(signature)):
        inside = text.removesuffix(")")
        ordered = " ORDER BY id" if name in _ORDERED else ""
        yield Candidate(family, name, f"{inside}{ordered})", "group")
        if not number % _FILTERED:
            filtered = f"{inside}{ordered}) FILTER (WHERE id % 4 > 0)"
            yield Candidate(family, name, filtered, "group")
        called, arguments = inside.split("(", 1)
        first = arguments.split(",")[0]
        if first and name not in {"first", "last", "any_value", "arbitrary", "lttb"}:
            ordered = f" ORDER BY {first}" if name in _ORDERED else ""
            if "," not in arguments:
                distinct = f"{called}(DISTINCT {arguments}{ordered})"
                yield Candidate("aggregate distinct", name, distinct, "group")


def _casts() -> Iterator[Candidate]:
    for name in TYPES:
        for type_, _ in TYPES.values():
            for cast in ("CAST", "TRY_CAST"):
                yield Candidate(cast.lower(), TYPES[name][0], f"{cast}(x_{name} AS {type_})")


def _keys() -> Iterator[Candidate]:
    for name, (type_, _) in TYPES.items():
        columns = {"x": f"x_{name}", "y": f"y_{name}"}
        for key, query in _KEYS.items():
            yield Candidate("key", f"{key} {type_}", query.format(**columns), "query")
        for window in _WINDOWS:
            for over in (_OVER, _FRAME):
                call = f"{window} OVER {over}".format(**columns)
                yield Candidate(
                    "window", f"{window} {type_}", f"SELECT id, {call} AS c FROM every", "query"
                )
