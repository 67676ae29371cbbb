"""Exact sums of integers and decimals beyond 64 bits, many at a time.

A number is a column of a matrix of digits in base 2^32, least significant first:

    value(d) = sum over i of d[i] * 2^(32 i)

Digits are int64 and may be negative or larger than the base; `carry` makes all but the last
lie in [0, 2^32). So numbers are added by adding digits, and a sum over up to 2^31 of them
cannot overflow before it is carried. Beyond that (multiplicities can be anything) the same
code runs on Python's integers: slow, and exact.

The stored form is two's complement, little endian, four bytes a digit: for four digits it is
that of HUGEINT and of DECIMAL.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streams.trace.columns import Flags, Groups, Ints

Digits = npt.NDArray[np.int64]

BASE_BITS = 32
_MASK = (1 << BASE_BITS) - 1
SAFE_WEIGHT = 1 << 31

NARROW, WIDE = 4, 6
"""Digits for sums of 64-bit numbers and of 128-bit numbers: neither can overflow."""


def of_integers(values: Ints | npt.NDArray[np.uint64], digits: int) -> Digits:
    """The digits of 64-bit integers, signed or not; or of smaller ones."""
    result = np.zeros((digits, len(values)), np.int64)
    result[0] = (values & values.dtype.type(_MASK)).astype(np.int64)
    result[1] = (values >> values.dtype.type(BASE_BITS)).astype(np.int64)
    return result


def of_bytes(array: pa.Array, digits: int) -> Digits:
    """The digits of an array of fixed width in stored form; NULL has any value."""
    width = array.type.bit_width // 32
    data = np.frombuffer(array.buffers()[1], np.uint32).reshape(-1, width)
    data = data[array.offset : array.offset + len(array)]
    result = np.zeros((digits, len(array)), np.int64)
    result[:width] = data.T
    result[width - 1] = data[:, width - 1].view(np.int32)
    return result


def carry(digits: Digits) -> Digits:
    """The same values with every digit but the last in [0, 2^32)."""
    result = digits.copy()
    for index in range(len(result) - 1):
        result[index + 1] += result[index] >> BASE_BITS
        result[index] &= _MASK
    return result


def to_bytes(digits: Digits) -> pa.Buffer:
    """The stored form, number after number, of carried digits."""
    data = np.ascontiguousarray(digits.T.astype(np.uint32))
    return pa.py_buffer(data.data)


def fits(digits: Digits, count: int) -> Flags:
    """Whether each carried number fits `count` digits in two's complement."""
    top = digits[count - 1].astype(np.uint32).view(np.int32).astype(np.int64)
    if count == len(digits):
        same: Flags = digits[count - 1] == top
        return same
    rest = digits[count:]
    sign = np.where(top < 0, _MASK, 0)
    ok: Flags = (rest[:-1] == sign).all(axis=0) & (rest[-1] == np.where(top < 0, -1, 0))
    return ok


def weighted_sums(groups: Groups, digits: Digits, weights: Ints) -> Digits:
    """For each group the sum of value times weight, carried."""
    result = np.zeros((len(digits), groups.count), np.int64)
    if not len(weights):
        return result
    if np.abs(weights).sum(dtype=np.float64) < SAFE_WEIGHT:
        for index, digit in enumerate(digits):
            if digit.any():
                np.add.at(result[index], groups.ids, digit * weights)
        return carry(result)
    exact = np.zeros(result.shape, object)
    for index, digit in enumerate(digits):
        np.add.at(exact[index], groups.ids, digit.astype(object) * weights.astype(object))
    return carry(exact).astype(np.int64)


def to_double(digits: Digits) -> npt.NDArray[np.float64]:
    """A double near each number; the number itself where that is below 2^53."""
    result = np.zeros(digits.shape[1], np.float64)
    for digit in reversed(digits):
        result = result * 2.0**BASE_BITS + digit
    return result


def to_objects(digits: Digits) -> npt.NDArray[np.object_]:
    """The numbers as Python's integers."""
    result = np.zeros(digits.shape[1], object)
    for digit in reversed(digits):
        result = (result << BASE_BITS) + digit.astype(object)
    return result


def magnitude_below(digits: Digits, bound: int) -> Flags:
    """Whether |value| < bound, for carried digits."""
    negative = digits[-1] < 0
    size = carry(np.where(negative, -digits, digits))
    below = np.zeros(digits.shape[1], np.bool_)
    decided = np.zeros(digits.shape[1], np.bool_)
    for index in reversed(range(len(digits))):
        digit = (bound >> (BASE_BITS * index)) & _MASK
        below |= ~decided & (size[index] < digit)
        decided |= size[index] != digit
    return below
