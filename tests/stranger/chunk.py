"""Chunks that a client writes beforehand, as a stranger makes and opens them from the page.

The sections are "UpdateAndDowngrade" of part 2, and 4.6, of `schemas/CLIENTS.md`.
"""

import re
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tests.stranger.values import Record

COLUMNS = ["data", "time", "diff", "error"]
BEST = 900 << 10  # bytes of a chunk
UNPACKED = 256 << 20
RECORD = 8 << 20  # bytes of a record with its key and its headers, and of a command
MOST_BATCHES = 4096
MOST_DIFF = 1 << 53
UUID = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def written(rows: pa.Table, codec: str | None = "lz4") -> Iterator[tuple[bytes, int]]:
    """The chunks of a collection's rows, each with the number of its rows.

    `rows` has the columns of the collection in order, then time and diff.
    """
    names = rows.schema.names[:-2]
    data = pa.struct([rows.schema.field(name) for name in names])
    kinds = [("data", data), ("time", pa.int64()), ("diff", pa.int64()), ("error", pa.utf8())]
    schema = pa.schema(kinds)
    at_once = max(1, rows.num_rows * BEST // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, at_once):
        (batch,) = rows.slice(start, at_once).combine_chunks().to_batches()
        columns = [batch.column(name) for name in names]
        struct = pa.StructArray.from_arrays(columns, fields=list(data))
        absent = pa.nulls(batch.num_rows, pa.utf8())
        sheet = [struct, batch.column("time"), batch.column("diff"), absent]
        body = packed(pa.record_batch(sheet, schema=schema), codec)
        check(body, batch.num_rows)
        yield body, batch.num_rows


def packed(batch: pa.RecordBatch, codec: str | None) -> bytes:
    """An Arrow IPC stream; its buffers are as they are, or compressed with LZ4 or zstd."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def headers(group: str, collection: str, body: bytes, rows: int) -> list[tuple[str, bytes]]:
    """The headers of a chunk's record; each of them is there once."""
    texts = {
        "group": group,
        "collection": collection,
        "rows": str(rows),
        "crc32": f"{zlib.crc32(body):08x}",
    }
    return [(name, text.encode()) for name, text in texts.items()]


def check(body: bytes, rows: int) -> None:
    """The body counts if it is linked; it fails here, not at the service."""
    table = opened(body)
    assert len(body) < RECORD
    assert table.nbytes <= UNPACKED
    assert table.num_rows == rows
    assert table.column("data").null_count == 0, "a row is NULL"
    assert table.column("error").null_count == rows, "only the system writes errors"
    diffs = table.column("diff").to_pylist()
    assert all(abs(diff) <= MOST_DIFF for diff in diffs)


def check_references(refs: list[Record]) -> None:
    """The references of a command: a set, each with the text of a UUID for a key."""
    assert len({(ref["partition"], ref["offset"]) for ref in refs}) == len(refs)
    assert len({ref["key"] for ref in refs}) == len(refs)
    assert all(UUID.fullmatch(ref["key"]) for ref in refs)


def opened(body: bytes) -> pa.Table:
    """The rows of a chunk: data, time, diff, error. Every value is validated."""
    with pa.ipc.open_stream(body) as reader:
        batches = list(reader)
        schema = reader.schema
    assert schema.names == COLUMNS, schema
    assert len(batches) <= MOST_BATCHES
    table = pa.Table.from_batches(batches, schema)
    table.validate(full=True)
    assert table.column("time").null_count == table.column("diff").null_count == 0
    return table


def same_types(tables: list[pa.Table]) -> pa.Table | None:
    """One table of what several clients wrote: what is nullable, and zones, say nothing."""
    if not tables:
        return None
    kind = plain(tables[0].schema.field("data").type)
    parts = []
    for table in tables:
        columns: list[Any] = [as_plain(table.column("data"), kind)]
        columns += [table.column(name) for name in COLUMNS[1:]]
        parts.append(pa.table(columns, names=COLUMNS))
    return pa.concat_tables(parts)


def as_plain(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column whose type differs from another in words alone, which are dropped."""
    assert plain(column.type) == kind, column.type
    return column if column.type == kind else column.cast(kind)


def plain(kind: pa.DataType) -> pa.DataType:
    """A type without the words that say nothing."""
    if isinstance(kind, pa.StructType):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in kind])
    if isinstance(kind, pa.FixedSizeListType):
        return pa.list_(pa.field("item", plain(kind.value_type)), kind.list_size)
    if isinstance(kind, pa.ListType):
        return pa.list_(pa.field("item", plain(kind.value_type)))
    if isinstance(kind, pa.MapType):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if isinstance(kind, pa.TimestampType) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return kind
