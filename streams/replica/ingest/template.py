"""Reads messages of one layout, with the same members in the same order, without a parser.

A producer prints its records alike: they differ in some strings and whole numbers, and all
other bytes are the same. The first message of a batch is divided by `scan` into *constants* and
the *slots* between them:

    {"auction":  1000  ,"channel":"  Baidu  ","extra":"  fptr  "}

Then it is proved for all other messages together that each consists of these constants with
other slots between them. There is no backslash and no control character in the batch, so every
`"` begins or ends a string. A message has as many of them as the constants together, each
constant is found where its first one is, and they lie one behind the other, from the message's
first byte to its last. So no slot has a `"`; one between quotes is a string, because the texts
are UTF-8, and the others are checked to be whole numbers. Replacing strings by strings and
numbers by numbers in a JSON document gives a JSON document with the same names.

Invariant: the result equals that of `decode_one.read` for each message, or is None.

Cost: a third to a half of what parsing takes: a search for quotes, which is half of it, a
comparison of each constant, and some thirty instructions for eight digits.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streams.replica.ingest.fields import Field
from streams.replica.ingest.scan import Malformed, members
from streams.trace.columns import Ints

Bytes = npt.NDArray[np.uint8]

ENOUGH = 400
"""Minimum of messages for which making a template pays off."""
LOT_BYTES = 1 << 20
"""Bytes that are read together: as much as stays in the processor's cache."""

QUOTE, BACKSLASH, SPACE, MINUS = b'"\\ -'
WORD = 8
LONGEST = 18
"""Number of digits that surely fits 64 bits."""
WHOLE = re.compile(rf"-?(?:0|[1-9][0-9]{{0,{LONGEST - 1}}})")
POWERS = 10 ** np.arange(LONGEST + 1, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Slot:
    """The part that differs between messages: the value of a member."""

    name: str
    kind: Literal["string", "number"]

    def gives(self, field: Field) -> bool:
        """Whether its values have the parsed type of a field."""
        if field.parsed is None:
            return False
        if pa.types.is_integer(field.parsed):
            return True  # a string may hold a number
        return self.kind == "string" and bool(pa.types.is_string(field.parsed))


@dataclass(frozen=True, slots=True)
class Template:
    """The common part of messages: a constant before each slot, and one at the end.

    `booleans` are the names of members that are true or false, equal in all messages.
    """

    constants: tuple[bytes, ...]
    slots: tuple[Slot, ...]
    booleans: frozenset[str]

    def slot_of(self, field: Field) -> int | None:
        """Return the slot with a field's values; None if they are NULL.

        Errors: KeyError if they are not in a slot.
        """
        if field.name in self.booleans:
            raise KeyError(field.name)
        for number, slot in enumerate(self.slots):
            if slot.name == field.name:
                if not slot.gives(field):
                    raise KeyError(field.name)
                return number
        return None


def template_of(message: bytes) -> Template | None:
    """Return a template for messages like this one; None if one is unlikely to work."""
    try:
        pairs = members(message.decode())
    except (Malformed, UnicodeDecodeError):
        return None
    names = [name for name, _ in pairs]
    if b"\\" in message or len(set(names)) < len(names):
        return None
    constants, slots, at, done = [], [], 0, 0
    for name, token in pairs:
        at = message.index(b'"', at) + len(name.encode()) + 2
        value = token.text.encode()
        at = message.index(value, at)
        if token.kind == "string":
            constants.append(message[done : at + 1])
            done = at + len(value) - 1
            slots.append(Slot(name, "string"))
        elif token.kind == "number" and WHOLE.fullmatch(token.text):
            constants.append(message[done:at])
            done = at + len(value)
            slots.append(Slot(name, "number"))
        elif token.kind not in {"boolean", "null"}:
            return None
        at += len(value)
    constants.append(message[done:])
    booleans = frozenset(name for name, token in pairs if token.kind == "boolean")
    return Template(tuple(constants), tuple(slots), booleans)


def read(texts: pa.Array, fields: Sequence[Field]) -> pa.Table | None:
    """Return a column for each of the fields, or None if the messages are not of one layout.

    Shape: `texts` is binary in UTF-8, without NULLs, and not empty; every field has a parsed
    type, which is the type of its column.
    """
    template = template_of(texts[0].as_py())
    if template is None or not template.slots:
        return None
    try:
        wanted = [template.slot_of(field) for field in fields]
    except KeyError:
        return None
    lot = max(LOT_BYTES * len(texts) // _Texts.of(texts).buffer.size, ENOUGH)
    tables = []
    for start in range(0, len(texts), lot):
        table = _lot(_Texts.of(texts.slice(start, lot)), template, fields, wanted)
        if table is None:
            return None
        tables.append(table)
    return pa.concat_tables(tables).combine_chunks()


def _lot(
    texts: "_Texts", template: Template, fields: Sequence[Field], wanted: Sequence[int | None]
) -> pa.Table | None:
    bounds = _bounds(texts, template)
    if bounds is None:
        return None
    columns: dict[int | None, pa.Array] = {}
    kinds = {slot: field.parsed for slot, field in zip(wanted, fields, strict=True)}
    for number, slot in enumerate(template.slots):
        kind = kinds.get(number)
        if slot.kind == "number" or (kind is not None and pa.types.is_integer(kind)):
            values = _numbers(texts, *bounds[number])
            column = None if values is None else _typed(values, kind or pa.int64())
            if column is None:
                return None
            columns[number] = column
        elif kind is not None:
            columns[number] = between(texts.buffer, *bounds[number]).view(pa.string())
    arrays = [
        pa.nulls(len(texts.begins), field.parsed) if slot is None else columns[slot]
        for slot, field in zip(wanted, fields, strict=True)
    ]
    return pa.table(arrays, names=[field.name for field in fields])


def between(buffer: pa.Buffer, begins: Ints, ends: Ints) -> pa.Array:
    """The bytes of [begins[i], ends[i]) as binary; the ranges ascend and are disjoint."""
    # What lies between two ranges is a value too, and left behind: it is copied by no one.
    offsets = np.empty(2 * len(begins), np.int32)
    offsets[::2], offsets[1::2] = begins, ends
    all_of_them = pa.BinaryArray.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), buffer]
    )
    return all_of_them.take(pa.array(np.arange(0, len(offsets), 2)))


