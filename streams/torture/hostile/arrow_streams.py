"""Malformed Arrow streams: offsets beyond their data, wrong types, bombs, odd batches. Pure.

The rows are those of `COLUMNS`: a text and a number. An inline stream has them beside `time`
and `diff`; a chunk has them in the struct `data`, and `error`.
"""

import zlib
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pyarrow as pa

from streams.torture.hostile.mutations import INTEGERS, TEXTS, mutated

COLUMNS = (("writer", "VARCHAR"), ("number", "BIGINT"))
CODECS = (None, "lz4", "zstd")
BOMB_BYTES = 1 << 26
MOST_ROWS = 20
ALLOWED = 0.3
LARGEST_DIFF = 1 << 53
Row = tuple[str, int, int, int]


def _texts(rng: Random, rows: int) -> pa.Array:
    return pa.array([f"w{rng.randrange(5)}" for _ in range(rows)], pa.utf8())


def _offsets_outside(rng: Random, rows: int) -> pa.Array:
    """Strings whose offsets point outside their data."""
    middle = [rng.choice((0, 4, 1 << 30, -5)) for _ in range(max(0, rows - 1))]
    ends = [0, *middle, 4] if rows else [0]  # Arrow's writer looks at the first and the last
    offsets = np.array(ends, np.int32)
    return pa.Array.from_buffers(
        pa.utf8(), rows, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"abcd")]
    )


def _not_utf8(rng: Random, rows: int) -> pa.Array:
    body = rng.randbytes(rows) or b"\xff"
    offsets = np.arange(rows + 1, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.utf8(), rows, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(body)]
    )


def _dictionary(rng: Random, rows: int) -> pa.Array:
    return _texts(rng, rows).dictionary_encode()


def _indices_outside(_: Random, rows: int) -> pa.Array:
    indices = pa.array([7] * rows, pa.int8())
    return pa.DictionaryArray.from_arrays(indices, pa.array(["x"]), safe=False)


def _large(rng: Random, rows: int) -> pa.Array:
    return _texts(rng, rows).cast(pa.large_utf8())


def _nested(_: Random, rows: int) -> pa.Array:
    return pa.array([[{"a": 1}]] * rows)


def _nothing(_: Random, rows: int) -> pa.Array:
    return pa.nulls(rows)


_TEXT_COLUMNS: Sequence[Callable[[Random, int], pa.Array]] = (
    _texts,
    _texts,
    _offsets_outside,
    _not_utf8,
    _dictionary,
    _indices_outside,
    _large,
    _nested,
    _nothing,
)


def _numbers(rng: Random, rows: int) -> pa.Array:
    values = [rng.choice(INTEGERS) for _ in range(rows)]
    type_ = rng.choice((pa.int64(), pa.int64(), pa.float64()))
    return pa.array(values, pa.int64()).cast(type_, safe=False)


def _times(rng: Random, rows: int, time: int) -> pa.Array:
    values = [rng.choice((time, time, time, -1, *INTEGERS)) for _ in range(rows)]
    return pa.array(values, pa.int64())


def allowed(rng: Random, time: int) -> list[Row]:
    """Rows that are allowed, at the ends of their types."""
    diffs = (1, -1, LARGEST_DIFF, -LARGEST_DIFF)
    return [
        (rng.choice(TEXTS), rng.choice(INTEGERS), time, rng.choice(diffs))
        for _ in range(rng.randint(1, MOST_ROWS))
    ]


def inline(rng: Random, time: int) -> bytes:
    """A stream as a command carries it, with rows mostly at `time`."""
    if rng.random() < ALLOWED:
        return sound(allowed(rng, time))
    rows = rng.randrange(MOST_ROWS)
    columns = [
        rng.choice(_TEXT_COLUMNS)(rng, rows),
        _numbers(rng, rows),
        _times(rng, rows, time),
        pa.array([rng.choice(INTEGERS) for _ in range(rows)], pa.int64()),
    ]
    names = ["writer", "number", "time", "diff"]
    if rng.random() < 0.2:  # noqa: PLR2004  now and then other columns
        rng.shuffle(names)
    if rng.random() < 0.1:  # noqa: PLR2004  or fewer
        names, columns = names[:-1], columns[:-1]
    batch = pa.RecordBatch.from_arrays(columns, names=names)
    return _perhaps_mutated(rng, stream(batch, rng.choice(CODECS)))


