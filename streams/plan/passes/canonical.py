"""Give equal groups equal bits (rules 23, 35).

-0.0 equals 0.0, every NaN every other, and an interval of 30 days one of a month, but their
bits differ, and so do their hashes. Where rows that are equal become one (the keys of Group,
the rows of Distinct
and of set operations, the arguments of min and max) the one that is shown must not depend on
which came first: such a column is replaced by one representative of each class. (`joins`
compares representatives too, but its rows stay as they are.) Equal intervals print apart, so
a key of intervals is shown as it came: of the equal ones the least by its text. So are the
values that an aggregate of DuckDB's shows: it gets the rows in an order that parts them.
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
from streams.plan.physical import Column
from streams.plan.scalar import Call, Form, Literal, Ref, Scalar
from streams.plan.typenames import contains

_FLOATS = ("FLOAT", "DOUBLE")
_VAGUE = (*_FLOATS, "INTERVAL")
_NORMAL = "normalized_interval"
_COUNTED = frozenset({"approx_count_distinct", "count", "entropy"})
"""General aggregates that ask of values alone which are equal."""


def canonical(node: Relational) -> Relational:
    """Replace keys by their representatives everywhere in the tree."""
    node = with_children(node, tuple(canonical(child) for child in children(node)))
    match node:
        case Distinct() if any(map(_is_shown, columns(node))):
            own = columns(node)
            names = tuple(column.name for column in own)
            return _group(Group(node.input, tuple(map(_ref, range(len(own)), own)), (), names))
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
    refs = tuple(map(_ref, range(len(own)), own))
    outputs = tuple(map(representative, refs))
    if outputs == refs:
        return node
    return Project(node, outputs, tuple(column.name for column in own))


def _ref(place: int, column: Column) -> Ref:
    return Ref(place, column.type, column.name)


def _is_shown(key: Scalar | Column) -> bool:
    """Whether equal values of a key print apart."""
    is_normal = isinstance(key, Call) and key.name == _NORMAL
    return contains(key.type, "INTERVAL") and not is_normal


def _group(node: Group) -> Relational:
    calls = tuple(map(_call, node.calls))
    shown = [place for place, key in enumerate(node.keys) if _is_shown(key)]
    kept = tuple(_call(least(node.keys[place])) for place in shown)
    more = tuple(node.names[place] for place in shown)
    keys = tuple(map(representative, node.keys))
    group = Group(node.input, keys, (*calls, *kept), (*node.names, *more))
    if not shown:
        return group
    own, width = columns(group), len(node.names)
    places = [width + shown.index(i) if i in shown else i for i in range(width)]
    return Project(group, tuple(_ref(i, own[i]) for i in places), node.names)


def least(value: Scalar) -> AggregateCall:
    """The least of equal values: of intervals by its text."""
    if _is_shown(value):
        return AggregateCall("first", value, value.type, general=True)
    return AggregateCall("min", value, value.type)


def _call(call: AggregateCall) -> AggregateCall:
    if call.general:
        return call.over(_with_one_nan if shows_values(call) else representative)
    if call.argument is not None and (call.function in EXTREMES or call.distinct or call.share):
        return replace(call, argument=representative(call.argument))
    return call


def shows_values(call: AggregateCall) -> bool:
    """Tell whether of a general aggregate's arguments the bits count, not their class alone.

    Of several distinct arguments nothing says which bits DuckDB keeps.
    """
    return call.function not in _COUNTED and not (call.distinct and call.more)


def is_vague(type_: str) -> bool:
    """Whether equal values of this type may have different bits."""
    return any(contains(type_, kind) for kind in _VAGUE)


def representative(scalar: Scalar) -> Scalar:
    """One value for each class of equal values; the expression itself if bits decide."""
    return rebuilt(scalar, _plain) if is_vague(scalar.type) else scalar


def _with_one_nan(scalar: Scalar) -> Scalar:
    """The value with one NaN for all, which print alike: no order would part them."""
    has_float = any(contains(scalar.type, kind) for kind in _FLOATS)
    return rebuilt(scalar, _one_nan) if has_float else scalar


def _plain(scalar: Scalar) -> Scalar:
    if scalar.type in _FLOATS:
        return _float(scalar)
    if scalar.type == "INTERVAL":
        return Call(Form.FUNCTION, _NORMAL, (scalar,), "INTERVAL")
    return scalar


def _float(scalar: Scalar) -> Scalar:
    type_ = scalar.type
    zero = Literal(f"CAST('0' AS {type_})", type_, "0.0")
    is_zero = Call(Form.INFIX, "=", (scalar, zero), "BOOLEAN")
    return Call(Form.CASE, "case", (is_zero, zero, *_nan(scalar), scalar), type_)


def _one_nan(scalar: Scalar) -> Scalar:
    if scalar.type not in _FLOATS:
        return scalar
    return Call(Form.CASE, "case", (*_nan(scalar), scalar), scalar.type)


def _nan(scalar: Scalar) -> tuple[Scalar, Scalar]:
    """WHEN the value is a NaN THEN the one that stands for all."""
    is_nan = Call(Form.FUNCTION, "isnan", (scalar,), "BOOLEAN")
    return is_nan, Literal(f"CAST('nan' AS {scalar.type})", scalar.type, "nan")
