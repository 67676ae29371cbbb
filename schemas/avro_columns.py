"""Nullable fields of Avro records, a column at a time: Arrow arrays to bytes.

Each value is that of a union of null and its type: the branch, then the value if there is one.

Source: Apache Avro 1.12 specification, "Binary encoding".
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.integers import HUGE, Integers, Words
from schemas.pieces import Bytes, Counts, Flags, first, last, validity, whole
from schemas.tuple_elements import uuid_bytes

VALUE = 2
"""The branch of a value, which is the second one, as Avro writes integers; null's is 0."""

_INFINITY = (1 << 63) - 1
"""Of timestamps, as DuckDB has it; the other one is its negative."""

_ONE = np.uint64(1)
_SEVEN = np.uint64(7)
_UUID_BYTES, _UUID_LENGTH = 16, 36
_DASHES = (8, 13, 18, 23)
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(-1, 2)

Parts = tuple[pa.BinaryArray, ...]


def encode_column(array: pa.Array) -> Parts:
    """The bytes of each value, NULL's included, in parts that one joins row by row.

    A date is its days, a time or timestamp its units and null if it is infinite, a UUID its
    text. Integers of 128 bits, and of 64 without a sign, are decimals. Errors: TypeError for
    an array of another type.
    """
    if isinstance(array.type, pa.JsonType):
        array = array.storage
    return _encoder(array.type)(array)


def _encoder(kind: pa.DataType) -> Callable[[pa.Array], Parts]:
    if isinstance(kind, pa.UuidType):
        return _uuids
    is_huge = isinstance(kind, pa.OpaqueType) and kind.type_name in HUGE
    if is_huge or pa.types.is_decimal128(kind) or kind == pa.uint64():
        return _decimals
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return _longs
    encode = _ENCODERS.get(kind)
    if encode is None:
        raise TypeError(f"avro: expected a column's type, actual {kind}")
    return encode


def _longs(array: pa.Array) -> Parts:
    valid = validity(array)
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
        is_finite = pc.less(pc.abs(array), _INFINITY).fill_null(False)  # noqa: FBT003 - pyarrow's own signature
        if is_finite.true_count + array.null_count < len(array):
            valid = is_finite.to_numpy(zero_copy_only=False)
    elif pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    values = array.fill_null(0).to_numpy().astype(np.int64)
    zigzag = (values << 1) ^ (values >> 63)
    return (_varints(zigzag.view(np.uint64), valid),)


def _varints(words: Words, valid: Flags | None) -> pa.BinaryArray:
    """The branch and, if there is a value, its bits: seven a byte, the lowest first."""
    width = max(1, -(-int(words.max(initial=0)).bit_length() // 7))
    matrix = np.empty((len(words), 1 + width), np.uint8)
    counts = np.full(len(words), 2, np.int64)
    rest = words
    for place in range(1, width):
        low = rest.astype(np.uint8)
        rest = rest >> _SEVEN
        goes_on = rest != 0
        matrix[:, place] = np.where(goes_on, low | 0x80, low)
        counts += goes_on
    matrix[:, width] = rest
    return first(*_branched(matrix, counts, valid))


def _branched(matrix: Bytes, counts: Counts, valid: Flags | None) -> tuple[Bytes, Counts]:
    """The branch in the first column; without a value it is all there is."""
    matrix[:, 0] = VALUE if valid is None else np.where(valid, VALUE, 0)
    return matrix, counts if valid is None else np.where(valid, counts, 1)


def _fixed(content: Bytes, valid: Flags | None) -> Parts:
    """The branch and, if there is a value, all of a row."""
    rows, width = content.shape
    matrix = np.empty((rows, 1 + width), np.uint8)
    matrix[:, 1:] = content
    matrix, counts = _branched(matrix, np.full(rows, 1 + width), valid)
    return (whole(matrix) if valid is None else first(matrix, counts),)


def _texts(array: pa.Array) -> Parts:
    lengths = pc.binary_length(array).fill_null(0).to_numpy().astype(np.uint64)
    content = array.cast(pa.binary())
    if array.null_count:
        content = content.fill_null(b"")
    return _varints(lengths << _ONE, validity(array)), content


def _decimals(array: pa.Array) -> Parts:
    """Two's complement with a bit more than the absolute value has, as fastavro writes it."""
    values, valid = Integers.of(array), validity(array)
    counts = 1 + values.bytes_from(7)
    head = np.empty((len(counts), 2), np.uint8)
    head[:, 1] = counts << 1
    shown = None
    if valid is not None:
        counts = np.where(valid, counts, 0)
        shown = np.stack((np.ones(len(valid), np.bool_), valid), axis=1)
    _branched(head, counts, valid)
    return (last(head, values.signed_bytes(), counts, shown),)


def _reals(array: pa.Array) -> Parts:
    values = array.fill_null(0.0).to_numpy(zero_copy_only=False)
    if array.type == pa.float32():
        values = values.astype(np.float64)  # makes a signalling NaN quiet, as a Python float is
    width = array.type.bit_width // 8
    content = values.astype(f"<f{width}").view(np.uint8).reshape(-1, width)
    return _fixed(content, validity(array))


def _booleans(array: pa.Array) -> Parts:
    values: NDArray[np.bool_] = array.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - pyarrow's own signature
    return _fixed(values.astype(np.uint8)[:, None], validity(array))


def _uuids(array: pa.Array) -> Parts:
    digits = _HEX[uuid_bytes(array)].reshape(-1, 2 * _UUID_BYTES)
    content = np.full((len(array), 1 + _UUID_LENGTH), ord("-"), np.uint8)
    content[:, 0] = _UUID_LENGTH << 1
    letters = np.setdiff1d(np.arange(_UUID_LENGTH), _DASHES)
    content[:, 1 + letters] = digits
    return _fixed(content, validity(array))


_ENCODERS: dict[pa.DataType, Callable[[pa.Array], Parts]] = {
    pa.bool_(): _booleans,
    pa.float32(): _reals,
    pa.float64(): _reals,
    pa.string(): _texts,
    pa.binary(): _texts,
}
