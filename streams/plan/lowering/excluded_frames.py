"""Frames of ROWS without the peers of their row: EXCLUDE GROUP and EXCLUDE TIES.

Such a frame needs two orders: the order in which rows are counted, where the whole row breaks
ties (rule 39), and the query's ORDER BY, which defines peers. So the frame becomes a list in
the first order, each element of which has a sort key by the second. The list without the peers
is the argument of DuckDB's list version of the function; an ORDER BY or DISTINCT in the call
sorts it first, by a third key. The cost is that of the rows of the frame.
"""

from collections.abc import Sequence

from streams.plan.analyses.equality import is_vague
from streams.plan.ir import Order, WindowCall
from streams.plan.lowering import aggregate_sql
from streams.plan.refusal import Refusal
from streams.plan.scalar import Ref, refs
from streams.plan.to_sql import sql

_PLACED = {"first_value": "1", "last_value": "-1"}
_PEERS = frozenset({"GROUP", "TIES"})
_SAME = "ASC NULLS LAST"


def excludes_peers(call: WindowCall) -> bool:
    """Whether the call's frame is one of ROWS without peers of the row."""
    frame = call.frame
    return frame is not None and frame.kind == "ROWS" and frame.exclude in _PEERS


def checked(call: WindowCall) -> WindowCall:
    """The call, if it is one that `window` writes.

    Errors: InvalidStatement for a call that DuckDB does not make of a list.
    """
    if not excludes_peers(call) or call.frame is None:
        return call
    construct = f"ROWS with EXCLUDE {call.frame.exclude}"
    hint = "use GROUPS or RANGE, or say it with a self-join"
    if _orders_distinct(call) and any(is_vague(argument.type) for argument in call.arguments):
        raise Refusal(f"{construct} and DISTINCT floats or intervals", hint).raised()
    if call.function != "nth_value" and any(map(refs, call.arguments[1:])):
        raise Refusal(f"{construct} of several columns", hint).raised()
    return call


def window(call: WindowCall, row: Sequence[Ref]) -> str:
    """The call in SQL over `c0 .. cn`, `p` and `i`, as `grouped.window` has others."""
    assert call.frame is not None
    peers = _key(aggregate_sql.sort_key(call.orders, ())) if call.orders else "true"
    value = sql(call.arguments[0]) if call.arguments else "true"
    parts = [f"'peers': {peers}", f"'value': {value}"]
    predicate = f"framed.peers <> {peers}"
    if call.frame.exclude == "TIES":
        itself = _key(
            f"{aggregate_sql.sort_key((), row)}, i, '{_SAME}'" if row else f"i, '{_SAME}'"
        )
        parts.append(f"'itself': {itself}")
        predicate = f"({predicate} OR framed.itself = {itself})"
    order = _inner_order(call, row)
    if order:
        parts.insert(0, f"'place': {_key(order)}")
    if call.condition is not None:
        parts.append(f"'meets': {sql(call.condition)}")
        predicate += " AND framed.meets"
    if call.ignore_nulls:
        predicate += " AND framed.value IS NOT NULL"
    rows = f"list({{{', '.join(parts)}}}) OVER ({aggregate_sql.over_rows(call, row)})"
    left = f"list_filter(coalesce({rows}, []), lambda framed: {predicate})"
    if order:
        left = f"list_sort({_distinct(left) if _orders_distinct(call) else left})"
    values = f"list_transform({left}, lambda framed: framed.value)"
    return f"CAST({_applied(call, values)} AS {call.type})"


def _orders_distinct(call: WindowCall) -> bool:
    return call.distinct and aggregate_sql.minds_order(call.function, call.arguments)


def _inner_order(call: WindowCall, row: Sequence[Ref]) -> str:
    """The order of the values, as arguments of a sort key; empty if it is the frame's."""
    if _orders_distinct(call):
        values = tuple(Order(argument) for argument in call.arguments if refs(argument))
        return aggregate_sql.sort_key((*call.inner, *values), ())
    return f"{aggregate_sql.sort_key(call.inner, row)}, i, '{_SAME}'" if call.inner else ""


def _distinct(rows: str) -> str:
    """The rows, one of each value: NULL is a value too, and equal ones have one place."""
    pair = "{'place': framed.place, 'value': framed.value}"
    return f"list_distinct(list_transform({rows}, lambda framed: {pair}))"


def _key(terms: str) -> str:
    return f"create_sort_key({terms})"


def _applied(call: WindowCall, values: str) -> str:
    """The function over the frame's values in order."""
    if call.function == "nth_value":
        place = sql(call.arguments[1])
        return f"CASE WHEN {place} > 0 THEN list_extract({values}, {place}) END"
    if call.function in _PLACED:
        return f"list_extract({values}, {_PLACED[call.function]})"
    if not call.arguments:
        return f"len({values})"
    if call.distinct and not _orders_distinct(call):
        values = f"list_distinct({values})"
    more = "".join(f", {sql(argument)}" for argument in call.arguments[1:])
    return f"list_aggregate({values}, '{call.function}'{more})"
