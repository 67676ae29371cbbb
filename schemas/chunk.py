"""A chunk: updates of one collection as an Arrow IPC stream with lz4 bodies.

On the wire a row is `data: struct<the collection's columns>`, `time: int64`, `diff: int64`,
`error: utf8`. A row whose `error` is null is an update of the contents; one whose `error` is
not null is an update of the collection's errors, and its `data` is null. The struct keeps the
user's column names from colliding with ours; the columns inside carry DuckDB's Arrow types,
extension types with their storage and metadata (UUID, JSON, HUGEINT, ...).

In the engine the contents have columns `c0 .. cn, time, diff`, the errors `error, time, diff`.
`encode` and `decode` are the only code between the two forms; both move columns, not rows, and
`decode` copies none that lz4 does not make it copy. All readers come through `decode`, which
validates what it opens (`schemas.stream`), so a damaged chunk is an error of its own and never
ends a process.

Time zones are names for the same instants, and nested fields may or may not be marked as
nullable: `decode` hands out one type whatever the writer chose (`uniform`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from schemas import stream
from schemas.relabelled import relabelled
from streams.errors import Corrupt

LIMIT = 900 * 1024
"""Bytes of a chunk that we do not exceed unless a single slice does."""

LARGEST = (8 << 20) - 4096
"""Bytes of a chunk that fit a record of a data topic, beside its key and headers."""

SLICE = 128 * 1024
"""Bytes, before compression, that are written in one go."""

MOST_BYTES = 2 << 30
"""Bytes of a chunk when decoded: about what LZ4 can make of the largest record."""

# Arrow's threads cost more than they save here (`schemas.stream`).
OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)

COLUMNS = ("data", "time", "diff", "error")
QUICK = (1,)
"""Levels of zstd at which a row is tried that does not fit as lz4: what a writer waits for."""

THOROUGH = (1, 9, 19, 22)
"""The same where a row was a chunk once, and has to be one again, however long that takes."""

ERRORS = pa.schema([("error", pa.utf8()), ("time", pa.int64()), ("diff", pa.int64())])


def encode(
    updates: pa.Table,
    names: Sequence[str],
    errors: pa.Table | None = None,
    levels: Sequence[int] = QUICK,
) -> list[tuple[bytes, int]]:
    """Chunks that hold the given updates and errors, each with the number of its rows.

    Shape: `updates` has columns c0 .. cn, time, diff; `names` are the user's names of c0 .. cn.
    No rows make no chunk.
    """
    types = [updates.schema.field(index).type for index in range(len(names))]
    fields = [pa.field(name, type_) for name, type_ in zip(names, types, strict=True)]
    schema = wire_schema(pa.struct(fields))
    sheets = [wire_updates(batch, schema) for batch in updates.to_batches() if batch.num_rows]
    if errors is not None:
        whole = errors.select(["error", "time", "diff"])
        sheets += [wire_errors(batch, schema) for batch in whole.to_batches() if batch.num_rows]
    return list(pack(sheets, schema, levels))


def wire_schema(data: pa.DataType) -> pa.Schema:
    """The schema of a chunk's stream."""
    return pa.schema(
        [
            pa.field("data", data),
            pa.field("time", pa.int64(), nullable=False),
            pa.field("diff", pa.int64(), nullable=False),
            pa.field("error", pa.utf8()),
        ]
    )


