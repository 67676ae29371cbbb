"""Compares dates with timestamps as dates where the timestamp is a midnight.

`d < DATE '1994-01-01' + INTERVAL 1 YEAR` binds as a comparison of timestamps, and the cast of a
date fails outside their range. DuckDB's optimizer compares dates there, which cannot fail, so
DuckDB's result is that of dates. This pass does the same, before the analysis of failures.
"""

from collections.abc import Callable
from dataclasses import replace

from streams.plan.scalar import Call, Form, Literal, Scalar

_COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})


def compared_as_dates(call: Call, computable: Callable[[str], bool]) -> Call:
    """The call over dates, if it compares the cast of one with a constant midnight."""
    if call.form is not Form.INFIX or call.name not in _COMPARISONS:
        return call
    dates = tuple(_date(argument, computable) for argument in call.arguments)
    if None in dates or not any(isinstance(date, Literal) for date in dates):
        return call
    return replace(call, arguments=tuple(date for date in dates if date is not None))


def _date(scalar: Scalar, computable: Callable[[str], bool]) -> Scalar | None:
    """The date of which this is the first moment, if it is one's."""
    if isinstance(scalar, Literal):
        return _midnight(scalar, computable)
    if not isinstance(scalar, Call) or scalar.form is not Form.CAST:
        return None
    (inner,) = scalar.arguments
    return inner if (inner.type, scalar.type) == ("DATE", "TIMESTAMP") else None


def _midnight(constant: Literal, computable: Callable[[str], bool]) -> Literal | None:
    if constant.type != "TIMESTAMP":
        return None
    date = f"CAST({constant.sql} AS DATE)"
    begins = f"CAST({date} AS TIMESTAMP) = {constant.sql}"
    # what is no midnight, or NULL, has no value here
    if not computable(f"CASE WHEN {begins} THEN true ELSE error('no midnight') END"):
        return None
    return Literal(date, "DATE", constant.label)
