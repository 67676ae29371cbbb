"""Packed tuples of the materialization protocol, many together: columns to and from bytes.

`schemas.flow_tuple` says what the encoding is; here each step of it is one on arrays. A column
whose elements are of several types, as JSON numbers are, has an array for each of them. Tuples
that are short of the common form (text with NUL, bytes that are no tuple) are unpacked one by
one, so that what is refused, and with which words, is decided in one place.

Source: FoundationDB, "Tuple layer".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas import flow_tuple
from schemas.blobs import Blobs, Offsets
from schemas.flow_tuple import Element, MalformedTuple
from schemas.pieces import WORD, binary, joined
from schemas.tuple_elements import BINARY, DOUBLE, FALSE, TEXT, TRUE, ZERO, encoder

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]

NULL, ESCAPE = 0x00, 0xFF
TYPES = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
}
"""Of each type of an element the type of its array; integers past 63 bits are uint64."""
FEW = 16
"""So many tuples are unpacked faster one by one."""

_SIGN = np.uint64(1 << 63)
_EIGHT = np.uint64(8)
_SIZES = np.full(256, -1, np.int64)
_SIZES[[NULL, FALSE, TRUE]] = 0
_SIZES[DOUBLE] = WORD
_SIZES[ZERO - WORD : ZERO + WORD + 1] = np.abs(np.arange(-WORD, WORD + 1))


@dataclass(frozen=True, slots=True)
class Elements:
    """A column. `parts` has an array for each type, null where the element is of another."""

    length: int
    parts: tuple[pa.Array, ...]

    @classmethod
    def of(cls, values: Sequence[Element]) -> "Elements":
        """Elements that are Python's. Errors: MalformedTuple for what is no element."""
        try:
            return cls(len(values), tuple(_parts(values)))
        except (pa.ArrowException, KeyError, ValueError, TypeError, OverflowError) as error:
            raise MalformedTuple(f"expected values of JSON: {error}") from error

    @classmethod
    def of_array(cls, array: pa.Array) -> "Elements":
        """One array of the types that parts have; uint64 may have any values."""
        if array.type != pa.uint64():
            return cls(len(array), (array,))
        small = pc.less(array, pa.scalar(1 << 63, pa.uint64()))
        none = pa.scalar(None, pa.uint64())
        signed = pc.if_else(small, array, none).cast(pa.int64())
        large = pc.if_else(small, none, array)
        return cls(len(array), tuple(part for part in (signed, large) if _any(part)))

    @property
    def types(self) -> list[pa.DataType]:
        """The types that are there."""
        return [part.type for part in self.parts]

    def part(self, type_: pa.DataType) -> pa.Array:
        """The elements of a type; nulls alone if there are none."""
        for part in self.parts:
            if part.type == type_:
                return part
        return pa.nulls(self.length, type_)

    def objects(self) -> list[Element]:
        """The elements as Python's."""
        if len(self.parts) == 1 and not self.parts[0].null_count:
            every: list[Element] = self.parts[0].to_numpy(zero_copy_only=False).tolist()
            return every
        column = np.full(self.length, None, object)
        for part in self.parts:
            values = part.drop_null().to_numpy(zero_copy_only=False).astype(object)
            column[_valid(part)] = values
        elements: list[Element] = column.tolist()
        return elements


def _parts(values: Sequence[Element]) -> Iterator[pa.Array]:
    kinds = sorted(set(map(type, values)) - {type(None)}, key=lambda kind: kind.__name__)
    for kind in kinds:
        some = values
        if len(kinds) > 1:
            some = [value if type(value) is kind else None for value in values]
        if kind is int:
            yield from _integers(some)
        else:
            yield pa.array(some, TYPES[kind])


def _integers(values: Sequence[Element]) -> Iterator[pa.Array]:
    try:
        yield pa.array(values, pa.int64())
    except (pa.ArrowInvalid, OverflowError):
        large = [value is not None and value >= 1 << 63 for value in values]  # type: ignore[operator]
        pairs = list(zip(values, large, strict=True))
        small = [None if is_large else value for value, is_large in pairs]
        yield pa.array(small, pa.int64())
        yield pa.array([value if is_large else None for value, is_large in pairs], pa.uint64())


