"""The constructs other than functions that a view refuses, each with a query that has it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from streams.errors import InvalidStatement
from streams.ids import CollectionId
from streams.plan.bind.refusals import NOT_CARRIED
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Column
from streams.plan.type_names import contains

_SUFFIX = " is not supported in a materialized view"
_COLUMN = re.compile(r"column (?:c\d+|x) of type (.*)", re.DOTALL)
_EMPTY = re.compile(r"(STRUCT|TUPLE)(\(\)|(?!\())(\[\d*\])*")

QUERIES = (
    "SELECT t.a FROM t POSITIONAL JOIN u",
    "SELECT x.a, u.b FROM t x, t ASOF JOIN u ON t.a >= u.a AND u.b = x.b",
    "SELECT a FROM t TABLESAMPLE 10%",
    "SELECT a FROM read_csv('file.csv')",
    "DESCRIBE SELECT a FROM t",
    "PIVOT t ON b USING sum(a)",
    "SELECT a FROM t WHERE a = $1",
    "SELECT rowid FROM t",
    "SELECT unlist([a]) AS x FROM t",
    "SELECT generate_subscripts([a, a], 1) AS x FROM t",
    "SELECT alias(a) AS x FROM t",
    "SELECT now() AS x FROM t",
    "SELECT random() AS x FROM t",
    "SELECT nextval('s') AS x FROM t",
    "SELECT age(d) AS x FROM t",
    "SELECT mz_now() + 1 AS x FROM t",
    "SELECT a FROM t WHERE mz_now() <= a + 0.5",
    "SELECT a FROM t WHERE mz_now() <= a::DOUBLE",
    "SELECT a FROM t WHERE mz_now() <= b",
    "SELECT bit_count('0101'::BIT) AS x FROM t",
    "SELECT fill(a) OVER (ORDER BY a) AS x FROM t",
    "SELECT bitstring_agg(a) AS x FROM t",
    "SELECT approx_quantile(a, 0.5) AS x FROM t",
    "SELECT reservoir_quantile(a, 0.5) AS x FROM t",
    "SELECT approx_top_k(a, 3) AS x FROM t",
    "SELECT max(a, a) AS x FROM t",
    "SELECT arg_min(b, a, a) AS x FROM t",
    "SELECT DISTINCT unnest({'x': a, 'y': b}) FROM t",
    "SELECT string_agg(DISTINCT l, ',' ORDER BY l) AS x FROM (SELECT [b::JSON] AS l FROM t)",
    "SELECT string_agg(DISTINCT u, ',' ORDER BY u) AS x"
    " FROM (SELECT union_value(n := a) AS u FROM t)",
    "SELECT a::VARIANT AS x FROM t",
    "SELECT 'POINT(1 2)'::GEOMETRY AS x FROM t",
    "SELECT sum(a) EXPORT_STATE AS x FROM t",
    "SELECT struct_pack() AS x FROM t",
    "SELECT TRY_CAST({'a': a} AS MAP(INTEGER, BIGINT)) AS x FROM t",
    "SELECT CAST([a] AS INTEGER[1][1]) AS x FROM t",
    "SELECT list_zip([union_value(n := a)], [a]) AS x FROM t",
    "SELECT histogram(union_value(n := a), [union_value(n := 1)]) AS x FROM t",
    "SELECT max(x) AS x FROM (SELECT {'e': b::ENUM('a', 'b')} AS x FROM t)",
    "SELECT avg(DISTINCT a::DOUBLE) OVER (ORDER BY a ROWS 2 PRECEDING EXCLUDE TIES) FROM t",
    "SELECT arg_min(a, b) OVER (ORDER BY a ROWS 2 PRECEDING EXCLUDE TIES) AS x FROM t",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Refused:
    """A query that is refused, and the words in which it is."""

    query: str
    construct: str
    hint: str


def construct(message: str) -> str:
    """The construct that a refusal names, without this survey's column names."""
    text = message.removesuffix(_SUFFIX)
    match = _COLUMN.fullmatch(text)
    if match is None:
        return text
    if _EMPTY.fullmatch(match[1]):
        return "a column of a struct without members"
    kind = next((type_ for type_ in NOT_CARRIED if contains(match[1], type_)), match[1])
    return f"a column of type {kind}"


def refused() -> Iterator[Refused]:
    """Each query with the refusal of this engine; one that is maintained is left out."""
    columns = (Column("a", "BIGINT"), Column("b", "VARCHAR"), Column("d", "TIMESTAMP"))
    catalog = {name: Relation(CollectionId(name), columns) for name in ("t", "u")}
    for query in QUERIES:
        try:
            compile_view(query, catalog)
        except InvalidStatement as refusal:
            yield Refused(query, construct(refusal.message), refusal.hint)
