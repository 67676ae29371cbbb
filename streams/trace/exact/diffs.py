"""Sums and products of diffs: exact, or `DiffOverflow`; never wrapped around.

A multiplicity is an int64. Clients may write up to 2^53 (`storage.limits`), sums of them and
joins, which multiply, may leave the range. What adds multiplicities up does it here: a number
beyond 64 bits is `DiffOverflow`, the failure of the one dataflow, merge or read that met it.
Each check costs a pass for the largest value; only where that could overflow are the numbers
taken apart.
"""

import numpy as np

from streams.errors import SlackwaterError
from streams.trace.columns import Flags, Groups, Ints

LARGEST = (1 << 63) - 1
"""The largest multiplicity."""

MOST_COPIES = 1 << 27
"""Rows that are made at once of the multiplicities of others: the indices alone take 1 GiB."""

_END = LARGEST + 1
_HALF = np.int64(32)
_LOW = np.int64((1 << 32) - 1)
_HIGHEST = (1 << 31) - 1


class DiffOverflow(SlackwaterError):
    """A multiplicity does not fit in 64 bits."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} of multiplicities: expected one within 64 bits, actual one beyond"


class TooManyCopies(SlackwaterError):
    """Rows would have to be written out more often than there is room for."""

    def __init__(self, copies: int) -> None:
        super().__init__(copies)
        self.copies = copies

    def __str__(self) -> str:
        return (
            f"copies of rows that are looked at one by one: expected at most {MOST_COPIES:,}"
            f" together, actual {self.copies:,}"
        )


def largest(values: Ints) -> int:
    """The largest value without its sign; 0 of none."""
    return max(int(values.max()), -int(values.min())) if values.size else 0


def sum_by(groups: Groups, values: Ints) -> Ints:
    """The sum of the values of each group. Errors: DiffOverflow."""
    return sum_at(groups.ids, groups.count, values)


def sum_at(ids: Ints, count: int, values: Ints) -> Ints:
    """The sum of the values of each id from 0 to `count` - 1. Errors: DiffOverflow."""
    if largest(values) * len(values) < _END:
        return _added(ids, count, values)
    return _whole(_added(ids, count, values >> _HALF), _added(ids, count, values & _LOW))


def _added(ids: Ints, count: int, values: Ints) -> Ints:
    totals = np.zeros(count, np.int64)
    np.add.at(totals, ids, values)
    return totals


def sums(values: Ints, starts: Ints) -> Ints:
    """The sum of each segment. Shape: as of `running`. Errors: DiffOverflow."""
    if largest(values) * len(values) < _END:
        return _reduced(values, starts)
    return _whole(_reduced(values >> _HALF, starts), _reduced(values & _LOW, starts))


def _reduced(values: Ints, starts: Ints) -> Ints:
    totals: Ints = np.add.reduceat(values, starts) if len(starts) else values[:0]
    return totals


def add_diffs(left: Ints, right: Ints) -> Ints:
    """The sums, one by one. Errors: DiffOverflow."""
    total = left + right
    if ((left ^ total) & (right ^ total) < 0).any():
        raise DiffOverflow("a sum")
    return total


def negated(values: Ints) -> Ints:
    """The values with the other sign. Errors: DiffOverflow."""
    if values.size and values.min() < -LARGEST:
        raise DiffOverflow("the opposite")
    return -values


def products(left: Ints, right: Ints) -> Ints:
    """The products, one by one. Errors: DiffOverflow."""
    product = left * right
    if largest(left) * largest(right) >= _END:
        # a double is near enough: what wraps around is off by 2^64
        near = left.astype(np.float64) * right.astype(np.float64)
        if (np.abs(near - product) > np.abs(near) * 1e-9).any():
            raise DiffOverflow("a product")
    return product


def running_values(changes: Ints, starts: Ints, before: Ints) -> Ints:
    """The value of each segment after each change, starting from `before`.

    Shape: as of `running`; `before` has one entry a segment. Errors: DiffOverflow.
    """
    if len(starts) == len(changes):
        return add_diffs(before, changes)
    lengths = _lengths(changes, starts)
    if largest(changes) * changes.size + largest(before) < _END:
        return _restarted(changes, starts, lengths) + np.repeat(before, lengths)
    high, low = running(changes, starts)
    return _whole(
        high + np.repeat(before >> _HALF, lengths), low + np.repeat(before & _LOW, lengths)
    )


def running(values: Ints, starts: Ints) -> tuple[Ints, Ints]:
    """The running sum of each segment, exact whatever the values, as high * 2^32 + low.

    Shape: `starts` are the positions of the segments' first values, ascending from 0. Low is
    from 0 to 2^32 - 1, so high has the sign of the sum.
    """
    if not values.size:
        return values, values
    lengths = _lengths(values, starts)
    high, low = (_restarted(part, starts, lengths) for part in (values >> _HALF, values & _LOW))
    return high + (low >> _HALF), low & _LOW


def saturated(values: Ints, starts: Ints) -> Ints:
    """The running sum of each segment; the end of 64 bits where it lies beyond.

    Shape: as of `running`.
    """
    if largest(values) * values.size < _END:
        return _restarted(values, starts, _lengths(values, starts)) if values.size else values
    high, low = running(values, starts)
    value = (high << _HALF) | low
    value[high > _HIGHEST] = LARGEST
    value[high < ~_HIGHEST] = ~LARGEST
    return value


def repeat_positions(counts: Ints) -> Ints:
    """The place of each count, as often as it says. Errors: TooManyCopies."""
    total = int(counts.sum(dtype=np.float64))  # they may be too many for 64 bits
    if total > MOST_COPIES:
        raise TooManyCopies(total)
    return np.repeat(np.arange(len(counts)), counts)


def _lengths(values: Ints, starts: Ints) -> Ints:
    return np.diff(np.append(starts, len(values)))


def _restarted(values: Ints, starts: Ints, lengths: Ints) -> Ints:
    totals = np.cumsum(values)
    return totals - np.repeat((totals - values)[starts], lengths)


def _whole(high: Ints, low: Ints) -> Ints:
    """The numbers high * 2^32 + low. Errors: DiffOverflow."""
    high = high + (low >> _HALF)
    beyond: Flags = (high > _HIGHEST) | (high < ~_HIGHEST)
    if beyond.any():
        raise DiffOverflow("a sum")
    return (high << _HALF) | (low & _LOW)
