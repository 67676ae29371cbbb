"""DuckDB's order of values, as arrays that numpy can search.

A value's *rank* is an integer that compares as the value does. Where a type has a rank of its
own (numbers of up to 64 bits, dates, times) it is the same everywhere and can be read off a
memory-mapped column at any place. Bytes and text are ranked among each other when they meet
and compared as bytes. Every other type is ordered by DuckDB's binary sort key, which is
stored beside the value.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streams.trace.columns import Flags, Ints, sort_keys
from streams.trace.kernel.kernel import Kernel

Comparable: TypeAlias = pa.Array | Ints
Raw: TypeAlias = Ints | npt.NDArray[np.float64] | npt.NDArray[np.uint64]
"""Ranks, or bytes: what two values are compared by."""

_LOWEST = np.iinfo(np.int64).min
_HIGHEST = np.iinfo(np.int64).max
_LARGEST_RANKED_PRECISION = 18
_LARGEST_PACKED = 1 << 62
_PLACES_A_ROUND = 256
_FEWEST_PROBES, _MOST_PROBES = 4, 16
_LONG = 1 << 12


def is_ranked(kind: pa.DataType) -> bool:
    """Whether values of this type have ranks of their own."""
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _LARGEST_RANKED_PRECISION)
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or pa.types.is_timestamp(kind)
    )


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values of this type are ordered as their own bytes are."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def comparable(array: pa.Array, kernel: Kernel) -> pa.Array:
    """The column to compare by: the array itself or its sort keys; no NULLs in it."""
    if is_ranked(array.type) or is_bytes(array.type):
        return array
    return sort_keys(array, kernel)


def raw(array: pa.Array) -> Raw:
    """The fixed-width values of a ranked type in the column's own memory."""
    kind = array.type
    buffer, start, end = array.buffers()[1], array.offset, array.offset + len(array)
    if pa.types.is_decimal(kind):
        return np.frombuffer(buffer, np.int64).reshape(-1, 2)[start:end, 0]
    if pa.types.is_floating(kind):
        dtype = np.dtype("f8" if kind == pa.float64() else "f4")
    else:
        sign = "u" if pa.types.is_unsigned_integer(kind) else "i"
        dtype = np.dtype(f"{sign}{kind.bit_width // 8}")
    return np.frombuffer(buffer, dtype)[start:end]


def ranks_of(values: Raw) -> Ints:
    """The ranks of raw values. NaN is greater than everything, as DuckDB has it."""
    if values.dtype == np.float32:
        values = values.astype(np.float64)
    if values.dtype == np.float64:
        bits: Ints = values.view(np.int64)
        return bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))
    if values.dtype == np.uint64:
        return values.view(np.int64) ^ np.int64(_LOWEST)
    return values.astype(np.int64)


def ranks(array: pa.Array) -> Ints:
    """Ranks of values that are compared with each other only; no NULLs among them."""
    if is_ranked(array.type):
        return ranks_of(raw(array))
    if not len(array):
        return np.empty(0, np.int64)
    ordered: Ints = pc.rank(array, tiebreaker="dense").to_numpy().astype(np.int64)
    return ordered


def directed_ranks(array: pa.Array, *, largest: bool) -> Ints:
    """Ranks by which the value wanted comes first, all below the largest integer."""
    result = ranks(array)
    result = ~result if largest else result
    if len(result) and result.max() == _HIGHEST:
        result = np.unique(result, return_inverse=True)[1]
    return result


def reader(column: pa.Array) -> Callable[[Ints], Comparable]:
    """A function from places of a column to what is compared there."""
    if is_ranked(column.type):
        values = raw(column)
        return lambda places: ranks_of(values[places])
    return lambda places: column.take(pa.array(places))


def comparables(column: pa.Array) -> Comparable:
    """All of a column as what is compared."""
    return ranks_of(raw(column)) if is_ranked(column.type) else column


def less(left: Comparable, right: Comparable) -> Flags:
    """Flags where `left` is before `right`."""
    if isinstance(left, np.ndarray):
        below: Flags = left < right
        return below
    return np.asarray(pc.less(left, right).to_numpy(zero_copy_only=False), np.bool_)


