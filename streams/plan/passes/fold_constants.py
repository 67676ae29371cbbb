"""Separate constants that are computable from expressions that may fail.

A closed expression (no column, no lambda variable) has one value or fails always. DuckDB
evaluates each once; those that have a value become literals with their original spelling. Then
a date in a predicate cannot fail, like a number, and the remaining closed expressions are known
to fail: they stay expressions, and fail for each row that reaches them.
"""

from collections.abc import Callable
from dataclasses import replace

from streams.plan.ir import (
    Filter,
    Group,
    Match,
    Product,
    Project,
    Relational,
    TopK,
    Values,
    Window,
    changed_orders,
    parts,
    with_parts,
)
from streams.plan.passes.date_comparisons import compared_as_dates
from streams.plan.scalar import Call, Form, Literal, Parameter, Ref, Scalar, walk
from streams.plan.to_sql import label, sql

Computable = Callable[[str], bool]
"""Whether a closed SQL expression has a value."""


def fold_constants(  # noqa: C901, PLR0911 - one case a node
    node: Relational, computable: Computable
) -> Relational:
    """Make literals of the closed expressions that have a value, everywhere in the tree."""
    node = with_parts(node, tuple(fold_constants(part, computable) for part in parts(node)))

    def one(scalar: Scalar) -> Scalar:
        return _settled(scalar, computable)

    def every(scalars: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        return tuple(map(one, scalars))

    match node:
        case Project():
            return replace(node, outputs=every(node.outputs))
        case Filter() | Product() | Match():
            return replace(node, predicates=every(node.predicates))
        case Values():
            return replace(node, rows=tuple(map(every, node.rows)))
        case Group():
            aggregates = tuple(call.over(one) for call in node.calls)
            return replace(node, keys=every(node.keys), calls=aggregates)
        case Window():
            calls = tuple(call.over(one) for call in node.calls)
            return replace(node, keys=every(node.keys), calls=calls)
        case TopK():
            orders = changed_orders(node.orders, one)
            return replace(node, keys=every(node.keys), orders=orders)
        case _:
            return node


def _settled(scalar: Scalar, computable: Computable) -> Scalar:
    if not isinstance(scalar, Call) or scalar.form is Form.LAMBDA:
        return scalar
    closed = not any(isinstance(part, Ref | Parameter) for part in walk(scalar))
    if closed and scalar.form is not Form.TEMPORAL:
        text = sql(scalar)
        if computable(text):
            return Literal(text, scalar.type, label(scalar))
    arguments = tuple(_settled(argument, computable) for argument in scalar.arguments)
    return compared_as_dates(replace(scalar, arguments=arguments), computable)
