"""Integers of up to 128 bits as words of 64: DuckDB's integers and decimals in Arrow."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.pieces import WORD, Bytes, Counts, Flags, big_endian, validity

Words = NDArray[np.uint64]

HUGE = {"hugeint": True, "uhugeint": False}
"""DuckDB's integers of 128 bits, by the name of their Arrow type: whether they have a sign."""

_ONES = ~np.uint64(0)
_BITS = 8 * WORD
_LARGE = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class Integers:
    """One word of each integer, or two if some need them, the most significant first.

    `words` are the integer's as two's complement, `sizes` those of its absolute value.
    """

    words: tuple[Words, ...]
    sizes: tuple[Words, ...]
    negative: Flags

    @classmethod
    def of(cls, array: pa.Array) -> "Integers":
        """The integers of an array, the unscaled ones of decimals; NULL is 0."""
        if isinstance(array.type, pa.BaseExtensionType):
            return _of_pairs(array.storage, signed=HUGE[array.type.type_name])
        if pa.types.is_decimal(array.type):
            return _of_pairs(array, signed=True)
        values = array.fill_null(0).to_numpy(zero_copy_only=False)
        if array.type == pa.uint64():
            return _of_words(np.zeros(len(values), np.uint64), values, signed=False)
        return _of_longs(values.astype(np.int64))

    def reaches(self, bit: int) -> Flags:
        """Whether the absolute value is 2 ** bit or more."""
        limit = np.uint64(1 << bit % _BITS)
        above = self.sizes[: len(self.sizes) - 1 - bit // _BITS]
        flags: Flags = self.sizes[len(above)] >= limit
        for word in above:
            flags |= word > 0
        return flags

    def bytes_from(self, bit: int) -> Counts:
        """How many of 2 ** bit, 2 ** (bit + 8) and so on the absolute value reaches."""
        counts = np.zeros(len(self.negative), np.int64)
        while bit < _BITS * len(self.sizes):
            reached = self.reaches(bit)
            if not reached.any():
                break
            counts += reached
            bit += 8
        return counts

    def complements(self) -> Bytes:
        """The bytes of the absolute value, most significant first; inverted if negative."""
        inverted = np.where(self.negative, _ONES, np.uint64(0))
        return np.concatenate([big_endian(word ^ inverted) for word in self.sizes], axis=1)

    def signed_bytes(self) -> Bytes:
        """The bytes of two's complement, most significant first, after one of the sign."""
        sign = np.where(self.negative, np.uint8(0xFF), np.uint8(0))[:, None]
        return np.concatenate([sign, *map(big_endian, self.words)], axis=1)


def _of_longs(values: NDArray[np.int64]) -> Integers:
    words, negative = values.view(np.uint64), values < 0
    return Integers((words,), (np.where(negative, np.uint64(0) - words, words),), negative)


def _of_pairs(array: pa.Array, *, signed: bool) -> Integers:
    """Of values of 16 bytes, the least significant first."""
    data = np.frombuffer(array.buffers()[1] or b"", np.uint64).reshape(-1, 2)
    pairs = data[array.offset : array.offset + len(array)]
    valid = validity(array)
    if valid is not None:
        pairs = np.where(valid[:, None], pairs, np.uint64(0))
    return _of_words(pairs[:, 1].copy(), pairs[:, 0].copy(), signed=signed)


def _of_words(high: Words, low: Words, *, signed: bool) -> Integers:
    negative = (high >= _LARGE) if signed else np.zeros(len(high), np.bool_)
    expected = np.where(low >= _LARGE, _ONES, np.uint64(0))
    if (high == expected).all() and ((low >= _LARGE) == negative).all():
        return _of_longs(low.view(np.int64))
    size_low = np.where(negative, np.uint64(0) - low, low)
    size_high = np.where(negative, ~high + (low == 0), high)
    return Integers((high, low), (size_high, size_low), negative)
