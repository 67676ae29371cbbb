"""Running frames: from the first row of the partition to the current one, or its last peer.

A change affects the changed row and the rows behind it, so only these are recomputed. The rows
before them are represented by sums: the numbers of rows and of values, and the sum of values;
or by one row, which has the greatest or least value or is the first.
"""

import re

from streams.plan.ir import WindowCall
from streams.plan.scalar import Ref
from streams.plan.window_frames import Before, Reach, RunningExtreme

_ROWS = Before("rows", 0, "BIGINT")
_PLACES = frozenset({"row_number", "rank", "count_star"})
_DECIDED = {
    "max": "max",
    "min": "min",
    "bool_or": "max",
    "bool_and": "min",
    "first_value": "first",
}
_PLAIN = re.compile(
    r"BOOLEAN|U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|DECIMAL\(\d+,\d+\)|VARCHAR|BLOB|UUID"
    r"|DATE|TIME|TIMESTAMP(_S|_MS|_NS)?|TIMESTAMP WITH TIME ZONE"
)
"""Types whose values are ordered alike by all functions."""


def prefix_values(call: WindowCall) -> tuple[Before, ...]:
    """The prefix values that a call needs; empty if it cannot continue from them.

    The call is exact and cannot fail.
    """
    if call.function in _PLACES or (call.function == "count" and not call.arguments):
        return (_ROWS,)
    if call.function not in {"count", "sum"} or not isinstance(call.arguments[0], Ref):
        return ()
    argument = call.arguments[0]
    if call.function == "sum" and argument.type == "BOOLEAN":
        return ()
    count = Before("count", argument.index, "BIGINT")
    if call.function == "count":
        return (count,)
    scale = call.type.rpartition(",")[2].rstrip(")") if call.type.startswith("DECIMAL") else "0"
    return (count, Before("sum", argument.index, f"DECIMAL(38,{scale})"))


def deciding_row(call: WindowCall) -> RunningExtreme | None:
    """The row whose value a call continues from; None if it needs others.

    The call is exact and cannot fail.
    """
    function = _DECIDED.get(call.function)
    if function is None or not isinstance(call.arguments[0], Ref):
        return None
    argument = call.arguments[0]
    if function != "first" and not _PLAIN.fullmatch(argument.type):
        return None
    return RunningExtreme(function, argument.index)


def is_running(call: WindowCall) -> bool:
    """Whether an aggregate or a rank sees all rows as far as its own, and no others."""
    if call.condition is not None:
        return False
    if call.function == "row_number":
        return True
    frame = call.frame
    if frame is None or call.function == "rank":
        return bool(call.orders)
    ends = (frame.start, frame.end) == ("UNBOUNDED PRECEDING", "CURRENT ROW")
    return ends and not frame.exclude and (frame.kind == "ROWS" or bool(call.orders))


def continued_call(call: WindowCall, text: str, reach: Reach) -> str:
    """The call's text over the last rows, as it is behind what the reach says of those before.

    These are columns `b0`, `b1`, ... for its `before`, and `m0`, `w0`, ... for its `extremes`.
    """
    if not is_running(call):
        return text
    deciding = deciding_row(call)
    if deciding is not None:
        return _decided(text, deciding.function, reach.extremes.index(deciding))
    names = [f"b{reach.before.index(argument)}" for argument in prefix_values(call)]
    if not names:
        return text
    if len(names) == 1:
        return f"({text} + {names[0]})"
    nothing = f"CASE WHEN {names[0]} > 0 THEN CAST(0 AS {call.type}) END"
    return f"(coalesce({text}, {nothing}) + CAST({names[1]} AS {call.type}))"


def _decided(text: str, function: str, number: int) -> str:
    """The value over the last rows, or before them. Both functions pass over NULL."""
    if function == "first":
        return f"CASE WHEN w{number} THEN m{number} ELSE {text} END"
    return f"{'greatest' if function == 'max' else 'least'}({text}, m{number})"
