"""Inner ASOF joins inside of correlated subqueries, which DuckDB does not compute as written.

`FROM o, s ASOF JOIN q ON o.k = q.k AND s.x >= q.p` asks for the nearest q of the key o.k.
DuckDB moves the equality up, out of what the subquery joins, finds the nearest q of any key,
and drops it if its key is not o.k. Where it cannot compare rows of o, it looks among the q of
all of them. ASOF LEFT JOIN it computes for each row of o. What it moved leaves no trace in the
plan of an inner join, but that of a LEFT join in the same place reads the rows of o.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from streams.errors import InvalidStatement
from streams.plan.bind.binder import Binder
from streams.plan.duckdb_plan import Record
from streams.plan.refusal import Refusal
from streams.plan.sql.tokens import tokenize

DELIM = "__duckdb_delim"
"""DuckDB's name for the left side of a correlated join."""

_REFUSED = Refusal(
    "ASOF JOIN over columns of the query around it",
    "write ASOF LEFT JOIN, or ORDER BY ... LIMIT 1 in a LATERAL subquery",
)


def refuse_correlated(binder: Binder, query: str) -> None:
    """Refuse an inner ASOF join that depends on the row of a query around it.

    Errors: InvalidStatement that names the construct.
    """
    text = swap_asof_joins(query)
    if text == query:
        return
    try:
        plan = binder.bind(text).plan
    except InvalidStatement:  # such as an ambiguous USING: DuckDB takes no LEFT join there
        return
    around = set(_held(plan))
    for node in plan.walk():
        if node.fields.get("type") == "LOGICAL_ASOF_JOIN" and node.text("join_type") == "LEFT":
            _refuse_within(node, around)


def _refuse_within(join: Record, around: AbstractSet[int]) -> None:
    outside = around - set(_held(join))
    for node in join.walk():
        reads = node.fields.get("type") == "LOGICAL_CTE_REF"
        if reads and node.number("cte_index") in outside:
            raise _REFUSED.raised()


def _held(plan: Record) -> Iterator[int]:
    """The numbers of the CTEs that hold the left sides of correlated joins."""
    for node in plan.walk():
        is_materialized = node.fields.get("type") == "LOGICAL_MATERIALIZED_CTE"
        if is_materialized and node.text("ctename").startswith(DELIM):
            yield node.number("table_index")


def swap_asof_joins(query: str) -> str:
    """The query with LEFT ASOF joins for the inner ones, and inner ones for those."""
    tokens = tokenize(query)
    words = [token.text.upper() for token in tokens]
    pieces, end = list[str](), 0
    for place, word in enumerate(words):
        if word != "ASOF" or "JOIN" not in words[place:]:
            continue
        join = words.index("JOIN", place)
        kind = " ".join(words[place + 1 : join])
        if kind in _OTHER:
            pieces.append(f"{query[end : tokens[place].end]} {_OTHER[kind]} ")
            end = tokens[join].start
    return "".join([*pieces, query[end:]])


_OTHER = {"": "LEFT", "INNER": "LEFT", "LEFT": "", "LEFT OUTER": ""}
