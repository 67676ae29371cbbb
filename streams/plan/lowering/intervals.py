"""Fails rows whose INTERVAL cannot be exported from DuckDB to Arrow.

An interval is months, days and a part below a day. DuckDB counts that part in microseconds,
Arrow in 64-bit nanoseconds: beyond 292 years DuckDB silently exports a different interval. An
expression whose value becomes a column therefore fails if the value does not fit; values inside
of expressions may have any size.
"""

from streams.plan.analyses.nested import bound, rebuilt
from streams.plan.physical import Expression
from streams.plan.scalar import Call, Form, Literal, Parameter, Ref, Scalar
from streams.plan.to_sql import label, sql
from streams.plan.type_names import contains

MOST_HOURS = 2_562_046
"""Whole hours below a day's part of which every nanosecond has a number of 64 bits."""

_TOO_FAR = "an interval below 292 years in its part below a day"
_DAY_OR_LESS = "normalized_interval"


def as_column(scalar: Scalar) -> Expression:
    """The expression as a column of rows; it fails where its value has none in Arrow."""
    return Expression(sql(checked_interval(scalar)), scalar.type, label(scalar))


def checked_interval(scalar: Scalar) -> Scalar:
    """The value, or a failure where an interval in it is larger than Arrow's.

    Columns have come through Arrow, so they are returned as they are.
    """
    is_new = contains(scalar.type, "INTERVAL") and not _fits(scalar)
    return rebuilt(scalar, _fitting) if is_new else scalar


def _fits(scalar: Scalar) -> bool:
    """Whether it is known that the intervals of a value fit."""
    match scalar:
        case Call(name=name):
            return name == _DAY_OR_LESS
        case _:
            return isinstance(scalar, Ref)


def _fitting(scalar: Scalar) -> Scalar:
    if scalar.type != "INTERVAL":
        return scalar
    variable = Parameter("value@i", "INTERVAL")
    return bound(scalar, variable, _judged(variable))


def _judged(value: Parameter) -> Scalar:
    """The interval, if it fits; NULL fits."""
    part = Literal("'hour'", "VARCHAR", "'hour'")
    hours = Call(Form.FUNCTION, "date_part", (part, value), "BIGINT")
    most = Literal(f"CAST('{MOST_HOURS}' AS BIGINT)", "BIGINT", str(MOST_HOURS))
    above = Call(
        Form.INFIX, ">", (Call(Form.FUNCTION, "abs", (hours,), "BIGINT"), most), "BOOLEAN"
    )
    text = Literal(f"'{_TOO_FAR}'", "VARCHAR", "")
    failure = Call(Form.CAST, "cast", (text,), "INTERVAL")
    return Call(Form.CASE, "case", (above, failure, value), "INTERVAL")
