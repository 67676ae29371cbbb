"""ORDER BY and LIMIT of a bound plan.

A collection has no order: of an ORDER BY a view keeps what a LIMIT above it asks for. A SELECT
that shows the rows asks for their order as well (`bind_ordered`). Where DuckDB drops a term
that the query does not show, by a projection above the ORDER BY, the term stays behind the
columns.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from streams.plan.bind.groups import bind_orders, storable
from streams.plan.bind.limited_recursion import until_full
from streams.plan.bind.limits import apply_limit, computed, is_computed
from streams.plan.bind.scalars import bind_scalar, row_scope
from streams.plan.duckdb_plan import Record
from streams.plan.ir import Order, Project, Relational, TopK, columns
from streams.plan.scalar import Ref, Scalar

Bind = Callable[[Record], Relational]
_ALL = 9_223_372_036_854_775_807


@dataclass(frozen=True, slots=True)
class LimitBounds:
    """The rows that a LIMIT leaves, as TopK has them; or by `computed` values."""

    offset: int = 0
    limit: int | None = None
    percent: float | None = None
    computed: Record | None = None

    @property
    def are_all(self) -> bool:
        """Whether it leaves every row."""
        return self == LimitBounds()


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """Rows and the order to show them in.

    The query's columns are the first `width` of `rows`; those behind them, and `orders`, whose
    scalars are columns of `rows`, serve the order alone.
    """

    rows: Relational
    width: int
    orders: tuple[Order, ...] = ()


def bind_limit(record: Record, bind: Bind) -> Relational:
    """LIMIT and OFFSET over the order of what lies below."""
    (child,) = record.records("children")
    bounds = _bounds(record)
    if bounds.are_all:
        return bind(child)
    if _keeps_order(record):
        return _ordered(child, bind, bounds, is_shown=False).rows
    return _top(bind(child), (), bounds)


def bind_ordered(record: Record, bind: Bind) -> OrderedRows:
    """The rows of a query, which are those of a view of it, and their order."""
    if _shows_order(record):
        return _ordered(record, bind, LimitBounds(), is_shown=True)
    rows = bind(record)
    return OrderedRows(rows, len(columns(rows)))


def _kind(record: Record) -> str:
    return record.text("type").removeprefix("LOGICAL_")


def _shows_order(record: Record) -> bool:
    """Whether the rows come out of projections of an ORDER BY, or of a LIMIT of one."""
    if _kind(record) == "PROJECTION":
        return _shows_order(record.records("children")[0]) if _has_input(record) else False
    return _keeps_order(record) if _kind(record) == "LIMIT" else _is_ordered(record)


def _keeps_order(record: Record) -> bool:
    """Whether the input of a LIMIT is ordered; computed bounds name columns of just that."""
    (child,) = record.records("children")
    return _kind(child) == "ORDER_BY" if is_computed(record) else _is_ordered(child)


def _is_ordered(record: Record) -> bool:
    """Whether rows come out of projections of an ORDER BY: DuckDB keeps its order."""
    if _kind(record) == "PROJECTION":
        return _has_input(record) and _is_ordered(record.records("children")[0])
    return _kind(record) == "ORDER_BY"


def _has_input(record: Record) -> bool:
    return len(record.records("children")) == 1


def _ordered(record: Record, bind: Bind, bounds: LimitBounds, *, is_shown: bool) -> OrderedRows:
    (child,) = record.records("children")
    match _kind(record):
        case "LIMIT":
            return _ordered(child, bind, _bounds(record), is_shown=is_shown)
        case "PROJECTION":
            below = _ordered(child, bind, bounds, is_shown=is_shown)
            inside = row_scope(columns(below.rows))
            shown = record.records("expressions")
            outputs = tuple(storable(bind_scalar(record, inside)) for record in shown)
            names = tuple(record.text("alias") or "column" for record in shown)
        case _:
            source = bind(child)
            orders = bind_orders(record.records("orders"), source)
            rows = source if bounds.are_all else _top(source, orders, bounds)
            names = tuple(column.name for column in columns(source))
            outputs = tuple(Ref(i, c.type, c.name) for i, c in enumerate(columns(source)))
            below = OrderedRows(rows, len(outputs), orders)
            if not is_shown or all(order.scalar in outputs for order in orders):
                return below
    return _projected(below if is_shown else replace(below, orders=()), outputs, names)


def _projected(
    below: OrderedRows, outputs: tuple[Scalar, ...], names: tuple[str, ...]
) -> OrderedRows:
    """A projection that carries the terms of the order along."""
    width, orders = len(outputs), list[Order]()
    for order in below.orders:
        term = storable(order.scalar)
        if term not in outputs:
            outputs, names = (*outputs, term), (*names, f"order {len(orders) + 1}")
        place = outputs.index(term)
        orders.append(replace(order, scalar=Ref(place, term.type, names[place])))
    return OrderedRows(Project(below.rows, outputs, names), width, tuple(orders))


def _top(source: Relational, orders: tuple[Order, ...], bounds: LimitBounds) -> Relational:
    if bounds.computed is not None:
        return apply_limit(source, orders, computed(bounds.computed, source))
    if not orders and bounds.limit is not None:
        source = until_full(source, bounds.offset + bounds.limit)
    return TopK(source, (), orders, bounds.offset, bounds.limit, bounds.percent)


def _bounds(record: Record) -> LimitBounds:
    if is_computed(record):
        return LimitBounds(computed=record)
    limit, percent = _limit(record.record("limit_val"))
    offset, _ = _limit(record.record("offset_val"))
    return LimitBounds(offset or 0, None if limit == _ALL else limit, percent)


def _limit(record: Record) -> tuple[int | None, float | None]:
    """A number of rows, or a percentage of them."""
    match record.text("type"):
        case "CONSTANT_VALUE":
            return int(str(record.fields.get("constant_integer", 0))), None
        case "CONSTANT_PERCENTAGE":
            return None, float(str(record.raw("constant_percentage")))
        case _:
            return None, None
