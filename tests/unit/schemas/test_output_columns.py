"""Values and keys of output topics, many together: the same bytes as one by one."""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro_columns import encode_column
from schemas.keys import pack
from schemas.pieces import joined
from schemas.rows import encode_rows, row_schema
from schemas.tuple_elements import encoded, is_plain

BYTE_LIMITS = [
    value
    for bits in range(7, 129)
    for size in (1 << bits, (1 << bits) - 1)
    for value in (size - 1, size, -size, -size - 1, 1 - size)
]


def integers(least: int, most: int) -> st.SearchStrategy[int]:
    limits = [value for value in [least, most, *BYTE_LIMITS] if least <= value <= most]
    return st.one_of(
        st.integers(least, most), st.sampled_from(limits), st.integers(max(least, -70), 70)
    )


def signed(bits: int) -> st.SearchStrategy[int]:
    return integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return integers(0, (1 << bits) - 1)


def array_of(type_: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    return lambda values: pa.array(values, type_)


def huge(name: str) -> Callable[[list[Any]], pa.Array]:
    """As DuckDB has integers of 128 bits in Arrow."""
    type_ = pa.opaque(pa.binary(16), name, "DuckDB")
    rest = (1 << 128) - 1

    def of(values: list[Any]) -> pa.Array:
        some = [None if v is None else (v & rest).to_bytes(16, "little") for v in values]
        return pa.ExtensionArray.from_storage(type_, pa.array(some, pa.binary(16)))

    return of


def floats_of(bits: int) -> Callable[[list[Any]], pa.Array]:
    """Floating point numbers of these bits."""
    words, kind = (np.uint64, np.float64) if bits == 64 else (np.uint32, np.float32)

    def of(values: list[Any]) -> pa.Array:
        numbers = np.array([value or 0 for value in values], words).view(kind)
        return pa.array(numbers, mask=np.array([value is None for value in values], bool))

    return of


def uuids(values: list[Any]) -> pa.Array:
    some = [None if value is None else value.bytes for value in values]
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(some, pa.binary(16)))


def json_texts(values: list[Any]) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.json_(), pa.array(values, pa.string()))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return integers(-most, most).map(
        lambda unscaled: Decimal((int(unscaled < 0), digits_of(unscaled), -scale))
    )


def digits_of(value: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(value))))


def float_bits(bits: int) -> st.SearchStrategy[int]:
    code, words = ("<d", "<Q") if bits == 64 else ("<f", "<I")
    numbers = st.floats(width=64 if bits == 64 else 32).map(
        lambda value: struct.unpack(words, struct.pack(code, value))[0]
    )
    return st.one_of(numbers, st.integers(0, (1 << bits) - 1))


@dataclass(frozen=True)
class Kind:
    """How values of a DuckDB type are made, and written one by one."""

    duckdb: str
    values: st.SearchStrategy[Any]
    of: Callable[[list[Any]], pa.Array]
    avro: Callable[[Any], Any] = lambda value: value
    read: Callable[[pa.Array], list[Any]] | None = None


TEXTS = st.text(alphabet=st.characters(codec="utf-8"))
EPOCH_DAY = 719_163
DAY_US = 86_400_000_000


def days(value: Any) -> int:
    return int(value.toordinal()) - EPOCH_DAY


def micros(value: Any) -> int:
    clock = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000
    day = days(value) * DAY_US if hasattr(value, "toordinal") else 0
    return int(day + clock + value.microsecond)


