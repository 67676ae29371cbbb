"""Compute the arguments of group operators as columns.

Leaves behind: the keys, arguments and orders of every Group, Window and TopK are columns of its
input, each computed once for all its uses, or constants; every Group has an aggregate, since a
Group without one becomes a Distinct.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from streams.plan.ir import (
    AggregateCall,
    Distinct,
    Group,
    Project,
    Relational,
    TopK,
    Window,
    changed_orders,
    children,
    columns,
    with_children,
)
from streams.plan.passes.prune_columns import pick_columns
from streams.plan.scalar import Call, Form, Literal, Ref, Scalar, refs

_NOTHING = Literal("true", "BOOLEAN", "true")
Column = Callable[[Scalar], Scalar]


def groups(node: Relational) -> Relational:
    """Rewrite every such operator in the tree."""
    node = with_children(node, tuple(groups(child) for child in children(node)))
    match node:
        case Group():
            return _group(node)
        case Window():
            return _window(node)
        case TopK():
            return _top(node)
        case _:
            return node


def _group(node: Group) -> Relational:
    if not node.calls:
        return Distinct(Project(node.input, node.keys, node.names))
    scalars = tuple(scalar for call in node.calls for scalar in _columns_of(call))
    outputs = tuple(dict.fromkeys(node.keys + scalars)) or (_NOTHING,)
    names = tuple(_name(output, node) for output in outputs)

    def column(scalar: Scalar) -> Scalar:
        if scalar not in outputs:
            return scalar
        place = outputs.index(scalar)
        return Ref(place, scalar.type, names[place])

    return Group(
        Project(node.input, outputs, names),
        tuple(map(column, node.keys)),
        tuple(_over(call, column) for call in node.calls),
        node.names,
    )


def _columns_of(call: AggregateCall) -> tuple[Scalar, ...]:
    """The arguments of a call, except constants that DuckDB requires as such."""
    if call.general and call.distinct:
        call = replace(call, orders=())
    return tuple(s for s in call.scalars if refs(s) or not call.general or s not in call.more)


def _over(call: AggregateCall, column: Column) -> AggregateCall:
    """The call over columns; constant arguments stay constants, as the share of a quantile.

    That holds also if a column has the same constant expression.
    """
    if not call.general:
        return call.over(column)
    more = tuple(column(scalar) if refs(scalar) else scalar for scalar in call.more)
    moved = replace(call.over(column), more=more)
    if not call.distinct or call.argument is None:
        return moved
    arguments = {
        scalar: column(scalar) for scalar in (call.argument, *call.more) if refs(scalar)
    }
    orders = changed_orders(call.orders, lambda scalar: _order_of(scalar, arguments))
    return replace(moved, orders=orders)


def _order_of(scalar: Scalar, arguments: Mapping[Scalar, Scalar]) -> Scalar:
    """The order of distinct values, over the columns of the arguments, the only ones it reads.

    DuckDB's normal form of a struct that was put together is one of its members: it is in no
    column, and DuckDB orders by it where it orders by the struct.
    """
    order = _of_arguments(scalar, arguments)
    if order is not None:
        return order
    return next(c for argument, c in arguments.items() if refs(scalar) <= refs(argument))


def _of_arguments(scalar: Scalar, arguments: Mapping[Scalar, Scalar]) -> Scalar | None:
    """The expression over the arguments' columns, None if it reads a part of an argument.

    An argument may be what DuckDB made of the value in the ORDER BY by a cast. Casts keep the
    order, but for texts, of which the value can be read again.
    """
    for argument, column in arguments.items():
        if scalar == argument:
            return column
        if _is_cast_of(scalar, argument):
            is_text = argument.type == "VARCHAR"
            return Call(Form.CAST, "cast", (column,), scalar.type) if is_text else column
    if not isinstance(scalar, Call):
        return None if isinstance(scalar, Ref) else scalar
    inside = [_of_arguments(argument, arguments) for argument in scalar.arguments]
    some = tuple(scalar for scalar in inside if scalar is not None)
    return replace(scalar, arguments=some) if len(some) == len(inside) else None


def _is_cast_of(scalar: Scalar, argument: Scalar) -> bool:
    if not isinstance(argument, Call) or argument.form is not Form.CAST:
        return False
    return argument.arguments == (scalar,)


def _name(scalar: Scalar, node: Group) -> str:
    if isinstance(scalar, Ref):
        return scalar.name
    return node.names[node.keys.index(scalar)] if scalar in node.keys else "argument"


def _window(node: Window) -> Relational:
    scalars = tuple(scalar for call in node.calls for scalar in call.scalars if refs(scalar))
    source, column = with_columns(node.input, node.keys + scalars)
    calls = tuple(call.over(column) for call in node.calls)
    moved = replace(node, input=source, keys=tuple(map(column, node.keys)), calls=calls)
    width, wide = len(columns(node.input)), len(columns(source))
    return pick_columns(moved, [*range(width), *range(wide, wide + len(calls))])


def _top(node: TopK) -> Relational:
    scalars = node.keys + tuple(order.scalar for order in node.orders)
    source, column = with_columns(node.input, scalars)
    orders = changed_orders(node.orders, column)
    moved = replace(node, input=source, keys=tuple(map(column, node.keys)), orders=orders)
    return pick_columns(moved, range(len(columns(node.input))))


def with_columns(node: Relational, scalars: tuple[Scalar, ...]) -> tuple[Relational, Column]:
    """The node with a column for each of these that is none yet, behind its own."""
    own = columns(node)
    outputs: list[Scalar] = [Ref(i, c.type, c.name) for i, c in enumerate(own)]
    outputs += [scalar for scalar in dict.fromkeys(scalars) if scalar not in outputs]

    def column(scalar: Scalar) -> Scalar:
        if scalar not in outputs:
            return scalar
        place = outputs.index(scalar)
        return Ref(place, scalar.type, own[place].name if place < len(own) else "computed")

    if len(outputs) == len(own):
        return node, column
    names = tuple(c.name for c in own) + ("computed",) * (len(outputs) - len(own))
    return Project(node, tuple(outputs), names), column
