"""Codec of arena slices, many at a time.

Source: Protocol Buffers, "Encoding": base 128 varints, submessages; a field that is 0 is left
out.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from schemas.blobs import Offsets
from schemas.flow_pb2 import Slice

Bytes = NDArray[np.uint8]

BEGIN, END = 0x08, 0x10
"""The tags of the fields of a Slice."""
LENGTH_DELIMITED = 2
VARINT = 5
"""The longest of 32 bits has so many bytes."""
MORE = 0x80
SEVEN, LOW = 7, 0x7F
TOKENS = 6
"""The bytes of a slice: tag, length, tag, begin, tag, end."""


def tag_of(number: int) -> int:
    """The byte before each slice of a field."""
    return number << 3 | LENGTH_DELIMITED


def encode(number: int, begins: Offsets, ends: Offsets) -> bytes:
    """A repeated field of slices."""
    parts = [_field(BEGIN, begins), _field(END, ends)]
    body = np.concatenate([data for data, _ in parts], axis=1)
    mask = np.concatenate([mask for _, mask in parts], axis=1)
    head = np.empty((len(begins), 2), np.uint8)
    head[:, 0], head[:, 1] = tag_of(number), mask.sum(axis=1)
    rows = np.concatenate((head, body), axis=1)
    every = np.concatenate((np.ones(head.shape, bool), mask), axis=1)
    encoded: bytes = rows[every].tobytes()
    return encoded


def _field(tag: int, values: Offsets) -> tuple[Bytes, NDArray[np.bool_]]:
    """A tag and a varint of each row, and which of their bytes are there."""
    groups = values[:, None] >> (SEVEN * np.arange(VARINT))
    more = groups >= MORE
    data = np.empty((len(values), 1 + VARINT), np.uint8)
    data[:, 0] = tag
    data[:, 1:] = groups & LOW | MORE * more
    mask = np.concatenate((values[:, None], groups), axis=1) > 0
    return data, mask


def decode(message: Message, *names: str) -> Iterator[tuple[Offsets, Offsets]]:
    """The begins and ends of fields of slices."""
    alone = type(message)()
    alone.CopyFrom(message)
    for field, _ in message.ListFields():
        if field.name not in names:
            alone.ClearField(field.name)
    read = _decode(alone.SerializeToString())
    for name in names:
        if read is None:
            yield one_by_one(getattr(message, name))
        else:
            tags, begins, ends = read
            rows = tags == tag_of(message.DESCRIPTOR.fields_by_name[name].number)
            yield begins[rows], ends[rows]


def one_by_one(slices: Sequence[Slice]) -> tuple[Offsets, Offsets]:
    """Whatever there is beside the two fields."""
    pairs = np.array([(part.begin, part.end) for part in slices], np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _decode(data: bytes) -> tuple[Offsets, Offsets, Offsets] | None:
    """Tags, begins and ends; None unless each slice has the common form.

    Which is: all fields but the begin of the first slice, which is 0, are there, in order.
    """
    tokens, sizes = _varints(np.frombuffer(data, np.uint8))
    if len(tokens) > 2 and tokens[2] == END:  # noqa: PLR2004 behind tag and length
        tokens, sizes = np.insert(tokens, 2, (BEGIN, 0)), np.insert(sizes, 2, (0, 0))
    if len(tokens) % TOKENS:
        return None
    rows, sizes = tokens.reshape(-1, TOKENS), sizes.reshape(-1, TOKENS)
    in_form = (
        (rows[:, 1] == sizes[:, 2:].sum(axis=1))
        & (rows[:, 2] == BEGIN)
        & (rows[:, 4] == END)
        & (sizes.max(axis=1, initial=0) <= VARINT)
    )
    return (rows[:, 0], rows[:, 3], rows[:, 5]) if in_form.all() else None


def _varints(data: Bytes) -> tuple[Offsets, Offsets]:
    """The varints that bytes are a sequence of, and how long each is."""
    lasts = np.flatnonzero(data < MORE)
    sizes = np.diff(lasts, prepend=-1)
    values = data[lasts].astype(np.int64)
    for place in range(1, min(VARINT, int(sizes.max(initial=0)))):
        longer = np.flatnonzero(sizes > place)
        group = data[lasts[longer] - place] & np.uint8(LOW)
        values[longer] = values[longer] << SEVEN | group
    return values, sizes
