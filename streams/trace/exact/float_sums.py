"""Exact sums of doubles, rounded once at the end, so that no order of rows can show (rule 40).

Every finite double is an integer multiple of 2^-1074. A sum is kept as digits in base 2^32 of
that integer, only those that are not zero: entries (bin, digit) with

    sum = 2^-1074 * sum over entries of digit * 2^(32 bin)

Digits are int64 of either sign. Those of stored sums are in [-2^31, 2^31), so that 2^29 rows
can be added before a carry is due, and that each sum has one form: one of zero has no digits,
whatever was added and taken away before. Three bins are no digits but counts: of NaN, of
infinity and of minus infinity, which decide the result as IEEE 754 does.

Sums of products of two doubles (`products`) are kept the same way, as multiples of 2^-2148.

Source: Kulisch's long accumulator; Neal, Fast exact summation using small and large
superaccumulators (2015), whose small one this is, kept sparse.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streams.trace.columns import Groups, Ints, group
from streams.trace.exact.diffs import sum_at, sum_by

Doubles = npt.NDArray[np.float64]

NAN, INFINITY, MINUS_INFINITY = -1, -2, -3
STORED = pa.list_(pa.struct([("bin", pa.int16()), ("digit", pa.int64())]))

_MASK = (1 << 32) - 1
_HALF_BIN = 1 << 31
_EXPONENTS = 0x7FF
_LOWEST = -1074
_PADDING = 3
_DENSE_CELLS = 1 << 22
_SAFE_WEIGHT = 1 << 29
_HALF = 27
_LOW_HALF = (1 << _HALF) - 1


@dataclass(frozen=True, slots=True)
class Digits:
    """Sparse digits of many sums: `owner` says whose each entry is."""

    owner: Ints
    bins: Ints
    digits: Ints


def split(values: Doubles, weights: Ints, owner: Ints) -> Digits:
    """The entries of `values[i] * weights[i]` for sum `owner[i]`."""
    mantissa, place, negative = _parts(values)
    result = _weighted(mantissa, place, np.where(negative, -weights, weights), owner)
    finite = np.isfinite(values)
    if finite.all():
        return result
    odd = np.flatnonzero(~finite)
    below = np.where(negative[odd], MINUS_INFINITY, INFINITY)
    special = np.where(np.isnan(values[odd]), NAN, below)
    return join(result, Digits(owner[odd], special, weights[odd]))


def products(left: Doubles, right: Doubles, weights: Ints, owner: Ints) -> Digits:
    """The entries of `one[i] * other[i] * weights[i]` for sum `owner[i]`, in units of 2^-2148.

    What is not finite counts as zero: the sums of the factors say that it is there.
    """
    (a, place_a, sign_a), (b, place_b, sign_b) = _parts(left), _parts(right)
    signs, place = np.where(sign_a != sign_b, -weights, weights), place_a + place_b
    high_a, low_a, high_b, low_b = a >> _HALF, a & _LOW_HALF, b >> _HALF, b & _LOW_HALF
    parts = [(high_a * high_b, 2 * _HALF), (high_a * low_b, _HALF)]
    parts += [(low_a * high_b, _HALF), (low_a * low_b, 0)]
    return join(*(_carry_once(_weighted(part, place + up, signs, owner)) for part, up in parts))


def _parts(values: Doubles) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Mantissa (zero if not finite), place and sign: value = mantissa * 2^(place - 1074)."""
    bits = values.view(np.int64)
    exponent = (bits >> 52) & _EXPONENTS
    mantissa = (bits & ((1 << 52) - 1)) | np.where(exponent > 0, 1 << 52, 0)
    mantissa = np.where(exponent < _EXPONENTS, mantissa, 0)
    return mantissa, np.maximum(exponent, 1) - 1, bits < 0


def _weighted(mantissa: Ints, place: Ints, signs: Ints, owner: Ints) -> Digits:
    if np.abs(signs).sum(dtype=np.float64) < _SAFE_WEIGHT:
        return _products(mantissa, place, signs, owner)
    # 16 bits of the weights at a time, each product carried at once
    parts = [(np.sign(signs) * ((np.abs(signs) >> k) & 0xFFFF), k) for k in (0, 16, 32, 48)]
    return join(
        *(_carry_once(_products(mantissa, place + k, part, owner)) for part, k in parts)
    )


