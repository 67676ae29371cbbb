"""Window calls over RANGE frames: what their values depend on, and for how long.

The value of a frame depends only on its rows. So if the output rows of a window are needed only
while `mz_now() < e`, with e at most d after their own time, an input row is needed only while
`mz_now() < ts + back + d`: after that, no output row that is still needed has it in its frame.

This must not raise an error that the query does not raise: neither for a row that is dropped (a
row is dropped only if its arguments and bounds cannot fail) nor for a row whose frame has lost
rows, which is computed until it is dropped but not read (no function fails over a part of the
rows).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from streams.plan.analyses.fallible import can_fail
from streams.plan.analyses.temporal import is_temporal, or_never
from streams.plan.analyses.time_bounds import (
    before,
    later,
    latest,
    microseconds,
    rounded_up,
)
from streams.plan.ir import Window, WindowCall
from streams.plan.scalar import Call, Form, Ref, Scalar

_SUMMED = frozenset({
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "BOOLEAN",
})  # fmt: skip
_DECIMAL = re.compile(r"DECIMAL\((\d+),\d+\)")
_MOST_DIGITS = 18
"""Digits of a decimal whose sums fit, however many rows there are."""
_ROUNDED = ("FLOAT", "DOUBLE", "INTERVAL")
_GRAINS, _LEAST_GRAIN = 8, 1_000
"""Parts of the time that a row is needed, in each of which rows go together; microseconds.

Each time at which rows go, the frames that lose them are computed once more.
"""
_COMPARED = frozenset({"min", "max"})
_LOGICAL = frozenset({"bool_and", "bool_or", "count", "count_star"})
_PLACED = frozenset({"first_value", "last_value"})


def is_exact(call: WindowCall) -> bool:
    """Whether the frame's rows in order, and nothing else, decide every bit of the value.

    Such a function fails for no rows.
    """
    if call.function in _LOGICAL | _PLACED:
        return True
    if not call.arguments:
        return False
    kind = call.arguments[0].type
    if call.function in _COMPARED:
        return len(call.arguments) == 1 and not any(name in kind for name in _ROUNDED)
    return call.function in {"sum", "avg"} and _is_summed(kind)


def _is_summed(kind: str) -> bool:
    decimal = _DECIMAL.fullmatch(kind)
    return kind in _SUMMED or (decimal is not None and int(decimal[1]) <= _MOST_DIGITS)


def seen_conjunct(node: Window, conjunct: Scalar) -> Scalar | None:
    """What a temporal conjunct of a window's rows says of the rows of its input.

    None if a row may be looked back to from any distance, or if nothing is known.
    """
    if not is_temporal(conjunct) or not isinstance(conjunct, Call) or node.shared:
        return None
    end = latest(conjunct.arguments[0]) if conjunct.name in {"<", "<="} else None
    if end is None or len(end.columns) != 1 or any(map(can_fail, node.keys)):
        return None
    ((time, beyond),) = end.columns.items()
    reaches = [reach for call in node.calls if (reach := _reach(call, time))]
    if len(reaches) < len(node.calls):
        return None
    needed = beyond + max(reach.back for reach in reaches)
    bounds = dict.fromkeys(bound for reach in reaches for bound in reach.before)
    ends = [later(bound, needed + most) for bound, most in bounds] or [later(time, needed)]
    grain = max(needed // _GRAINS, _LEAST_GRAIN)
    values = (or_never(rounded_up(time, grain)) for time in ends)
    return before(conjunct, (*values, *end.constants))


@dataclass(frozen=True, slots=True)
class _Reach:
    """How far a frame looks back, and its bounds before the row; in microseconds.

    Each bound has the most by which it is before the row's time.
    """

    back: int
    before: tuple[tuple[Scalar, int], ...]


def _reach(call: WindowCall, time: Ref) -> _Reach | None:
    """The reach of a call by value of a time; None if it has another one, or may fail."""
    frame = call.frame
    if frame is None or frame.kind != "RANGE" or len(call.orders) != 1:
        return None
    (order,) = call.orders
    if order.scalar != time or not is_exact(call) or any(map(can_fail, _values(call))):
        return None
    back_word = "FOLLOWING" if order.descending else "PRECEDING"
    sides = [(frame.start, frame.start_offset), (frame.end, frame.end_offset)]
    if order.descending:
        sides.reverse()
    lengths = [_length(*side) for side in sides]
    if None in lengths:
        return None
    before_row = tuple(
        (Call(Form.INFIX, "-", (time, offset), time.type), length)
        for (word, offset), length in zip(sides, lengths, strict=True)
        if word == back_word and offset is not None and length is not None
    )
    return _Reach((lengths[0] or 0) if sides[0][0] == back_word else 0, before_row)


def _values(call: WindowCall) -> Iterator[Scalar]:
    """The expressions of a call but for the bounds of its frame."""
    yield from call.arguments
    yield from (order.scalar for order in call.orders + call.inner)
    if call.condition is not None:
        yield call.condition


def _length(word: str, offset: Scalar | None) -> int | None:
    """The microseconds between a row and a bound of its frame; None if it has no known end."""
    if word == "CURRENT ROW":
        return 0
    length = None if offset is None else microseconds(offset)
    return length if length is not None and length >= 0 else None
