"""Give equal groups equal bits (rules 23, 35).

-0.0 equals 0.0, every NaN every other, and an interval of 30 days one of a month, but their
bits differ, and so do their hashes. Where rows that are equal become one (the keys of Group,
the rows of Distinct
and of set operations, the arguments of min and max) the one that is shown must not depend on
which came first: such a column is replaced by one representative of each class. (`joins`
compares representatives too, but its rows stay as they are.)
"""

from dataclasses import replace

from streams.plan.aggregates import EXTREMES
from streams.plan.ir import (
    AggregateCall,
    Distinct,
    Group,
    Project,
    Relational,
    Threshold,
    TopK,
    Window,
    children,
    columns,
    with_children,
)
from streams.plan.nested import rebuilt
from streams.plan.scalar import Call, Form, Literal, Ref, Scalar
from streams.plan.typenames import contains

_FLOATS = ("FLOAT", "DOUBLE")
_VAGUE = (*_FLOATS, "INTERVAL")
_OF_BITS = frozenset({"avg", "mean"})
"""Aggregates that mind no order, and in which an hour more is not what a day less is.

DuckDB's average of intervals divides months, days and microseconds one by one.
"""


def canonical(node: Relational) -> Relational:
    """Replace keys by their representatives everywhere in the tree."""
    node = with_children(node, tuple(canonical(child) for child in children(node)))
    match node:
        case Distinct():
            return Distinct(_represented(node.input))
        case Threshold():
            return replace(node, inputs=tuple(map(_represented, node.inputs)))
        case Group():
            return _group(node)
        case Window() | TopK():
            return replace(node, keys=tuple(map(representative, node.keys)))
        case _:
            return node


def _represented(node: Relational) -> Relational:
    """The node with its columns' representatives."""
    own = columns(node)
    refs = tuple(Ref(i, column.type, column.name) for i, column in enumerate(own))
    outputs = tuple(map(representative, refs))
    if outputs == refs:
        return node
    return Project(node, outputs, tuple(column.name for column in own))


def _group(node: Group) -> Group:
    calls = tuple(map(_call, node.calls))
    return replace(node, keys=tuple(map(representative, node.keys)), calls=calls)


def _call(call: AggregateCall) -> AggregateCall:
    if call.general and call.function in _OF_BITS and not call.distinct:
        return call
    if call.general:
        return call.over(representative)
    if call.argument is not None and (call.function in EXTREMES or call.distinct or call.share):
        return replace(call, argument=representative(call.argument))
    return call


def is_vague(type_: str) -> bool:
    """Whether equal values of this type may have different bits."""
    return any(contains(type_, kind) for kind in _VAGUE)


def representative(scalar: Scalar) -> Scalar:
    """One value for each class of equal values; the expression itself if bits decide."""
    return rebuilt(scalar, _plain) if is_vague(scalar.type) else scalar


def _plain(scalar: Scalar) -> Scalar:
    if scalar.type in _FLOATS:
        return _float(scalar)
    if scalar.type == "INTERVAL":
        return Call(Form.FUNCTION, "normalized_interval", (scalar,), "INTERVAL")
    return scalar


def _float(scalar: Scalar) -> Scalar:
    type_ = scalar.type
    zero = Literal(f"CAST('0' AS {type_})", type_, "0.0")
    nan = Literal(f"CAST('nan' AS {type_})", type_, "nan")
    is_zero = Call(Form.INFIX, "=", (scalar, zero), "BOOLEAN")
    is_nan = Call(Form.FUNCTION, "isnan", (scalar,), "BOOLEAN")
    return Call(Form.CASE, "case", (is_zero, zero, is_nan, nan, scalar), type_)