@dataclass(frozen=True, slots=True)
class _Texts:
    """The bytes of all messages, with the begin and end of each."""

    buffer: pa.Buffer
    data: Bytes
    begins: Ints
    ends: Ints

    @staticmethod
    def of(texts: pa.Array) -> "_Texts":
        offsets = np.frombuffer(texts.buffers()[1], np.int32)
        places = offsets[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
        first, size = int(places[0]), int(places[-1] - places[0])
        buffer = texts.buffers()[2].slice(first, size)
        places -= first
        return _Texts(buffer, np.frombuffer(buffer, np.uint8), places[:-1], places[1:])

    def at(self, places: Ints, size: int) -> npt.NDArray[np.void]:
        """Return `size` bytes from each position on, end to end."""
        room = len(self.data) - size + 1
        view = np.ndarray((room,), f"V{size}", self.data, strides=(1,))
        selected: npt.NDArray[np.void] = view[places]
        return selected


def _bounds(texts: _Texts, template: Template) -> list[tuple[Ints, Ints]] | None:
    """Return where each slot begins and ends in each message; None if the layout differs."""
    data, constants = texts.data, template.constants
    if len(data) < WORD or data.min() < SPACE or (data == BACKSLASH).any():
        return None
    quotes_per_message = sum(constant.count(b'"') for constant in constants)
    quote_places = np.flatnonzero(data == QUOTE)
    if len(quote_places) != quotes_per_message * len(texts.begins):
        return None
    quotes = quote_places.reshape(-1, quotes_per_message)
    bounds, done, at = [], texts.begins, 0
    for constant in constants:
        first = constant.find(b'"')
        begin = texts.ends - len(constant) if first < 0 else quotes[:, at] - first
        end = begin + len(constant)
        if (begin < done).any() or (end > texts.ends).any():
            return None
        if texts.at(begin, len(constant)).tobytes() != constant * len(begin):
            return None
        bounds.append((done, begin))
        done, at = end, at + constant.count(b'"')
    # The first constant has nothing before it, the last one nothing behind.
    before, *slots = bounds
    return slots if (before[1] == texts.begins).all() and (done == texts.ends).all() else None


def _numbers(texts: _Texts, begins: Ints, ends: Ints) -> Ints | None:
    """Return the whole numbers of a slot; None if one is not a number, or is too large."""
    if (begins >= ends).any():
        return None
    negative = texts.data[begins] == MINUS
    widths = ends - begins - negative
    longest = int(widths.max())
    if widths.min() < 1 or longest > LONGEST:
        return None
    values = np.zeros(len(widths), np.int64)
    for done in range(0, longest, WORD):
        part = _eight_digits(texts, ends - done, widths - done)
        if part is None:
            return None
        values += part * POWERS[done]
    if ((values < POWERS[widths - 1]) & (widths > 1)).any():
        return None  # a number does not begin with 0
    return np.where(negative, -values, values) if negative.any() else values


def _eight_digits(texts: _Texts, ends: Ints, widths: Ints) -> Ints | None:
    """Return the number in the last 8 of `widths` digits that end at a position; 0 for none.

    Source: D. Lemire, "Quickly parsing eight digits" (2018), for the products that add up
    neighbours.
    """
    places = ends - WORD
    words = texts.at(np.maximum(places, 0), WORD).view("<u8")
    early = int(np.searchsorted(places, 0))
    words[:early] <<= (-8 * places[:early]).astype(np.uint64)
    unused = 8 * (WORD - np.clip(widths, 0, WORD)).astype(np.uint64)
    digits = (words ^ np.uint64(0x3030303030303030)) >> unused << unused
    over = digits | (digits + np.uint64(0x0606060606060606))
    if (over & np.uint64(0xF0F0F0F0F0F0F0F0)).any():
        return None
    digits = (digits * np.uint64(10 * 2**8 + 1)) >> np.uint64(8)
    digits &= np.uint64(0x00FF00FF00FF00FF)
    digits = (digits * np.uint64(100 * 2**16 + 1)) >> np.uint64(16)
    digits &= np.uint64(0x0000FFFF0000FFFF)
    digits = (digits * np.uint64(10_000 * 2**32 + 1)) >> np.uint64(32)
    return digits.view(np.int64)


def _typed(values: Ints, kind: pa.DataType) -> pa.Array | None:
    """Return the numbers in a type; None if one does not fit."""
    limits = np.iinfo(kind.to_pandas_dtype())
    if values.min() < limits.min or values.max() > limits.max:
        return None
    return pa.array(values).cast(kind)
