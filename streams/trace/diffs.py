"""Sums and products of diffs: exact, or an error; never a number that wrapped around.

A multiplicity is an int64. Clients may write up to 2^53 (`storage.limits`), sums of them and
joins, which multiply, may leave the range. Each check costs a pass for the largest value;
only where that could overflow are the numbers taken apart.
"""

import numpy as np

from streams.errors import SlackwaterError
from streams.trace.columns import Groups, Ints

_END = 1 << 63
_HALF = np.int64(32)
_LOW = np.int64((1 << 32) - 1)


class DiffOverflow(SlackwaterError):
    """A multiplicity does not fit in 64 bits."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} of multiplicities: expected one within 64 bits, actual one beyond"


def largest(values: Ints) -> int:
    """The largest value without its sign; 0 of none."""
    return max(int(values.max()), -int(values.min())) if values.size else 0


def sum_by(groups: Groups, values: Ints) -> Ints:
    """The sum of the values of each group. Errors: DiffOverflow."""
    if largest(values) * len(values) < _END:
        return _added(groups, values)
    high, low = _added(groups, values >> _HALF), _added(groups, values & _LOW)
    high += low >> _HALF
    if largest(high) > 1 << 31 or (high >> np.int64(31) != high >> np.int64(62)).any():
        raise DiffOverflow("a sum")
    return (high << _HALF) | (low & _LOW)


def _added(groups: Groups, values: Ints) -> Ints:
    totals = np.zeros(groups.count, np.int64)
    np.add.at(totals, groups.ids, values)
    return totals


def products(one: Ints, other: Ints) -> Ints:
    """The products, one by one. Errors: DiffOverflow."""
    made = one * other
    if largest(one) * largest(other) >= _END:
        # a double is near enough: what wraps around is off by 2^64
        near = one.astype(np.float64) * other.astype(np.float64)
        if (np.abs(near - made) > np.abs(near) * 1e-9).any():
            raise DiffOverflow("a product")
    return made


def check_running(before: Ints, changes: Ints) -> None:
    """Errors: DiffOverflow when changes, one after the other, could leave the range."""
    if largest(changes) * changes.size + largest(before) < _END:
        return
    if sum(map(abs, changes.ravel().tolist())) + largest(before) >= _END:
        raise DiffOverflow("a sum")


def running(values: Ints, starts: Ints) -> tuple[Ints, Ints]:
    """The running sum of each segment, exact whatever the values, as high * 2^32 + low.

    Shape: `starts` are the positions of the segments' first values, ascending from 0. Low is
    from 0 to 2^32 - 1, so high has the sign of the sum.
    """
    if not values.size:
        return values, values
    lengths = np.diff(np.append(starts, len(values)))
    high, low = (_restarted(part, starts, lengths) for part in (values >> _HALF, values & _LOW))
    return high + (low >> _HALF), low & _LOW


def _restarted(values: Ints, starts: Ints, lengths: Ints) -> Ints:
    totals = np.cumsum(values)
    return totals - np.repeat((totals - values)[starts], lengths)
