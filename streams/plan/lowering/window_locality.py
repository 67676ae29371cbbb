"""How far window calls look, and so whether a change affects only neighbouring rows.

lag, lead and a ROWS frame between constant offsets read a fixed number of rows before and
behind their own, a GROUPS frame a fixed number of groups of peers, a RANGE frame the values
within a fixed distance. The plan has these bounds, so only rows within them of a change are
recomputed. That requires that all calls order the rows alike, that no call can fail except by a
bound of RANGE (an error is one of the whole partition), and that the value of a frame does not
depend on the order of summation (sums of floats do, in DuckDB). A change in frames from the
beginning of the partition to the current row affects all rows behind it, and no others
(`running_frames`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from streams.plan.analyses.fallible import can_fail
from streams.plan.analyses.frame_values import is_exact
from streams.plan.ir import WindowCall
from streams.plan.lowering import aggregate_sql
from streams.plan.lowering.range_frames import FrameOffsets, cannot_measure, span
from streams.plan.lowering.running_frames import deciding_row, is_running, prefix_values
from streams.plan.scalar import Literal, Ref, Scalar
from streams.plan.window_frames import Before, Reach, RunningExtreme

FARTHEST = 10_000
"""Rows beyond which a neighbourhood is none."""

_INTEGER = re.compile(r"(?:CAST\()+'(-?\d+)'(?: AS U?(?:TINYINT|SMALLINT|INTEGER|BIGINT)\))+")
_RANKS = frozenset({"row_number", "rank"})
_OFFSET = frozenset({"lag", "lead"})


class _Unit(Enum):
    """The unit of a call's distance."""

    ROWS = "rows"
    GROUPS = "groups"
    VALUES = "values"


@dataclass(frozen=True, slots=True)
class _Look:
    """The distance that a call looks before and after its row; by value, that of the bounds.

    What it has to know of all rows before is `before`, and the rows that decide `extremes`.
    """

    unit: _Unit
    back: int = 0
    ahead: int = 0
    offsets: FrameOffsets = field(default_factory=FrameOffsets)
    before: tuple[Before, ...] = ()
    extremes: tuple[RunningExtreme, ...] = ()


def reach(calls: Sequence[WindowCall], row: Sequence[Ref]) -> Reach | str:
    """The reach of the calls; or why they may read any row of the partition.

    Args:
        calls: the calls of a Window.
        row: the columns of its input, in the order in which they break ties.
    """
    looks, reasons = [], []
    for call in calls:
        distance = _look(call)
        if isinstance(distance, _Look):
            looks.append(distance)
        else:
            reasons.append(distance)
    if reasons:
        return reasons[0]
    if any(call.orders != calls[0].orders for call in calls):
        return "its calls order rows differently"
    return _reach(looks, calls[0], row)


def _reach(looks: Sequence[_Look], call: WindowCall, row: Sequence[Ref]) -> Reach | str:
    order, peers = (
        aggregate_sql.sort_key(call.orders, row),
        aggregate_sql.sort_key(call.orders, ()),
    )
    units = {look.unit for look in looks}
    if _Unit.VALUES in units:
        if len(units) > 1:
            return "its calls look by value and by number"
        offsets = [look.offsets for look in looks]
        return Reach(order, 0, 0, peers, span(call.orders[0], offsets))
    back, ahead = max(look.back for look in looks), max(look.ahead for look in looks)
    if max(back, ahead) > FARTHEST:
        return f"its calls look further than {FARTHEST:,} rows"
    before = tuple(dict.fromkeys(prefix for look in looks for prefix in look.before))
    extremes = tuple(dict.fromkeys(extreme for look in looks for extreme in look.extremes))
    # So many rows are no more than so many groups of peers.
    counted = peers if _Unit.GROUPS in units else ""
    return Reach(order, back, ahead, counted, None, before, extremes)


def _look(call: WindowCall) -> _Look | str:
    """The reach of a call, or why it is unbounded."""
    if call.inner or call.ignore_nulls or call.distinct:
        return f"{call.function} sorts its frame, or passes over some rows of it"
    if _may_fail(call):
        return f"{call.function} may fail"
    if call.function in _OFFSET:
        return _offset(call)
    if call.function not in _RANKS and not is_exact(call):
        return f"{call.function} is not a function of its frame's rows, to the last bit"
    return _running(call) if is_running(call) else _framed(call)


def _running(call: WindowCall) -> _Look | str:
    in_rows = call.frame is not None and call.frame.kind == "ROWS"
    by_row = call.function == "row_number" or (call.function != "rank" and in_rows)
    unit = _Unit.ROWS if by_row else _Unit.GROUPS
    deciding, before = deciding_row(call), prefix_values(call)
    if call.function == "last_value":  # its own, or that of its last peer
        return _Look(unit)
    if deciding is not None:
        return _Look(unit, extremes=(deciding,))
    if not before:
        return f"{call.function} from the first row on cannot go on from numbers"
    return _Look(unit, before=before)


def _may_fail(call: WindowCall) -> bool:
    some = (*call.arguments, *(order.scalar for order in call.orders))
    plain = all(isinstance(scalar, Ref | Literal) for scalar in some)
    return not plain or (call.condition is not None and can_fail(call.condition))


def number(scalar: Scalar) -> int | None:
    """The value of an integer constant; None for anything else."""
    match = _INTEGER.fullmatch(scalar.sql) if isinstance(scalar, Literal) else None
    return None if match is None else int(match[1])


def _offset(call: WindowCall) -> _Look | str:
    distance = number(call.arguments[1]) if len(call.arguments) > 1 else 1
    if distance is None:
        return f"the offset of {call.function} is computed"
    distance = distance if call.function == "lag" else -distance
    return _Look(_Unit.ROWS, max(distance, 0), max(-distance, 0))


def _framed(call: WindowCall) -> _Look | str:
    frame = call.frame
    if frame is None or (frame.kind != "ROWS" and not call.orders):
        return f"the frame of {call.function} has no end"
    bounds = ((frame.start, frame.start_offset), (frame.end, frame.end_offset))
    if any(bound.startswith("UNBOUNDED") for bound, _ in bounds):
        return f"the frame of {call.function} has no end"
    if frame.kind == "RANGE" and any(offset is not None for _, offset in bounds):
        return _by_value(call, bounds)
    start, end = (_place(*bound) for bound in bounds)
    if start is None or end is None:
        return f"the frame of {call.function} is computed"
    unit = _Unit.ROWS if frame.kind == "ROWS" else _Unit.GROUPS
    return _Look(unit, max(-start, -end, 0), max(start, end, 0))


def _by_value(call: WindowCall, bounds: Sequence[tuple[str, Scalar | None]]) -> _Look | str:
    before = tuple(o for bound, o in bounds if o is not None and bound == "PRECEDING")
    behind = tuple(o for bound, o in bounds if o is not None and bound == "FOLLOWING")
    offsets = FrameOffsets(before, behind)
    why = cannot_measure(call.orders[0].scalar, offsets)
    return why or _Look(_Unit.VALUES, offsets=offsets)


def _place(bound: str, offset: Scalar | None) -> int | None:
    """The offset of a bound from the row: below 0 before it."""
    if bound == "CURRENT ROW":
        return 0
    distance = None if offset is None else number(offset)
    if distance is None or distance < 0:
        return None
    return -distance if bound == "PRECEDING" else distance
