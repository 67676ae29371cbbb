"""Rows that another process wrote: those that are expected, or an error that says what came."""

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from streams.compute import arrow_rows
from streams.compute.arrow_rows import answered_rows, answered_updates, key_rows
from streams.errors import Corrupt
from streams.torture.hostile.arrow_streams import BOMB_BYTES
from streams.trace.kernel.kernel import Kernel, arrow_schema, data_schema

TYPES = ["BIGINT", "VARCHAR"]
EVERY = {
    "UUID": "uuid()",
    "HUGEINT": "(1::HUGEINT << 100)",
    "JSON": "'[1]'::JSON",
    "MAP(VARCHAR, INTEGER)": "map(['a'], [1])",
    "STRUCT(a INTEGER, b VARCHAR)": "{'a': 1, 'b': 'x'}",
    "INTEGER[]": "[1, NULL]",
    "INTEGER[2]": "[1, 2]::INTEGER[2]",
    "TIME": "'24:00:00'::TIME",
    "TIMESTAMP WITH TIME ZONE": "'2020-01-01'::TIMESTAMPTZ",
    "DECIMAL(18,3)": "1.5",
    "BIT": "'101'::BIT",
    "INTERVAL": "INTERVAL 1 DAY",
    "BOOLEAN": "true",
    "BLOB": "'a'::BLOB",
}


def streamed(*batches: pa.RecordBatch, codec: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(sink.getvalue())


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(list(columns.values()), names=list(columns))


def numbers(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int64())


TWO = batch(c0=numbers(1, 2), c1=pa.array(["a", None]))
UPDATES = batch(c0=numbers(1), c1=pa.array(["a"]), time=numbers(3), diff=numbers(1))


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_rows_are_those_that_were_written(codec: str | None) -> None:
    body = streamed(TWO, TWO, codec=codec)
    rows = answered_rows(body, 4, TYPES)
    assert rows.schema == data_schema(TYPES)
    assert rows.to_pylist() == [*TWO.to_pylist()] * 2
    assert answered_updates(streamed(UPDATES), 1, TYPES).to_pylist() == UPDATES.to_pylist()
    assert answered_updates(b"", 0, TYPES).schema == arrow_schema(TYPES)
    named = batch(key=numbers(7))
    assert key_rows(streamed(named), ["BIGINT"]).to_pylist() == [{"c0": 7}]


@pytest.mark.parametrize("kind", EVERY)
def test_rows_of_every_type_can_be_answered(kind: str) -> None:
    kernel = Kernel()
    values = kernel.query(f"SELECT * FROM (VALUES ({EVERY[kind]}), (NULL)) t(c0)").column(0)
    written = pa.table([values.cast(data_schema([kind]).field(0).type)], names=["c0"])
    (only,) = written.combine_chunks().to_batches()
    assert answered_rows(streamed(only), 2, [kind]).column(0) == only.column(0)


def offsets_outside() -> pa.Array:
    offsets = pa.py_buffer(pa.array([0, 1 << 30, 4], pa.int32()).buffers()[1])
    return pa.Array.from_buffers(pa.utf8(), 2, [None, offsets, pa.py_buffer(b"abcd")])


def not_utf8() -> pa.Array:
    offsets = pa.array([0, 1, 2], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.utf8(), 2, [None, offsets, pa.py_buffer(b"\xff\xff")])


OFFSETS, TEXT = (
    batch(c0=numbers(1, 2), c1=offsets_outside()),
    batch(c0=numbers(1, 2), c1=not_utf8()),
)
DICTIONARY = batch(c0=numbers(1, 2), c1=pa.array(["a", "b"]).dictionary_encode())
OTHER_NAMES = batch(c1=numbers(1, 2), c0=pa.array(["a", "b"]))
FEWER = batch(c0=numbers(1, 2))
DECIMALS = batch(c0=pa.array([Decimal(1)]), c1=pa.array(["a"]))
BOMB = streamed(batch(c0=numbers(0), c1=pa.array(["x" * 2 * BOMB_BYTES])), codec="zstd")


@pytest.mark.parametrize(
    ("body", "count", "said"),
    [
        (b"", 0, "expected an arrow stream"),
        (b"no stream", 2, "expected an arrow stream"),
        (streamed(TWO)[:-40], 2, "expected an arrow stream"),
        (streamed(OFFSETS), 2, "expected an arrow stream"),
        (
            streamed(TEXT),
            2,
            "expected an arrow stream, actual In column 1: Invalid: Invalid UTF8",
        ),
        (BOMB, 1, "expected at most 67108864 bytes when decoded, actual"),
        (
            streamed(DICTIONARY),
            2,
            "expected columns c0 int64, c1 string, actual c0 int64, c1 d",
        ),
        (streamed(OTHER_NAMES), 2, "actual c1 int64, c0 string"),
        (streamed(FEWER), 2, "expected columns c0 int64, c1 string, actual c0 int64"),
        (streamed(DECIMALS), 1, "actual c0 decimal"),
        (streamed(TWO), 3, "expected 3 rows, as it says, actual 2"),
        (streamed(TWO), 1 << 62, "expected 4611686018427387904 rows"),
    ],
    ids=[
        *("empty", "text", "cut", "offsets", "utf8", "bomb", "dictionary", "names", "fewer"),
        *("types", "count", "large-count"),
    ],
)
def test_what_is_malformed_is_an_error(body: bytes, count: int, said: str) -> None:
    with pytest.raises(Corrupt) as refused:
        answered_rows(body, count, TYPES)
    assert said in str(refused.value)


def test_rows_are_bounded_though_each_takes_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_rows, "MOST_ROWS", 1000)
    bits = streamed(batch(c0=pa.array([True] * 600)), batch(c0=pa.array([False] * 600)))
    with pytest.raises(Corrupt, match="expected at most 1000 rows, actual 1200"):
        answered_rows(bits, 1200, ["BOOLEAN"])


@pytest.mark.parametrize("name", ["time", "diff"])
def test_a_time_and_a_diff_are_numbers(name: str) -> None:
    columns = dict(zip(UPDATES.schema.names, UPDATES.columns, strict=True))
    body = streamed(batch(**{**columns, name: numbers(None)}))
    with pytest.raises(Corrupt, match="expected no NULL in time and diff"):
        answered_updates(body, 1, TYPES)


def test_a_union_names_its_member() -> None:
    kind = "UNION(a INTEGER, b VARCHAR)"
    field = data_schema([kind]).field(0).type
    fields = [field.field(index) for index in range(field.num_fields)]

    def union(tag: int) -> bytes:
        members = [pa.array([tag], pa.uint8()), pa.array([None], pa.int32()), pa.array(["x"])]
        return streamed(batch(c0=pa.StructArray.from_arrays(members, fields=fields)))

    assert answered_rows(union(1), 1, [kind]).num_rows == 1
    with pytest.raises(Corrupt, match="expected tags of 2 members, actual 9"):
        answered_rows(union(9), 1, [kind])


@pytest.mark.parametrize("seed", range(3))
def test_bytes_that_were_changed_are_rows_or_an_error(seed: int) -> None:
    rng = Random(seed)
    sound = streamed(TWO, codec=rng.choice([None, "lz4", "zstd"]))
    for _ in range(300):
        body = bytearray(sound)
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            rows = answered_rows(bytes(body), 2, TYPES)
        except Corrupt:
            continue
        assert rows.schema == data_schema(TYPES)
