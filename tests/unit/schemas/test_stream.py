"""What others wrote is measured and validated before anything looks at it."""

import random
import struct

import numpy as np
import pyarrow as pa
import pytest

from schemas import chunk
from schemas import stream as streams
from streams.errors import Corrupt
from tests.support import foreign

LARGE = 1 << 30


def zeros(size: int) -> pa.RecordBatch:
    return pa.record_batch({"a": pa.array(np.zeros(size, np.int64))})


def test_a_sound_stream_is_read() -> None:
    batch = pa.record_batch({"a": [1, 2], "b": ["x", None]})
    for compression in (None, "lz4", "zstd"):
        stream = streams.read(foreign.stream(batch, compression), LARGE)
        assert stream.schema == batch.schema
        assert stream.batches == [batch]


@pytest.mark.parametrize("compression", ["lz4", "zstd", None])
def test_what_decodes_to_too_much_is_refused_before_it_is_decoded(
    compression: str | None,
) -> None:
    body = foreign.stream(zeros(1 << 20), compression)  # 8 MiB
    assert streams.read(body, 8 << 20).batches[0].num_rows == 1 << 20
    before = pa.total_allocated_bytes()
    with pytest.raises(streams.TooMuch, match="at most 8388607 bytes when decoded, actual"):
        streams.read(body, (8 << 20) - 1)
    assert pa.total_allocated_bytes() == before


def test_a_declared_size_is_measured_whatever_the_data_are() -> None:
    body = bytearray(foreign.stream(zeros(1000), "lz4"))
    at = body.index(struct.pack("<q", 8000))
    body[at : at + 8] = struct.pack("<q", 1 << 60)
    with pytest.raises(streams.TooMuch, match=f"actual {1 << 60}"):
        streams.read(bytes(body), LARGE)
    body[at : at + 8] = struct.pack("<q", -2)
    with pytest.raises(Corrupt, match="a buffer of -2 bytes"):
        streams.read(bytes(body), LARGE)


def test_dictionaries_are_measured_too() -> None:
    values = pa.array(["x" * 1000] * 1000)
    column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), values)
    body = foreign.stream(pa.record_batch({"a": column}), "zstd")
    with pytest.raises(streams.TooMuch):
        streams.read(body, 1_000_000)
    assert len(streams.read(body, 1_010_000).batches) == 1


def test_batches_are_counted() -> None:
    sink = pa.BufferOutputStream()
    one = zeros(0)
    with pa.ipc.new_stream(sink, one.schema) as writer:
        for _ in range(streams.MOST_BATCHES + 1):
            writer.write_batch(one)
    with pytest.raises(streams.TooMuch, match="at most 4096 record batches, actual 4097"):
        streams.read(sink.getvalue().to_pybytes(), LARGE)


@pytest.mark.parametrize(
    ("column", "why"),
    [(foreign.outside(), "offset"), (foreign.not_utf8(), "UTF8")],
)
@pytest.mark.parametrize("compression", [None, "lz4"])
def test_what_is_not_sound_is_corrupt(
    column: pa.Array, why: str, compression: str | None
) -> None:
    body = foreign.chunk_of([column], ["a"], [1, 1], compression=compression)
    with pytest.raises(Corrupt, match=why):
        chunk.decode(body)


def test_whatever_is_changed_in_a_chunk_it_is_read_or_corrupt() -> None:
    columns = [
        pa.array(["abc", None, "x" * 50]),
        pa.array([[1], None, [2, 3]], pa.list_(pa.int32())),
        pa.array([{"k": "v"}, {"k": None}, None], pa.struct([("k", pa.utf8())])),
        pa.array(["a", "b", "a"]).dictionary_encode(),
    ]
    chance = random.Random(7)
    for compression in (None, "lz4", "zstd"):
        sound = foreign.chunk_of(columns, ["a", "b", "c", "d"], [1, 2, 3], None, compression)
        for _ in range(700):
            body = bytearray(sound)
            for _ in range(chance.randrange(1, 4)):
                body[chance.randrange(len(body))] = chance.choice([0, 1, 127, 128, 255])
            if chance.random() < 0.2:
                del body[chance.randrange(len(body)) :]
            try:
                updates, errors = chunk.decode(bytes(body))
            except Corrupt:
                continue
            updates.to_pylist()
            errors.to_pylist()


def test_a_time_zone_that_is_not_utf8_is_corrupt() -> None:
    zoned = pa.array([1], pa.timestamp("us", "Some/Zone"))
    body = foreign.chunk_of([zoned], ["a"], [1])
    assert b"Some/Zone" in body
    with pytest.raises(Corrupt, match="utf-8"):
        chunk.decode(body.replace(b"Some/Zone", b"\xff\xfe/Zone  "))


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"\xff" * 8, b"\xff" * 4 + b"\x08\0\0\0" + b"\xff" * 8, b"no" * 99]
)
def test_what_is_no_stream_is_corrupt(body: bytes) -> None:
    with pytest.raises(Corrupt, match="expected an arrow stream, actual"):
        streams.read(body, LARGE)