def integers(entries: Digits, count: int) -> npt.NDArray[np.object_]:
    """The sums 0 .. count - 1 as Python's integers, in the unit of their lowest bin."""
    result = np.zeros(count, object)
    normal = entries.bins >= 0
    digits = entries.digits[normal].astype(object)
    np.add.at(
        result, entries.owner[normal], digits << (32 * entries.bins[normal]).astype(object)
    )
    return result


def is_special(entries: Digits, count: int) -> npt.NDArray[np.bool_]:
    """Flags which of the sums 0 .. count - 1 include a NaN or an infinity."""
    entries = gather(entries)
    flags = np.zeros(count, np.bool_)
    flags[entries.owner[entries.bins < 0]] = True
    return flags


def _products(mantissa: Ints, place: Ints, weights: Ints, owner: Ints) -> Digits:
    shift = place & 31
    low = (mantissa & _MASK) << shift
    high = (mantissa >> 32) << shift
    parts = (low & _MASK, (low >> 32) + (high & _MASK), high >> 32)
    return Digits(
        np.tile(owner, 3),
        np.concatenate([(place >> 5) + index for index in range(3)]),
        np.concatenate([part * weights for part in parts]),
    )


def gather(entries: Digits) -> Digits:
    """One entry for each (owner, bin), none of zero, sorted by owner, then bin."""
    if not len(entries.bins):
        return entries
    span = int(entries.bins.max()) - MINUS_INFINITY + 1
    codes = entries.owner * span + (entries.bins - MINUS_INFINITY)
    cells = (int(entries.owner.max()) + 1) * span
    if cells <= max(4 * len(codes), 1 << 12):
        totals = sum_at(codes, cells, entries.digits)
        nonzero = np.flatnonzero(totals)
        return Digits(nonzero // span, nonzero % span + MINUS_INFINITY, totals[nonzero])
    groups: Groups = group([codes], len(codes))
    totals = sum_by(groups, entries.digits)
    codes = codes[groups.first]
    order = np.argsort(codes)
    order = order[totals[order] != 0]
    return Digits(codes[order] // span, codes[order] % span + MINUS_INFINITY, totals[order])


def carry_digits(entries: Digits) -> Digits:
    """The same sums with digits in [-2^31, 2^31), from `gather`ed entries.

    A carry may be the cause of another one, of at most 1; each goes one bin up.
    """
    while _carried(entries).any():
        entries = gather(_carry_once(entries))
    return entries


def _carried(entries: Digits) -> Ints:
    """What each digit hands on to the next bin."""
    return np.where(entries.bins >= 0, (entries.digits + _HALF_BIN) >> 32, 0)


def _carry_once(entries: Digits) -> Digits:
    over = _carried(entries)
    stay = entries.digits - (over << 32)
    moved = np.flatnonzero(over)
    return Digits(
        np.concatenate((entries.owner, entries.owner[moved])),
        np.concatenate((entries.bins, entries.bins[moved] + 1)),
        np.concatenate((stay, over[moved])),
    )


def store(entries: Digits, count: int) -> pa.Array:
    """The sums 0 .. count - 1 as a column of type `STORED`; `entries` come from `gather`."""
    offsets = np.searchsorted(entries.owner, np.arange(count + 1)).astype(np.int32)
    fields = [pa.array(entries.bins.astype(np.int16)), pa.array(entries.digits)]
    values = pa.StructArray.from_arrays(fields, fields=list(STORED.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=STORED)


def load(column: pa.Array) -> Digits:
    """The entries of a stored column; row i owns its own. NULL is a sum of nothing."""
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    values = column.flatten()
    bins = values.field(0).to_numpy(zero_copy_only=False).astype(np.int64)
    owner = np.repeat(np.arange(len(column)), lengths)
    return Digits(owner, bins, values.field(1).to_numpy(zero_copy_only=False))


def join(*parts: Digits) -> Digits:
    """All entries of the parts."""
    return Digits(
        np.concatenate([part.owner for part in parts]),
        np.concatenate([part.bins for part in parts]),
        np.concatenate([part.digits for part in parts]),
    )


def nearest(entries: Digits, count: int) -> Doubles:
    """The sums 0 .. count - 1, each rounded once to the nearest double, ties to even."""
    result = np.zeros(count, np.float64)
    entries = gather(entries)
    normal = entries.bins >= 0
    bins = entries.bins[normal]
    if len(bins):
        low = int(bins.min())
        width = int(bins.max()) - low + 4
        owner, digits = entries.owner[normal], entries.digits[normal]
        step = max(1, _DENSE_CELLS // width)
        for start in range(0, count, step):  # a block at a time, to bound memory
            a, b = np.searchsorted(owner, [start, min(start + step, count)])
            dense = np.zeros((width, min(step, count - start)), np.int64)
            dense[bins[a:b] - low, owner[a:b] - start] = digits[a:b]
            result[start : start + step] = _round(dense, low)
    return _special(result, entries, normal)


def _special(result: Doubles, entries: Digits, normal: npt.NDArray[np.bool_]) -> Doubles:
    if normal.all():
        return result
    has = np.zeros((4, len(result)), np.bool_)
    has[-entries.bins[~normal], entries.owner[~normal]] = True
    result = np.where(has[-INFINITY], np.inf, result)
    result = np.where(has[-MINUS_INFINITY], -np.inf, result)
    lost = has[-NAN] | (has[-INFINITY] & has[-MINUS_INFINITY])
    return np.where(lost, np.nan, result)


def _round(dense: Ints, low: int) -> Doubles:
    """The nearest doubles of columns of digits, of which the lowest is of bin `low`."""
    for index in range(len(dense) - 1):
        dense[index + 1] += dense[index] >> 32
        dense[index] &= _MASK
    negative = dense[-1] < 0
    dense[:, negative] = -dense[:, negative]
    for index in range(len(dense) - 1):
        dense[index + 1] += dense[index] >> 32
        dense[index] &= _MASK
    padded = np.concatenate((np.zeros((_PADDING, dense.shape[1]), np.int64), dense)).view(
        np.uint64
    )
    top = len(padded) - 1 - np.argmax(padded[::-1] != 0, axis=0)
    top = np.maximum(top, _PADDING)
    column = np.arange(dense.shape[1])
    words = [padded[top - index, column] for index in range(4)]
    below = np.cumsum(padded != 0, axis=0)
    sticky = (top > _PADDING) & (below[np.maximum(top - 4, 0), column] > 0)
    high = (words[0] << np.uint64(32)) | words[1]
    rest = (words[2] << np.uint64(32)) | words[3]
    mantissa, shift = _round_window(high, rest, sticky)
    place = 32 * (top - _PADDING - 1 + low) - shift + 11 + _LOWEST
    with np.errstate(over="ignore"):  # beyond the largest double is infinity, as it should
        result: Doubles = np.ldexp(
            np.where(negative, -mantissa, mantissa), place.astype(np.int32)
        )
    return result


def _round_window(
    high: npt.NDArray[np.uint64], rest: npt.NDArray[np.uint64], sticky: npt.NDArray[np.bool_]
) -> tuple[Doubles, Ints]:
    """53 bits of a 128-bit window, rounded half to even, and how far it was shifted left."""
    bit = np.uint64(1)
    # frexp of the upper half is exact: it has at most 32 bits.
    bits = np.frexp((high >> np.uint64(32)).astype(np.float64))[1]
    shift = np.where(high == 0, 0, 32 - bits).astype(np.int64)
    left = shift.astype(np.uint64)
    right = np.uint64(63) - left
    high = (high << left) | ((rest >> bit) >> right)
    rest = rest << left
    mantissa = high >> np.uint64(11)
    tail = high & np.uint64(0x7FF)
    half = np.uint64(0x400)
    more = sticky | (rest != 0)
    up = (tail > half) | ((tail == half) & (more | ((mantissa & bit) == bit)))
    return (mantissa + up.astype(np.uint64)).astype(np.float64), shift