def chunk(rng: Random, time: int) -> tuple[bytes, int]:
    """A chunk's value, and the number of rows it may claim."""
    if rng.random() < ALLOWED:
        sound = allowed(rng, time)
        return sound_chunk(sound, rng.choice(CODECS)), len(sound)
    rows = rng.randrange(MOST_ROWS)
    data = pa.StructArray.from_arrays(
        [rng.choice(_TEXT_COLUMNS)(rng, rows), _numbers(rng, rows)],
        names=rng.choice((["writer", "number"], ["writer", "number"], ["c1", "c0"])),
    )
    columns = [
        data,
        _times(rng, rows, time),
        pa.array([rng.choice(INTEGERS) for _ in range(rows)], pa.int64()),
        pa.array([rng.choice((None, None, "error")) for _ in range(rows)], pa.utf8()),
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=["data", "time", "diff", "error"])
    return _perhaps_mutated(rng, stream(batch, rng.choice(CODECS))), rows


def sound(rows: Sequence[Row]) -> bytes:
    """A stream as an honest command carries it: rows of writer, number, time, diff."""
    batch = pa.RecordBatch.from_arrays(
        _columns(rows), names=["writer", "number", "time", "diff"]
    )
    return stream(batch, None)


def sound_chunk(rows: Sequence[Row], codec: str | None) -> bytes:
    """A chunk's value as an honest client writes it."""
    writers, numbers, times, diffs = _columns(rows)
    data = pa.StructArray.from_arrays([writers, numbers], names=["writer", "number"])
    errors = pa.nulls(len(rows), pa.utf8())
    names = ["data", "time", "diff", "error"]
    return stream(pa.RecordBatch.from_arrays([data, times, diffs, errors], names=names), codec)


def _columns(rows: Sequence[Row]) -> list[pa.Array]:
    types = (pa.utf8(), pa.int64(), pa.int64(), pa.int64())
    return [
        pa.array(values, type_)
        for values, type_ in zip(zip(*rows, strict=True), types, strict=True)
    ]


def bomb(time: int) -> bytes:
    """A small stream that decompresses to some 200 MiB."""
    rows = BOMB_BYTES // 8
    zeros = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(bytes(BOMB_BYTES))])
    texts = pa.Array.from_buffers(
        pa.utf8(), rows, [None, pa.py_buffer(bytes(4 * (rows + 1))), pa.py_buffer(b"")]
    )
    times = pa.array(np.full(rows, time, np.int64))
    names = ["writer", "number", "time", "diff"]
    return stream(pa.RecordBatch.from_arrays([texts, zeros, times, zeros], names=names), "zstd")


def stream(batch: pa.RecordBatch, codec: str | None) -> bytes:
    """The batch as an Arrow IPC stream; nothing of it is checked."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def reference(
    rng: Random, body: bytes, rows: int, key: str, place: tuple[int, int]
) -> dict[str, object]:
    """A chunk reference; every third time one of its fields is a lie."""
    partition, offset = place
    fields: dict[str, object] = {
        "partition": partition,
        "offset": offset,
        "key": key,
        "checksum": zlib.crc32(body),
        "rows": rows,
        "size": len(body),
    }
    if rng.random() < 1 / 3:
        lied = rng.choice(sorted(fields))
        fields[lied] = "k" * 50 if lied == "key" else rng.choice(INTEGERS)
        if lied == "partition":
            fields[lied] = rng.choice((-1, 0, 1, 99, (1 << 31) - 1))
    return fields


def _perhaps_mutated(rng: Random, body: bytes) -> bytes:
    return mutated(rng, body) if rng.random() < 0.4 else body  # noqa: PLR2004  often enough