def pack_columns(columns: Sequence[Elements], length: int) -> Blobs:
    """A tuple of each row. Arrays hold at most 2 GiB: give more rows in parts."""
    if not columns:
        return Blobs.of([b""] * length)
    return Blobs(joined(*map(_encoded, columns)))


def _encoded(column: Elements) -> pa.Array:
    """The bytes of each element."""
    encoded = [_encoded_part(part) for part in column.parts]
    if not encoded:
        return pa.array([bytes([NULL])] * column.length, pa.binary())
    return pc.coalesce(*encoded, binary(bytes([NULL])))


def _encoded_part(part: pa.Array) -> pa.Array:
    """The bytes of the elements that are there, null for the others."""
    encode = encoder(part.type)
    assert encode is not None, f"{part.type} is one of TYPES"
    encoded = encode(part)
    if not part.null_count:
        return encoded
    return pc.if_else(part.is_valid(), encoded, pa.scalar(None, pa.binary()))


def unpack_columns(packed: Sequence[bytes], width: int) -> list[Elements]:
    """The columns of tuples of `width` elements each.

    Errors: MalformedTuple, which names the first tuple that is wrong by its index.
    """
    blobs = Blobs.of(packed)
    if len(blobs) < FEW:
        return _one_by_one(blobs, width)
    layout = _layout(blobs, width)
    regular = np.flatnonzero(~layout.odd)
    try:
        columns = [_column(layout, place, regular) for place in range(width)]
    except pa.ArrowInvalid:  # no UTF-8
        return _one_by_one(blobs, width)
    rows = np.flatnonzero(layout.odd)
    if not len(rows):
        return columns
    odd = flow_tuple.unpack_some(blobs, rows.tolist(), width)
    return [
        _merged(column, Elements.of([row[place] for row in odd]), rows)
        for place, column in enumerate(columns)
    ]


def _one_by_one(blobs: Blobs, width: int) -> list[Elements]:
    rows = flow_tuple.unpack_some(blobs, range(len(blobs)), width)
    if not rows:
        return [Elements(0, ())] * width
    return [Elements.of(values) for values in zip(*rows, strict=True)]


class _Layout(NamedTuple):
    """Where the elements of each column are. `odd` tuples are to be unpacked one by one."""

    data: Bytes
    codes: list[Bytes]
    begins: list[Offsets]
    ends: list[Offsets]
    odd: Flags


def _layout(blobs: Blobs, width: int) -> _Layout:
    offsets = blobs.offsets
    data = np.frombuffer(blobs.arena + bytes(2 * WORD), np.uint8)
    at, stop = offsets[:-1].copy(), offsets[1:]
    odd = data[stop] == ESCAPE  # the NUL that ends a text before it would seem to be one of it
    nuls = _nuls(data)
    layout = _Layout(data, [], [], [], odd)
    for _ in range(width):
        odd |= at >= stop
        codes, begins = data[at], at + 1
        ends = begins + _SIZES[codes]
        odd |= ends < begins - (codes <= TEXT)
        at = ends.copy()
        texts = np.flatnonzero((codes == BINARY) | (codes == TEXT))
        ends[texts], escaped = _ends_of_text(nuls, begins[texts])
        odd[texts] |= escaped
        at[texts] = ends[texts] + 1
        odd |= (at > stop) | ~_canonical(data, codes, begins)
        at = np.where(odd, offsets[:-1], at)
        layout.codes.append(codes)
        layout.begins.append(begins)
        layout.ends.append(ends)
    odd |= at != stop
    return layout


def _nuls(data: Bytes) -> tuple[Offsets, Offsets]:
    """Where a text would end, and the NULs that are part of one."""
    zeros = np.flatnonzero(data[:-1] == 0)
    escaped = data[zeros + 1] == ESCAPE
    return zeros[~escaped], zeros[escaped]


def _ends_of_text(nuls: tuple[Offsets, Offsets], begins: Offsets) -> tuple[Offsets, Flags]:
    ending, escaped = nuls
    ends = ending[np.searchsorted(ending, begins)]
    return ends, np.searchsorted(escaped, begins) < np.searchsorted(escaped, ends)


