"""Elements of the tuple layer, a column at a time: Arrow arrays to bytes.

`schemas.keys` makes the elements of the values that are not plain, one by one.

Source: FoundationDB, "Tuple layer".
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.integers import HUGE, Integers
from schemas.iso_texts import has_iso_texts, iso_texts
from schemas.pieces import WORD, Bytes, big_endian, binary, joined, last, validity, whole

BINARY, TEXT, ZERO, DOUBLE, FALSE, TRUE, UUID = 0x01, 0x02, 0x14, 0x21, 0x26, 0x27, 0x30
NULL = b"\x00"
ABOVE, BELOW = 0x1D, 0x0B
"""Codes of integers that have more than 64 bits, or all bits of 64."""

_SIGN = np.uint64(1 << 63)
_ALL_BITS = ~np.uint64(0)


def is_plain(array: pa.Array) -> bool:
    """Whether each value has an element that `encoded` makes.

    Lists and structs have none, nor have dates and times that Python's do not hold.
    """
    return encoder(array.type) is not None or has_iso_texts(array)


def encoded(array: pa.Array) -> pa.BinaryArray:
    """The element of each value, NULL's included. Every value has one: see `is_plain`."""
    encode = encoder(array.type) or iso_elements
    elements, valid = encode(array), validity(array)
    if valid is None:
        return elements
    return pc.if_else(pa.array(valid), elements, binary(NULL))


def encoder(kind: pa.DataType) -> Callable[[pa.Array], pa.BinaryArray] | None:
    """What encodes values of a type that has a code; of NULL it makes anything."""
    if isinstance(kind, pa.JsonType):
        return texts
    if isinstance(kind, pa.UuidType):
        return uuids
    if pa.types.is_integer(kind) or pa.types.is_decimal128(kind):
        return integers
    if isinstance(kind, pa.OpaqueType):
        return integers if kind.type_name in HUGE else None
    if pa.types.is_floating(kind):
        return doubles
    return _ENCODERS.get(kind)


def texts(array: pa.Array) -> pa.BinaryArray:
    """Elements of text or bytes: ended by NUL, and a NUL within is marked."""
    if isinstance(array.type, pa.JsonType):
        array = array.storage
    code = TEXT if pa.types.is_string(array.type) else BINARY
    array = array.cast(pa.binary())
    if array.null_count:
        array = array.fill_null(b"")
    if _has_nul(array):
        array = pc.replace_substring(array, b"\x00", b"\x00\xff")
    return joined(binary(bytes([code])), array, binary(NULL))


def _has_nul(array: pa.BinaryArray) -> bool:
    _, offsets, data = array.buffers()
    if not len(array) or data is None:
        return False
    bounds = np.frombuffer(offsets, np.int32)
    begin, end = int(bounds[array.offset]), int(bounds[array.offset + len(array)])
    return not np.frombuffer(data, np.uint8)[begin:end].all()


def integers(array: pa.Array) -> pa.BinaryArray:
    """Elements of integers, and of decimals as their unscaled ones."""
    return _packed(Integers.of(array))


def nanoseconds(array: pa.Array) -> pa.BinaryArray:
    """Elements of timestamps that no text of microseconds holds: integers since 1970.

    The infinities are DuckDB's own, the greatest and the least but one of 64 bits.
    """
    return integers(array.view(pa.int64()))


def _packed(values: Integers) -> pa.BinaryArray:
    counts = values.bytes_from(0)
    signed = np.where(values.negative, -counts, counts)
    longer = (counts > WORD) | ((values.sizes[-1] == _ALL_BITS) & (counts == WORD))
    head = (ZERO + signed).astype(np.uint8)[:, None]
    shown = None
    if longer.any():
        count = np.where(values.negative, counts ^ 0xFF, counts).astype(np.uint8)
        code = np.where(values.negative, BELOW, ABOVE).astype(np.uint8)
        head = np.stack((np.where(longer, code, head[:, 0]), count), axis=1)
        shown = np.stack((np.ones(len(counts), np.bool_), longer), axis=1)
    return last(head, values.complements(), counts, shown)


def doubles(array: pa.Array) -> pa.BinaryArray:
    """Elements of floating point numbers, all as doubles."""
    values = array.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64)
    bits = values.view(np.uint64)
    return _fixed(DOUBLE, big_endian(np.where(bits & _SIGN, ~bits, bits | _SIGN)))


def booleans(array: pa.Array) -> pa.BinaryArray:
    """Elements of booleans."""
    yes, no = (binary(bytes([code])) for code in (TRUE, FALSE))
    return pc.if_else(array.fill_null(False), yes, no)  # noqa: FBT003 - pyarrow's own signature


def uuids(array: pa.Array) -> pa.BinaryArray:
    """Elements of UUIDs."""
    return _fixed(UUID, uuid_bytes(array))


def uuid_bytes(array: pa.Array) -> Bytes:
    """The 16 bytes of each UUID; of NULL any."""
    data: NDArray[np.uint8] = np.frombuffer(array.storage.buffers()[1] or b"", np.uint8)
    return data.reshape(-1, 16)[array.offset : array.offset + len(array)]


def iso_elements(array: pa.Array) -> pa.BinaryArray:
    """Elements of dates, times and timestamps: ISO 8601 text.

    Many rows mostly share few of them, as starts of windows, so each is spelled out once.
    """
    distinct = array.dictionary_encode()
    matrix = iso_texts(distinct.dictionary)
    ends = np.zeros((len(matrix), 1), np.uint8)
    elements = _fixed(TEXT, np.concatenate((matrix, ends), axis=1))
    return elements.take(distinct.indices)


def _fixed(code: int, content: Bytes) -> pa.BinaryArray:
    codes = np.full((len(content), 1), code, np.uint8)
    return whole(np.concatenate((codes, content), axis=1))


_ENCODERS: dict[pa.DataType, Callable[[pa.Array], pa.BinaryArray]] = {
    pa.bool_(): booleans,
    pa.string(): texts,
    pa.binary(): texts,
    pa.timestamp("ns"): nanoseconds,
}
