"""An Arrow IPC stream that others may have written: measured, then decoded, then validated.

A few kilobytes of zstd decode to gigabytes, and a buffer of offsets that point outside its data
ends the process that reads it. So the sizes that the stream itself declares are added up before
any of it is decompressed, and each record batch is validated in full, down to its UTF-8, before
anything else looks at it. A checksum does not replace this: it says that the bytes are those
that were written, not that they are sound.

Arrow decompresses a buffer into as many bytes as the prefix of the buffer declares, and fails
where the data do not come to exactly that. So the declared sizes bound what is allocated.

Source: Arrow columnar format, "Encapsulated message format" and "RecordBatch message"
(https://arrow.apache.org/docs/format/Columnar.html); Message.fbs, Schema.fbs.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from schemas.soundness import validate
from streams.errors import Corrupt

MOST_BATCHES = 4_096
"""Record batches, and batches of dictionaries, of one stream."""

MOST_ROWS = (1 << 31) - 1
"""Rows of one record batch."""

MOST_DECLARED = 1 << 62
"""More than any stream that is decoded may declare."""

LONGEST_TEXT = 500
"""Characters of a message that hang on what others wrote."""

# Arrow's threads would take the buffers of one slice apart: handing them over costs more than
# the work, four times as much for a chunk of a few rows.
READ = pa.ipc.IpcReadOptions(use_threads=False)

_UNSOUND = (pa.ArrowException, OSError, ValueError, TypeError, LookupError, struct.error)
_CONTINUATION = 0xFFFFFFFF
_DICTIONARY, _BATCH = 2, 3  # MessageHeader of Message.fbs
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3  # fields of Message
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3  # fields of RecordBatch
_DATA = 1  # field of DictionaryBatch

_U16, _I32, _U32, _I64 = (struct.Struct(form) for form in ("<H", "<i", "<I", "<q"))
_FRAME = struct.Struct("<II")


class TooMuch(Corrupt):
    """A stream declares more than it may: bytes when decoded, batches, or rows."""

    def __init__(self, what: str, most: int, actual: int) -> None:
        super().__init__(what, most, actual)
        self.what, self.most, self.actual = what, most, actual

    def __str__(self) -> str:
        return f"arrow stream: expected at most {self.most} {self.what}, actual {self.actual}"


class Stream(NamedTuple):
    """What a stream holds."""

    schema: pa.Schema
    batches: list[pa.RecordBatch]


def read(body: bytes, most_bytes: int) -> Stream:
    """The stream's batches, each valid, none of them decoded unless all fit in `most_bytes`.

    Units: bytes of all buffers when decoded.
    Errors: TooMuch; Corrupt when it is no Arrow stream, or not a sound one.
    """
    try:
        check_size(body, most_bytes)
        with pa.ipc.open_stream(pa.py_buffer(body), options=READ) as reader:
            check_names(reader.schema)
            batches = []
            for batch in reader:
                validate(batch)
                batches.append(batch)
            return Stream(reader.schema, batches)
    except _UNSOUND as cause:
        raise Corrupt(f"expected an arrow stream, actual {brief(str(cause))}") from cause


def check_names(fields: pa.Schema | pa.DataType) -> None:
    """Errors: ValueError for a name that is not UTF-8: Arrow looks at names when asked.

    A time zone is such a name.
    """
    if isinstance(fields, pa.TimestampType):
        str(fields.tz)
    count = len(fields) if isinstance(fields, pa.Schema) else fields.num_fields
    for index in range(count):
        field = fields.field(index)
        assert field.name is not None
        check_names(field.type)


def decoded_bytes(body: bytes) -> int:
    """The bytes of all buffers when decoded, as the stream declares them; nothing is decoded.

    Errors: Corrupt when it is no Arrow stream.
    """
    try:
        return check_size(body, MOST_DECLARED)
    except _UNSOUND as cause:
        raise Corrupt(f"expected an arrow stream, actual {brief(str(cause))}") from cause


def check_size(body: bytes, most_bytes: int) -> int:
    """The bytes of all buffers when decoded.

    Errors: TooMuch; ValueError, struct.error where the frame of the stream is damaged.
    """
    total = count = 0
    for place, start, length in messages(body):
        if (kind := _header_type(body, place)) not in {_DICTIONARY, _BATCH}:
            continue
        count += 1
        if count > MOST_BATCHES:
            raise TooMuch("record batches", MOST_BATCHES, count)
        total += _decoded_bytes(body, _record_batch(body, place, kind), start, length)
        if total > most_bytes:
            raise TooMuch("bytes when decoded", most_bytes, total)
    return total


def messages(body: bytes) -> Iterator[tuple[int, int, int]]:
    """Each message: where its table lies, and where its body begins and how long it is.

    Errors: ValueError, struct.error when the bytes are not framed as a stream is.
    """
    at = 0
    while at < len(body):
        marker, size = _FRAME.unpack_from(body, at)
        if marker != _CONTINUATION:
            raise ValueError("a message without a continuation marker")
        if size == 0:  # the end of the stream
            return
        start = at + _FRAME.size + size
        table = at + _FRAME.size + _U32.unpack_from(body, at + _FRAME.size)[0]
        length = _field(body, table, _BODY_LENGTH, _I64)
        if length < 0 or start + length > len(body):
            raise ValueError(f"a message body of {length} bytes, of which some are missing")
        yield table, start, length
        at = start + length


def _header_type(body: bytes, message: int) -> int:
    place = _place(body, message, _HEADER_TYPE)
    return body[place] if place else 0


def _record_batch(body: bytes, message: int, kind: int) -> int:
    """Where the message's RecordBatch lies."""
    header = _child(body, message, _HEADER)
    return _child(body, header, _DATA) if kind == _DICTIONARY else header


