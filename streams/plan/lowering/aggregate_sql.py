"""Aggregates, windows and orders as text: exact SQL for the kernel, and labels for people.

Ties are broken where the answer would show them (rule 39). A function of the order in which
rows come gets them in one order: first the query's, then that of its arguments (an aggregate)
or of the whole row (a window). A function of *peers* (rank, or a frame of RANGE or GROUPS) sees
the query's order alone, for more terms would part what belongs together; if the function also
minds the order inside the frame, that is given inside the call.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from streams.plan.analyses.equality import is_vague, representative, shows_values
from streams.plan.ir import (
    AggregateCall,
    Distinct,
    Filter,
    Frame,
    Join,
    Match,
    Order,
    Project,
    Relational,
    TopK,
    Unnest,
    Window,
    WindowCall,
    columns,
)
from streams.plan.scalar import Ref, Scalar, refs
from streams.plan.to_sql import label, sql
from streams.plan.type_names import contains, identifier

Text = Callable[[Scalar], str]

_ORDER_BLIND = frozenset({
    "approx_count_distinct", "bit_and", "bit_or", "bit_xor", "bitstring_agg",
    "bool_and", "bool_or", "count", "mad", "max", "median", "min", "quantile",
    "quantile_cont", "quantile_disc", "regr_count",
})  # fmt: skip
"""Aggregates that give one answer in any order (of floats: `minds_order`)."""

_ONE_OF_THEM = frozenset({"max", "median", "min", "quantile", "quantile_disc"})
"""Aggregates that give one of their values."""

_WITH_SHARE = frozenset({"quantile", "quantile_cont", "quantile_disc"})
"""Aggregates with a share, which DuckDB takes as a negative one where the values descend, but
not beside an ORDER BY."""

_SUMMED = frozenset({"sum", "avg", "mean"})
_BINNED = frozenset({"histogram", "histogram_exact"})
_RANKS = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
_OF_FRAMES = frozenset({"first_value", "last_value", "nth_value"})
_BY_PLACE = frozenset({"row_number", "ntile", "lag", "lead"})
_LAST = "ASC NULLS LAST"
_FLOATS = ("FLOAT", "DOUBLE")


def minds_order(function: str, arguments: Sequence[Scalar]) -> bool:
    """Tell whether an aggregate may give another answer when rows come in another order."""
    if function in _SUMMED:
        return any(is_vague(argument.type) for argument in arguments)
    if function in _BINNED:  # the bins are those of the row that comes first
        return any(refs(bins) for bins in arguments[1:])
    if function in _ONE_OF_THEM:  # of equal ones the first; a share is no value of a row
        return any(is_vague(argument.type) for argument in arguments if refs(argument))
    return function not in _ORDER_BLIND


def aggregate(call: AggregateCall) -> str:
    """A general call in SQL over `c0 .. cn`."""
    first = () if call.argument is None else (call.argument,)
    arguments = first + call.more
    distinct = call.argument if call.distinct and shows_values(call) else None
    if distinct is not None and is_vague(distinct.type):
        return _of_distinct(call, distinct)
    orders = [_order(order, sql) for order in call.orders]
    if minds_order(call.function, arguments):
        orders += _terms(
            [argument for argument in arguments if refs(argument)], apart=not call.distinct
        )
    if orders and call.function in _WITH_SHARE:
        listed = _called("list", arguments[:1], orders, sql, distinct=call.distinct)
        return _of_list(call.function, listed + _where(call), call.more)
    return _called(call.function, arguments, orders, sql, distinct=call.distinct) + _where(call)


def _called(
    function: str, arguments: Sequence[Scalar], orders: list[str], text: Text, *, distinct: bool
) -> str:
    inside = ("DISTINCT " if distinct else "") + ", ".join(map(text, arguments))
    inside += f" ORDER BY {', '.join(dict.fromkeys(orders))}" if orders else ""
    return f"{identifier(function)}({inside})"


def _of_list(function: str, listed: str, more: Sequence[Scalar]) -> str:
    """A function of a list's elements, in their order."""
    inside = ", ".join([listed, f"'{function}'", *map(sql, more)])
    return f"list_aggregate({inside})"


