"""Make columns of what operators over groups compute with.

Leaves behind: the keys, arguments and orders of every Group, Window and TopK are columns of its
input, each computed once however often it is used, or constants; every Group has an aggregate,
for one that computes nothing is a Distinct.
"""

from collections.abc import Callable
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
from streams.plan.passes.prune import pick
from streams.plan.scalar import Literal, Ref, Scalar, refs

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
    """What a call computes with, but for constants that DuckDB wants as such."""
    return tuple(s for s in call.scalars if refs(s) or not call.general or s not in call.more)


def _over(call: AggregateCall, column: Column) -> AggregateCall:
    """The call over columns; a quantile's share stays a constant though one is its like."""
    if not call.general:
        return call.over(column)
    more = tuple(column(scalar) if refs(scalar) else scalar for scalar in call.more)
    return replace(call.over(column), more=more)


def _name(scalar: Scalar, node: Group) -> str:
    if isinstance(scalar, Ref):
        return scalar.name
    return node.names[node.keys.index(scalar)] if scalar in node.keys else "argument"


def _window(node: Window) -> Relational:
    scalars = tuple(scalar for call in node.calls for scalar in call.scalars if refs(scalar))
    source, column = _with_columns(node.input, node.keys + scalars)
    calls = tuple(call.over(column) for call in node.calls)
    moved = replace(node, input=source, keys=tuple(map(column, node.keys)), calls=calls)
    width, wide = len(columns(node.input)), len(columns(source))
    return pick(moved, [*range(width), *range(wide, wide + len(calls))])


def _top(node: TopK) -> Relational:
    scalars = node.keys + tuple(order.scalar for order in node.orders)
    source, column = _with_columns(node.input, scalars)
    orders = changed_orders(node.orders, column)
    moved = replace(node, input=source, keys=tuple(map(column, node.keys)), orders=orders)
    return pick(moved, range(len(columns(node.input))))


def _with_columns(node: Relational, scalars: tuple[Scalar, ...]) -> tuple[Relational, Column]:
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