def timestamps(keep: int) -> st.SearchStrategy[Any]:
    return st.datetimes().map(lambda at: at.replace(microsecond=at.microsecond // keep * keep))


KINDS = (
    Kind("BOOLEAN", st.booleans(), array_of(pa.bool_())),
    *(
        Kind(name, signed(bits), array_of(type_))
        for name, bits, type_ in (
            ("TINYINT", 8, pa.int8()),
            ("SMALLINT", 16, pa.int16()),
            ("INTEGER", 32, pa.int32()),
            ("BIGINT", 64, pa.int64()),
        )
    ),
    *(
        Kind(name, unsigned(bits), array_of(type_))
        for name, bits, type_ in (
            ("UTINYINT", 8, pa.uint8()),
            ("USMALLINT", 16, pa.uint16()),
            ("UINTEGER", 32, pa.uint32()),
        )
    ),
    Kind("UBIGINT", unsigned(64), array_of(pa.uint64()), avro=Decimal),
    Kind("HUGEINT", signed(128), huge("hugeint"), avro=Decimal),
    Kind("UHUGEINT", unsigned(128), huge("uhugeint"), avro=Decimal),
    Kind("DECIMAL(4,2)", decimals(4, 2), array_of(pa.decimal128(4, 2))),
    Kind("DECIMAL(38,10)", decimals(38, 10), array_of(pa.decimal128(38, 10))),
    Kind("FLOAT", float_bits(32), floats_of(32), read=pa.Array.to_pylist),
    Kind("DOUBLE", float_bits(64), floats_of(64), read=pa.Array.to_pylist),
    Kind("VARCHAR", TEXTS, array_of(pa.string())),
    Kind("JSON", TEXTS, json_texts),
    Kind("BLOB", st.binary(), array_of(pa.binary())),
    Kind("UUID", st.uuids(), uuids),
    Kind("DATE", st.dates(), array_of(pa.date32()), avro=days),
    Kind("TIME", st.times(), array_of(pa.time64("us")), avro=micros),
    Kind("TIMESTAMP", st.datetimes(), array_of(pa.timestamp("us")), avro=micros),
    Kind(
        "TIMESTAMP WITH TIME ZONE",
        st.datetimes(timezones=st.just(UTC)),
        array_of(pa.timestamp("us", "UTC")),
        avro=micros,
    ),
)
COLUMNS = st.sampled_from(KINDS).flatmap(
    lambda kind: st.tuples(
        st.just(kind),
        st.one_of(
            st.lists(kind.values, max_size=30), st.lists(st.none() | kind.values, max_size=30)
        ),
        st.integers(0, 2),
    )
)


def present(convert: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in values]


def avro_one_by_one(duckdb: str, values: list[Any]) -> list[bytes]:
    schema = row_schema("out", [("x", duckdb)])
    parsed = fastavro.parse_schema(json.loads(schema.text))
    messages = []
    for value in values:
        message = BytesIO()
        fastavro.schemaless_writer(message, parsed, {"x": value})
        messages.append(message.getvalue())
    return messages


@given(COLUMNS)
def test_a_column_of_values_is_written_as_one_by_one(
    column: tuple[Kind, list[Any], int],
) -> None:
    kind, values, first = column
    array = kind.of(values).slice(first)
    expected = present(kind.avro, (kind.read(array) if kind.read else values[first:]))
    together = joined(*encode_column(array)).to_pylist()
    assert together == avro_one_by_one(kind.duckdb, expected)


@given(COLUMNS)
def test_a_column_of_a_key_is_packed_as_one_by_one(
    column: tuple[Kind, list[Any], int],
) -> None:
    kind, values, first = column
    array = kind.of(values).slice(first)
    assert is_plain(array)
    expected = kind.read(array) if kind.read else values[first:]
    assert encoded(array).to_pylist() == [pack([value]) for value in expected]


@pytest.mark.parametrize(("unit", "keep"), [("s", 1_000_000), ("ms", 1_000)])
@given(st.data())
def test_a_key_of_coarser_timestamps_is_packed_as_one_by_one(
    unit: str, keep: int, data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.none() | timestamps(keep)))
    array = pa.array(values, pa.timestamp(unit))
    assert encoded(array).to_pylist() == [pack([value]) for value in values]


@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6), st.data())
def test_rows_are_written_as_one_by_one(kinds: list[Kind], data: st.DataObject) -> None:
    size = data.draw(st.integers(0, 5))
    some = [
        data.draw(st.lists(st.none() | kind.values, min_size=size, max_size=size))
        for kind in kinds
    ]
    arrays = [kind.of(values) for kind, values in zip(kinds, some, strict=True)]
    schema = row_schema("out", [(f"x{n}", kind.duckdb) for n, kind in enumerate(kinds)])
    read = [
        present(kind.avro, kind.read(array) if kind.read else values)
        for kind, values, array in zip(kinds, some, arrays, strict=True)
    ]
    messages = []
    for row in zip(*read, strict=True):
        message = BytesIO()
        message.write(schema.schema.header)
        record = dict(zip(schema.fields, row, strict=True))
        fastavro.schemaless_writer(message, schema.schema.parsed, record)
        messages.append(message.getvalue())
    assert encode_rows(schema, arrays).to_pylist() == messages


def test_dates_and_times_that_python_does_not_hold_are_not_plain() -> None:
    for type_, value in [
        (pa.date32(), days(date.max) + 1),
        (pa.date32(), -EPOCH_DAY),
        (pa.time64("us"), DAY_US),
        (pa.timestamp("us"), (1 << 63) - 1),
        (pa.timestamp("s"), -(1 << 60)),
    ]:
        stored = pa.int32() if type_ == pa.date32() else pa.int64()
        array = pa.array([0, value], stored).view(type_)
        assert is_plain(array[:1])
        assert not is_plain(array)
    assert not is_plain(pa.array([[1]]))


def test_what_no_column_holds_is_refused() -> None:
    with pytest.raises(TypeError, match="actual list"):
        encode_column(pa.array([[1]]))