def _of_distinct(call: AggregateCall, argument: Scalar) -> str:
    """An aggregate of distinct values of which equal ones differ: the first of each class."""
    orders = [_order(order, sql) for order in call.orders] + _terms([argument])
    listed = f"list({sql(argument)} ORDER BY {', '.join(dict.fromkeys(orders))}){_where(call)}"
    is_first = "place = 1 OR value IS DISTINCT FROM listed[place - 1]"
    firsts = f"list_filter(listed, lambda value, place: {is_first})"
    distinct = f"list_transform([{listed}], lambda listed: {firsts})[1]"
    return _of_list(call.function, distinct, call.more)


def _where(call: AggregateCall) -> str:
    return f" FILTER (WHERE {sql(call.condition)})" if call.condition else ""


def window(call: WindowCall, row: Sequence[Ref]) -> str:
    """A call in SQL over `c0 .. cn` and `p`, which numbers the partitions, and `i` (`ties`)."""
    aggregates = call.function not in _RANKS | _OF_FRAMES | _BY_PLACE
    by_peers = _minds_peers(call)
    orders = [_order(order, sql) for order in call.orders]
    inner = [_order(order, sql) for order in call.inner]
    minds = not aggregates or minds_order(call.function, call.arguments)
    if not by_peers:
        orders += ties(row)
    if call.distinct:
        inner += [
            f"{sql(argument)} {_LAST}"
            for argument in call.arguments
            if minds and refs(argument)
        ]
    elif minds and call.function not in _RANKS and (by_peers or inner):
        inner = [*(inner or [_order(order, sql) for order in call.orders]), *ties(row)]
    return _window(call, (orders, inner), sql, "PARTITION BY p")


def over_rows(call: WindowCall, row: Sequence[Ref]) -> str:
    """The partition, the order and the frame of a call whose frame is of ROWS, in SQL.

    The order has no peers; what the frame excludes is left to the caller.
    """
    order = [_order(order, sql) for order in call.orders] + ties(row)
    frame = "" if call.frame is None else _frame(replace(call.frame, exclude=""), sql)
    return f"PARTITION BY p ORDER BY {', '.join(dict.fromkeys(order))} {frame}"


def _minds_peers(call: WindowCall) -> bool:
    if call.function in _RANKS:
        return True
    return call.function not in _BY_PLACE and (call.frame is None or call.frame.kind != "ROWS")


def whole_row(node: Relational) -> list[Ref]:
    """The node's columns in the order of the relations they come from, computed ones last.

    DuckDB numbers columns as the query happens to mention them, which should break no tie.
    """
    row = [Ref(i, column.type, column.name) for i, column in enumerate(columns(node))]
    return sorted(row, key=lambda ref: _origin(node, ref.index))


def _origin(node: Relational, place: int) -> tuple[int, ...]:
    match node:
        case Project():
            output = node.outputs[place]
            origin = _origin(node.input, output.index) if isinstance(output, Ref) else (place,)
            return (int(not isinstance(output, Ref)), *origin)
        case Filter() | Distinct() | TopK():
            return _origin(node.input, place)
        case Window() | Unnest():
            width = len(columns(node.input))
            return (0, *_origin(node.input, place)) if place < width else (1, place)
        case Join() | Match():
            width = len(columns(node.left))
            if place < width:
                return (0, *_origin(node.left, place))
            return (1, *_origin(node.right, place - width))
        case _:
            return (place,)


def ties(row: Sequence[Ref]) -> list[str]:
    """The whole row as terms of an ORDER BY in which no two rows compare equal.

    `i` numbers equal rows: all calls see them in one order.
    """
    return [*_terms(row), f"i {_LAST}"]


def _terms(values: Sequence[Scalar], text: Text = sql, *, apart: bool = True) -> list[str]:
    """The values as terms of an ORDER BY; if `apart`, none compares equal to other bits."""
    terms = []
    for value in values:
        terms.append(f"{text(value)} {_LAST}")
        if apart and value.type in _FLOATS:
            terms.append(f"signbit({sql(value)}) {_LAST}")
        elif apart and is_vague(value.type):
            terms.append(f"CAST({sql(value)} AS VARCHAR) {_LAST}")
    return terms