def _canonical(data: Bytes, codes: Bytes, begins: Offsets) -> Flags:
    """Whether an integer has no byte too many, and 64 bits hold it; the greatest is odd."""
    first, words = data[begins], _words(data, begins)
    above = (codes > ZERO) & (codes <= ZERO + WORD)
    below = (codes < ZERO) & (codes >= ZERO - WORD)
    padded = (above & (first == 0)) | (below & (first == ESCAPE))
    too_small = (codes == ZERO - WORD) & (words < _SIGN - np.uint64(1))
    most = (codes == ZERO + WORD) & (words == ~np.uint64(0))
    canonical: Flags = ~(padded | too_small | most)
    return canonical


def _words(data: Bytes, begins: Offsets) -> Words:
    """The eight bytes at each place, the most significant first."""
    every = np.ndarray((len(data) - WORD + 1,), ">u8", data, strides=(1,))
    return every[begins].astype(np.uint64)


def _column(layout: _Layout, place: int, rows: Offsets) -> Elements:
    """A column of the tuples that are not odd; null for those that are."""
    length = len(layout.odd)
    codes = layout.codes[place][rows]
    begins, ends = layout.begins[place][rows], layout.ends[place][rows]
    parts: list[pa.Array] = []
    for which, read in _READERS:
        chosen = np.flatnonzero(which[codes])
        if len(chosen):
            part = read(layout.data, codes[chosen], begins[chosen], ends[chosen])
            parts += Elements.of_array(_spread(part, rows[chosen], length)).parts
    return Elements(length, _united(parts))


def _united(parts: Sequence[pa.Array]) -> tuple[pa.Array, ...]:
    """One array for each type."""
    united: dict[pa.DataType, pa.Array] = {}
    for part in parts:
        before = united.get(part.type)
        united[part.type] = part if before is None else pc.coalesce(before, part)
    return tuple(united.values())


def _spread(array: pa.Array, rows: Offsets, length: int) -> pa.Array:
    """Values at some rows, null at the others."""
    if len(rows) == length:
        return array
    places = np.full(length, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return array.take(pa.array(places, mask=places < 0))


def _merged(column: Elements, odd: Elements, rows: Offsets) -> Elements:
    parts = [_spread(part, rows, column.length) for part in odd.parts]
    return Elements(column.length, _united([*column.parts, *parts]))


def _read_bytes(data: Bytes, codes: Bytes, begins: Offsets, ends: Offsets) -> pa.Array:
    del codes
    return Blobs.cut(data.tobytes(), begins, ends).array


def _read_text(data: Bytes, codes: Bytes, begins: Offsets, ends: Offsets) -> pa.Array:
    return _read_bytes(data, codes, begins, ends).cast(pa.string())


def _read_above(data: Bytes, codes: Bytes, begins: Offsets, ends: Offsets) -> pa.Array:
    del codes
    counts = (ends - begins).astype(np.uint64)
    words = _words(data, begins) >> (_EIGHT * (_EIGHT - np.maximum(counts, np.uint64(1))))
    return pa.array(np.where(counts == 0, np.uint64(0), words))


def _read_below(data: Bytes, codes: Bytes, begins: Offsets, ends: Offsets) -> pa.Array:
    del codes
    unused = _EIGHT * (_EIGHT - (ends - begins).astype(np.uint64))
    words = _words(data, begins) >> unused
    most = ~np.uint64(0) >> unused
    return pa.array((words - most).view(np.int64))


def _read_doubles(data: Bytes, codes: Bytes, begins: Offsets, ends: Offsets) -> pa.Array:
    del codes, ends
    words = _words(data, begins)
    return pa.array(np.where(words & _SIGN, words ^ _SIGN, ~words).view(np.float64))


def _read_booleans(data: Bytes, codes: Bytes, begins: Offsets, ends: Offsets) -> pa.Array:
    del data, begins, ends
    return pa.array(codes == TRUE)


def _codes(*codes: int) -> Flags:
    flags = np.zeros(256, bool)
    flags[list(codes)] = True
    return flags


_READERS = (
    (_codes(BINARY), _read_bytes),
    (_codes(TEXT), _read_text),
    (_codes(*range(ZERO, ZERO + WORD + 1)), _read_above),
    (_codes(*range(ZERO - WORD, ZERO)), _read_below),
    (_codes(DOUBLE), _read_doubles),
    (_codes(FALSE, TRUE), _read_booleans),
)


def _any(array: pa.Array) -> bool:
    return bool(array.null_count < len(array))


def _valid(array: pa.Array) -> Flags:
    flags: Flags = array.is_valid().to_numpy(zero_copy_only=False)
    return flags