def wire_updates(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Contents in the form of the wire."""
    struct = schema.field("data").type
    fields = [struct.field(index) for index in range(struct.num_fields)]
    data = pa.StructArray.from_arrays(batch.columns[: len(fields)], fields=fields)
    absent = pa.nulls(batch.num_rows, pa.utf8())
    columns = [data, batch.column("time"), batch.column("diff"), absent]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def wire_errors(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Errors in the form of the wire."""
    data = pa.nulls(batch.num_rows, schema.field("data").type)
    columns = [data, batch.column("time"), batch.column("diff"), batch.column("error")]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def pack(
    sheets: Sequence[pa.RecordBatch], schema: pa.Schema, levels: Sequence[int] = QUICK
) -> Iterator[tuple[bytes, int]]:
    """Streams of at most about `LIMIT` bytes each."""
    chunk = Open.start(schema, levels)
    for piece in (piece for sheet in sheets for piece in slices(sheet)):
        if chunk.pieces and chunk.sink.tell() + piece.nbytes > LIMIT:
            yield chunk.close()
            chunk = Open.start(schema, levels)
        chunk.add(piece)
    if chunk.pieces:
        yield chunk.close()


def slices(sheet: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The sheet in slices of about `SLICE` bytes."""
    rows = max(1, sheet.num_rows * SLICE // max(1, sheet.nbytes))
    for start in range(0, sheet.num_rows, rows):
        yield from halves(sheet.slice(start, rows))


def halves(piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The piece cut until no part is too large: rows may differ in size by any factor."""
    if piece.num_rows <= 1 or piece.nbytes <= LIMIT:
        yield piece
        return
    middle = piece.num_rows // 2
    yield from halves(piece.slice(0, middle))
    yield from halves(piece.slice(middle))


@dataclass(slots=True)
class Open:
    """A chunk that is being written."""

    sink: pa.BufferOutputStream
    writer: pa.ipc.RecordBatchStreamWriter
    levels: Sequence[int]
    pieces: list[pa.RecordBatch] = field(default_factory=list)

    @staticmethod
    def start(schema: pa.Schema, levels: Sequence[int]) -> "Open":
        """A chunk without rows."""
        sink = pa.BufferOutputStream()
        return Open(sink, pa.ipc.new_stream(sink, schema, options=OPTIONS), levels)

    def add(self, piece: pa.RecordBatch) -> None:
        """Write a piece."""
        self.writer.write_batch(piece)
        self.pieces.append(piece)

    def close(self) -> tuple[bytes, int]:
        """The chunk's bytes and the number of its rows."""
        self.writer.close()
        body = self.sink.getvalue().to_pybytes()
        if len(body) > LARGEST:
            body = next(smaller(self.pieces, self.levels), body)
        return body, sum(piece.num_rows for piece in self.pieces)


def smaller(pieces: Sequence[pa.RecordBatch], levels: Sequence[int]) -> Iterator[bytes]:
    """The stream compressed as well as it takes to fit a record; none when it does not.

    A row cannot be cut. The client that wrote it beforehand may have chosen zstd, at any level;
    so what was a chunk once can be written again.
    """
    for level in levels:
        codec = pa.Codec("zstd", compression_level=level)
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
        with pa.ipc.new_stream(sink, pieces[0].schema, options=options) as writer:
            for piece in pieces:
                writer.write_batch(piece)
        body: bytes = sink.getvalue().to_pybytes()
        if len(body) <= LARGEST:
            yield body


def decode(body: bytes) -> tuple[pa.Table, pa.Table]:
    """The contents (c0 .. cn, time, diff) and the errors (error, time, diff) of a chunk.

    Errors: Corrupt when the bytes are no sound chunk; the caller knows where it lay and adds
    that.
    """
    schema, sheets = opened(body, MOST_BYTES)
    contents = contents_schema(schema.field("data").type)
    updates = [part for sheet in sheets for part in engine_updates(sheet, contents)]
    errors = [part for sheet in sheets for part in engine_errors(sheet)]
    return (
        pa.Table.from_batches(updates, schema=contents),
        pa.Table.from_batches(errors, schema=ERRORS),
    )


def opened(body: bytes, most_bytes: int) -> stream.Stream:
    """The sheets of a chunk, which have the four columns in their types.

    Errors: Corrupt; stream.TooMuch when it decodes to more than `most_bytes`.
    """
    try:
        decoded = stream.read(body, most_bytes)
    except stream.TooMuch:
        raise
    except Corrupt as cause:
        raise Corrupt(f"chunk: {cause}") from cause
    check_types(decoded.schema)
    for sheet in decoded.batches:
        if sheet.column("time").null_count or sheet.column("diff").null_count:
            raise Corrupt("chunk: expected no NULL in time and diff, actual one or more")
    return decoded


def check_types(schema: pa.Schema) -> None:
    """Errors: Corrupt when the columns are not those of a chunk."""
    if tuple(schema.names) != COLUMNS:
        raise Corrupt(
            f"chunk: expected columns {', '.join(COLUMNS)}, actual {names_text(schema)}"
        )
    data, *others = schema.types
    expected = [pa.int64(), pa.int64(), pa.utf8()]
    if not pa.types.is_struct(data) or others != expected:
        raise Corrupt(
            "chunk: expected a struct, int64, int64 and string in columns"
            f" {', '.join(COLUMNS)}, actual {names_text(schema)}"
        )


def names_text(schema: pa.Schema) -> str:
    """The columns and their types, for a message."""
    return stream.brief(", ".join(f"{field.name} {field.type}" for field in schema))


def contents_schema(data: pa.StructType) -> pa.Schema:
    """The engine's schema of a collection whose rows are this struct."""
    types = [uniform(data.field(index).type) for index in range(data.num_fields)]
    fields = [pa.field(f"c{index}", type_) for index, type_ in enumerate(types)]
    return pa.schema([*fields, ("time", pa.int64()), ("diff", pa.int64())])


@lru_cache(maxsize=4096)
def uniform(kind: pa.DataType) -> pa.DataType:
    """The type with nullable fields inside, and with UTC for any time zone."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_nullable(kind.value_field), kind.list_size)
    if pa.types.is_map(kind):
        key = kind.key_field.with_type(uniform(kind.key_type))
        return pa.map_(key, _nullable(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_nullable(field) for field in kind.fields])
    return kind


def _nullable(field: pa.Field) -> pa.Field:
    return field.with_type(uniform(field.type)).with_nullable(nullable=True)


def engine_updates(sheet: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of contents of one sheet."""
    error = sheet.column("error")
    if error.null_count == 0 and sheet.num_rows:
        return
    rows = sheet if error.null_count == sheet.num_rows else sheet.filter(error.is_null())
    data = rows.column("data")
    columns = [
        relabelled(data.field(index), schema.field(index).type)
        for index in range(data.type.num_fields)
    ]
    yield pa.RecordBatch.from_arrays(
        [*columns, rows.column("time"), rows.column("diff")], schema=schema
    )


def engine_errors(sheet: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The error rows of one sheet."""
    error = sheet.column("error")
    if error.null_count == sheet.num_rows:
        return
    rows = sheet if error.null_count == 0 else sheet.filter(error.is_valid())
    yield rows.select(["error", "time", "diff"]).cast(ERRORS)