def sort_key(orders: Sequence[Order], row: Sequence[Ref]) -> str:
    """An order, then the whole row, as arguments of `create_sort_key`."""
    terms = [_order(order, _comparable) for order in orders] + _terms(row, _comparable)
    parts = (term.rsplit(" ", 3) for term in dict.fromkeys(terms))
    return ", ".join(f"{value}, '{' '.join(words)}'" for value, *words in parts)


def _comparable(scalar: Scalar) -> str:
    """SQL that sorts a sort key as ORDER BY does, for which 30 days are a month."""
    return sql(representative(scalar) if contains(scalar.type, "INTERVAL") else scalar)


def topk_condition(node: TopK, row: Sequence[Ref]) -> str:
    """Whether a row is one of those that a TopK keeps, in SQL over `c0 .. cn` and `p`."""
    terms = [_order(order, sql) for order in node.orders] + ties(row)
    order = ", ".join(dict.fromkeys(terms))
    place = f"row_number() OVER (PARTITION BY p ORDER BY {order})"
    parts = [f"{place} > {node.offset}"] if node.offset else []
    if node.percent is not None:
        share = f"CAST({node.percent!r} AS DOUBLE) / 100"
        count = f"CAST(floor({share} * count(*) OVER (PARTITION BY p)) AS BIGINT)"
        parts.append(f"{place} <= {node.offset} + {count}")
    elif node.limit is not None:
        parts.append(f"{place} <= {node.offset + node.limit}")
    return " AND ".join(parts) or "true"


def _window(
    call: WindowCall, orders: tuple[list[str], list[str]], text: Text, partition: str
) -> str:
    outer, inner = orders
    where = f" FILTER (WHERE {text(call.condition)})" if call.condition else ""
    order = f"ORDER BY {', '.join(dict.fromkeys(outer))}" if outer else ""
    frame = "" if call.frame is None else _frame(call.frame, text)
    over = f" OVER ({' '.join(part for part in (partition, order, frame) if part)})"
    if inner and call.function in _WITH_SHARE:
        listed = _called("list", call.arguments[:1], inner, text, distinct=call.distinct)
        return _of_list(call.function, listed + where + over, call.arguments[1:])
    called = _called(call.function, call.arguments, inner, text, distinct=call.distinct)
    if call.ignore_nulls:
        called = f"{called.removesuffix(')')} IGNORE NULLS)"
    return called + where + over


def _frame(frame: Frame, text: Text) -> str:
    start, end = (
        _bound(frame.start, frame.start_offset, text),
        _bound(frame.end, frame.end_offset, text),
    )
    exclude = f" EXCLUDE {frame.exclude}" if frame.exclude else ""
    return f"{frame.kind} BETWEEN {start} AND {end}{exclude}"


def _bound(bound: str, offset: Scalar | None, text: Text) -> str:
    return bound if offset is None else f"{text(offset)} {bound}"


def _order(order: Order, text: Text) -> str:
    direction = "DESC" if order.descending else "ASC"
    return f"{text(order.scalar)} {direction} NULLS {'FIRST' if order.nulls_first else 'LAST'}"


def label_of_order(order: Order) -> str:
    """A term of an ORDER BY as a person would write it."""
    shown = label(order.scalar) + (" DESC" if order.descending else "")
    usual = order.nulls_first == order.descending
    return shown if usual else f"{shown} NULLS {'FIRST' if order.nulls_first else 'LAST'}"


def label_of_aggregate(call: AggregateCall) -> str:
    """A call of an aggregate as a person would write it."""
    first = () if call.argument is None else (call.argument,)
    inside = ", ".join(map(label, first + call.more)) or "*"
    inside += f", {call.share}" if call.share else ""
    inside = f"DISTINCT {inside}" if call.distinct else inside
    if call.orders:
        inside += f" ORDER BY {', '.join(map(label_of_order, call.orders))}"
    where = f" FILTER (WHERE {label(call.condition)})" if call.condition else ""
    return f"{call.function}({inside}){where}"


def label_of_window(call: WindowCall) -> str:
    """A call of a window function as a person would write it."""
    outer = [label_of_order(order) for order in call.orders]
    inner = [label_of_order(order) for order in call.inner]
    return _window(call, (outer, inner), label, "")