def _decoded_bytes(body: bytes, batch: int, start: int, length: int) -> int:
    """The bytes of a batch's buffers when decoded. Errors: as `check_size`."""
    rows = _field(body, batch, _LENGTH, _I64)
    if not 0 <= rows <= MOST_ROWS:
        raise TooMuch("rows of one record batch", MOST_ROWS, rows)
    if not _place(body, batch, _BUFFERS):
        return 0
    vector = _child(body, batch, _BUFFERS)
    count = _U32.unpack_from(body, vector)[0]
    spans = struct.unpack_from(f"<{2 * count}q", body, vector + _U32.size)
    if min(spans, default=0) < 0:
        raise ValueError("a buffer with a negative offset or length")
    if not _place(body, batch, _COMPRESSION):
        return sum(spans[1::2])
    return sum(
        _declared(body, start, length, offset, size)
        for offset, size in zip(spans[::2], spans[1::2], strict=True)
        if size
    )


def _declared(body: bytes, start: int, length: int, offset: int, size: int) -> int:
    """The decoded size of a compressed buffer, as its first eight bytes declare it."""
    if size < _I64.size or offset + size > length:
        raise ValueError(f"a buffer at {offset} of {size} bytes in a body of {length}")
    declared: int = _I64.unpack_from(body, start + offset)[0]
    if declared < -1:
        raise ValueError(f"a buffer of {declared} bytes")
    return size - _I64.size if declared == -1 else declared  # -1: it is not compressed


def _place(body: bytes, table: int, field: int) -> int:
    """Where a field of a flatbuffer table lies; 0 when it has its default."""
    vtable = table - _I32.unpack_from(body, table)[0]
    at = 4 + 2 * field
    if vtable < 0 or at >= _U16.unpack_from(body, vtable)[0]:
        return 0
    offset: int = _U16.unpack_from(body, vtable + at)[0]
    return table + offset if offset else 0


def _field(body: bytes, table: int, field: int, form: struct.Struct) -> int:
    place = _place(body, table, field)
    value: int = form.unpack_from(body, place)[0] if place else 0
    return value


def _child(body: bytes, table: int, field: int) -> int:
    """Where the table or vector that a field refers to lies. Errors: ValueError without it."""
    place = _place(body, table, field)
    if not place:
        raise ValueError("a message without its header")
    child: int = place + _U32.unpack_from(body, place)[0]
    return child


def brief(text: str) -> str:
    """The text, cut to a length that fits into any answer: others may have made it."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
