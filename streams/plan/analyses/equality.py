"""Classes of equal values whose bits differ, and one representative of each (rules 23, 35).

-0.0 equals 0.0, every NaN every other, and an interval of 30 days one of a month.
"""

from streams.plan.analyses.nested import rebuilt
from streams.plan.ir import AggregateCall
from streams.plan.physical import Column
from streams.plan.scalar import Call, Form, Literal, Scalar
from streams.plan.type_names import contains

_FLOATS = ("FLOAT", "DOUBLE")
_VAGUE = (*_FLOATS, "INTERVAL")
_NORMAL = "normalized_interval"
_COUNTED = frozenset({"approx_count_distinct", "count", "entropy"})
"""General aggregates that ask of values alone which are equal."""


def is_shown(key: Scalar | Column) -> bool:
    """Whether equal values of a key print apart."""
    is_normal = isinstance(key, Call) and key.name == _NORMAL
    return contains(key.type, "INTERVAL") and not is_normal


def least(value: Scalar) -> AggregateCall:
    """The least of equal values: of intervals by its text."""
    if is_shown(value):
        return AggregateCall("first", value, value.type, general=True)
    return AggregateCall("min", value, value.type)


def shows_values(call: AggregateCall) -> bool:
    """Tell whether a general aggregate depends on bits of its arguments, not just their class.

    For several distinct arguments it is undefined which bits DuckDB keeps.
    """
    return call.function not in _COUNTED and not (call.distinct and call.more)


def is_vague(type_: str) -> bool:
    """Whether equal values of this type may have different bits."""
    return any(contains(type_, kind) for kind in _VAGUE)


def representative(scalar: Scalar) -> Scalar:
    """One value for each class of equal values; the expression itself if bits decide."""
    return rebuilt(scalar, _plain) if is_vague(scalar.type) else scalar


def with_one_nan(scalar: Scalar) -> Scalar:
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
