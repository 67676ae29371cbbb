"""Chunks and streams as other clients may write them: unsound, too large, of other types."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from schemas import chunk


def stream(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    """One record batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def strings(offsets: Sequence[int], data: bytes) -> pa.Array:
    """Text with these offsets into these bytes, whatever they are."""
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.utf8(), len(offsets) - 1, buffers)


def outside() -> pa.Array:
    """Two texts, of which the first ends a gigabyte behind the data."""
    return strings([0, 1 << 30, 2], b"ab")


def not_utf8() -> pa.Array:
    """Two texts, of bytes that are none."""
    return strings([0, 1, 2], b"\xff\xfe")


def chunk_of(
    columns: Sequence[pa.Array],
    names: Sequence[str],
    times: Sequence[int],
    diffs: Sequence[int] | None = None,
    compression: str | None = "lz4",
) -> bytes:
    """A chunk of one sheet."""
    rows = len(times)
    fields = [pa.field(n, c.type) for n, c in zip(names, columns, strict=True)]
    sheet = pa.RecordBatch.from_arrays(
        [
            pa.StructArray.from_arrays(list(columns), fields=fields),
            pa.array(times, pa.int64()),
            pa.array([1] * rows if diffs is None else diffs, pa.int64()),
            pa.nulls(rows, pa.utf8()),
        ],
        names=list(chunk.COLUMNS),
    )
    return stream(sheet, compression)