def choose(values: Comparable, places: Ints) -> Comparable:
    """The values at these places."""
    return values[places] if isinstance(values, np.ndarray) else values.take(pa.array(places))


def bound(
    read: Callable[[Ints], Comparable],
    low: Ints,
    high: Ints,
    values: Comparable,
    *,
    after: bool,
) -> Ints:
    """For each i the first place in [low[i], high[i]) whose value is not before values[i].

    With `after`, the first place whose value is beyond it. The places are sorted by value
    within each range. All ranges are searched at once, in log2 of the longest rounds, or fewer:
    a round costs as much as some hundred places, so few ranges are cut into many parts.
    """
    low, high = low.copy(), high.copy()
    active = np.flatnonzero(low < high)
    if not len(active):
        return low
    size = high[active] - low[active]
    at_ends = int(size.max()) > _LONG  # of the pieces of a run, a value is in one at most
    wanted = choose(values, active)
    while len(active):
        probes = min(_PLACES_A_ROUND // len(active), _MOST_PROBES)
        if not at_ends and probes < _FEWEST_PROBES:
            _halve(read, low, high, wanted, active, after=after)
        else:
            places = _probes(low[active], high[active], max(probes, 2), ends=at_ends)
            whose = np.repeat(np.arange(len(active)), places.shape[1])
            passed = _passed(read, places.ravel(), choose(wanted, whose), after=after)
            _narrow(low, high, active, places, passed.reshape(places.shape))
        left, at_ends = np.flatnonzero(low[active] < high[active]), False
        if len(left) < len(active):
            active, wanted = active[left], choose(wanted, left)
    return low


def _passed(
    read: Callable[[Ints], Comparable], places: Ints, wanted: Comparable, *, after: bool
) -> Flags:
    """Whether the place looked for is behind each of these."""
    here = read(places)
    return ~less(wanted, here) if after else less(here, wanted)


def _halve(
    read: Callable[[Ints], Comparable],
    low: Ints,
    high: Ints,
    wanted: Comparable,
    active: Ints,
    *,
    after: bool,
) -> None:
    """Move one end of each active range to its middle; `wanted` are their values."""
    middle = (low[active] + high[active]) >> 1
    right = _passed(read, middle, wanted, after=after)
    low[active[right]] = middle[right] + 1
    high[active[~right]] = middle[~right]


def _probes(low: Ints, high: Ints, number: int, *, ends: bool) -> Ints:
    """For each range, places that cut it into even parts; with `ends` its first and last."""
    steps = np.arange(number)
    if ends:
        return low[:, None] + (high - low - 1)[:, None] * steps // (number - 1)
    return low[:, None] + (high - low)[:, None] * (steps + 1) // (number + 1)


def _narrow(low: Ints, high: Ints, active: Ints, places: Ints, passed: Flags) -> None:
    """Move the ends of ranges: beyond the places that are `passed`, up to the next ones."""
    row, number = np.arange(len(active)), passed.sum(axis=1)
    low[active] = np.column_stack((low[active] - 1, places))[row, number] + 1
    high[active] = np.column_stack((places, high[active]))[row, number]


def packed_ranks(columns: Sequence[Ints]) -> Ints | None:
    """One integer a row that compares as its columns do, the first deciding; None if too wide.

    There is at least one column, and at least one row.
    """
    result, width = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        low = int(column.min())
        span = int(column.max()) - low + 1
        width *= span
        if width > _LARGEST_PACKED:
            return None
        if span > 1:
            result = result * span + (column - low)
    return result


def sort(columns: Sequence[Ints], *, nearly: bool = False) -> tuple[Ints, Ints]:
    """The order that sorts rows by these columns, and where in it each distinct row starts.

    `nearly` says that the rows are a few sorted pieces one after the other.
    """
    if not len(columns[0]):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    single = packed_ranks(columns)
    if single is not None:
        order = np.argsort(single, kind="stable" if nearly else "quicksort")
        return order, starts([single[order]])
    order = np.lexsort(tuple(reversed(columns)))
    return order, starts([column[order] for column in columns])


def starts(columns: Sequence[Ints]) -> Ints:
    """The places of sorted rows at which a new distinct row begins."""
    new = np.zeros(len(columns[0]), np.bool_)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)
