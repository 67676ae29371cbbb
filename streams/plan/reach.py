"""How far the calls of a window look: whether a change is felt by its neighbours alone.

A frame of ROWS between constant offsets, lag and lead see so many rows before and behind their
own. That is known when the plan is made; so only what lies that near to a change need be
computed again. It holds where all calls order the rows alike, where no call can fail (an error
is one of the whole partition) and where the value of a frame does not depend on how it was
added up (sums of floats do, in DuckDB).
"""

import re
from collections.abc import Sequence

from streams.plan import grouped
from streams.plan.ir import Frame, WindowCall
from streams.plan.physical import Reach
from streams.plan.scalar import Literal, Ref, Scalar

FARTHEST = 10_000
"""Rows beyond which a neighbourhood is none."""

_INTEGER = re.compile(r"(?:CAST\()+'(-?\d+)'(?: AS U?(?:TINYINT|SMALLINT|INTEGER|BIGINT)\))+")
_SUMMED = frozenset({
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "BOOLEAN",
})  # fmt: skip
_ROUNDED = ("FLOAT", "DOUBLE", "INTERVAL")
_COMPARED = frozenset({"min", "max"})
_LOGICAL = frozenset({"bool_and", "bool_or", "count", "count_star"})
_PLACED = frozenset({"first_value", "last_value"})


def reach(calls: Sequence[WindowCall], row: Sequence[Ref]) -> Reach | None:
    """How far the calls look; None when they may look at any row of the partition.

    Args:
        calls: the calls of a Window.
        row: the columns of its input, in the order in which they break ties.
    """
    seen = [_seen(call) for call in calls]
    ends = [each for each in seen if each is not None]
    if len(ends) < len(calls) or any(call.orders != calls[0].orders for call in calls):
        return None
    back, ahead = (max(each[i] for each in ends) for i in range(2))
    if max(back, ahead) > FARTHEST or not all(map(_cannot_fail, calls)):
        return None
    return Reach(grouped.sort_key(calls[0].orders, row), back, ahead)


def _cannot_fail(call: WindowCall) -> bool:
    some = (*call.arguments, *(order.scalar for order in (*call.orders, *call.inner)))
    return all(isinstance(each, Ref | Literal) for each in some)


def number(scalar: Scalar) -> int | None:
    """The value of an integer constant; None for anything else."""
    found = _INTEGER.fullmatch(scalar.sql) if isinstance(scalar, Literal) else None
    return None if found is None else int(found[1])


def _seen(call: WindowCall) -> tuple[int, int] | None:
    """How many rows before and behind its own a call looks at."""
    if call.inner or call.ignore_nulls or call.distinct or call.condition is not None:
        return None
    if call.function in {"lag", "lead"}:
        return _offset(call)
    if call.frame is None or call.frame.kind != "ROWS" or not _is_exact(call):
        return None
    return _framed(call.frame)


def _offset(call: WindowCall) -> tuple[int, int] | None:
    distance = number(call.arguments[1]) if len(call.arguments) > 1 else 1
    if distance is None:
        return None
    distance = distance if call.function == "lag" else -distance
    return max(distance, 0), max(-distance, 0)


def _is_exact(call: WindowCall) -> bool:
    """Whether the frame's rows in order, and nothing else, decide every bit of the value."""
    if call.function in _LOGICAL | _PLACED:
        return True
    if not call.arguments:
        return False
    kind = call.arguments[0].type
    if call.function in _COMPARED:
        return len(call.arguments) == 1 and not any(each in kind for each in _ROUNDED)
    return call.function in {"sum", "avg"} and kind in _SUMMED


def _framed(frame: Frame) -> tuple[int, int] | None:
    start = _place(frame.start, frame.start_offset)
    end = _place(frame.end, frame.end_offset)
    if start is None or end is None:
        return None
    return max(-start, -end, 0), max(start, end, 0)


def _place(bound: str, offset: Scalar | None) -> int | None:
    """Where a bound lies, counted from the row: below 0 before it."""
    if bound == "CURRENT ROW":
        return 0
    distance = None if offset is None else number(offset)
    if distance is None or distance < 0:
        return None
    return -distance if bound == "PRECEDING" else distance
