"""What other Arrow types stand for: every value as it was, or none."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streams.storage.limits import TooLarge
from streams.storage.write.arrow_types import TypeMismatch, cast_losslessly, unpacked_bytes
from streams.trace.kernel.kernel import Kernel, arrow_type

KIND_A = pa.struct([("a", pa.int8()), ("b", pa.large_utf8())])
NOT_NULL = pa.struct([pa.field("a", pa.int32(), nullable=False), ("b", pa.utf8())])
MAPPED = pa.map_(pa.utf8(), pa.field("value", pa.int32(), nullable=False))

TAKEN: list[tuple[pa.Array, str, str]] = [
    (pa.array(["a", None], pa.large_utf8()), "VARCHAR", "a"),
    (pa.array(["a" * 20, None], pa.string_view()), "VARCHAR", "a" * 20),
    (pa.array(["a", None]).dictionary_encode(), "VARCHAR", "a"),
    (pa.array(["a", None], pa.large_utf8()).dictionary_encode(), "ENUM('a', 'b')", "a"),
    (pa.array(["[1]", None]), "JSON", "[1]"),
    (pa.array([b"a", None], pa.large_binary()), "BLOB", "a"),
    (pa.array([b"a", None], pa.binary_view()), "BLOB", "a"),
    (pa.array([b"a", None], pa.binary(1)), "BLOB", "a"),
    (
        pa.array([b"0" * 16, None], pa.binary(16)),
        "UUID",
        "30303030" + "-3030" * 3 + "-" + "30" * 6,
    ),
    (pa.array([Decimal(-(10**37)), None], pa.decimal128(38, 0)), "HUGEINT", str(-(10**37))),
    (pa.array([-3, None]), "HUGEINT", "-3"),
    (pa.array([3, None], pa.uint8()), "UHUGEINT", "3"),
    (pa.array([-3, None]), "INTEGER", "-3"),
    (pa.array([3, None], pa.uint64()), "TINYINT", "3"),
    (pa.array([0.5, None], pa.float32()), "DOUBLE", "0.5"),
    (pa.array([Decimal("1.50"), None], pa.decimal256(50, 2)), "DECIMAL(4,1)", "1.5"),
    (pa.array([Decimal("1.5"), None], pa.decimal32(4, 1)), "DECIMAL(9,2)", "1.50"),
    (pa.array([86_400_000, None], pa.date64()), "DATE", "1970-01-02"),
    (pa.array([1, None], pa.time32("s")), "TIME", "00:00:01"),
    (pa.array([1, None], pa.timestamp("s")), "TIMESTAMP", "1970-01-01 00:00:01"),
    (pa.array([1000, None], pa.timestamp("ns")), "TIMESTAMP", "1970-01-01 00:00:00.000001"),
    (
        pa.array([1, None], pa.timestamp("us", "Etc/UTC")),
        "TIMESTAMPTZ",
        "1970-01-01 00:00:00.000001+00",
    ),
    (
        pa.array([1, None], pa.timestamp("ms", "+00:00")),
        "TIMESTAMPTZ",
        "1970-01-01 00:00:00.001+00",
    ),
    (
        pa.array([1, None], pa.timestamp("s", "Asia/Tokyo")),
        "TIMESTAMPTZ",
        "1970-01-01 00:00:01+00",
    ),
    (
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8())),
        "BOOLEAN",
        "true",
    ),
    (
        pa.array([[1], None], pa.large_list(pa.field("x", pa.int64(), nullable=False))),
        "INTEGER[]",
        "[1]",
    ),
    (
        pa.array([{"a": 1, "b": "x"}, None], KIND_A),
        "STRUCT(a INTEGER, b VARCHAR)",
        "{'a': 1, 'b': x}",
    ),
    (
        pa.array([{"a": 1, "b": "x"}, None], NOT_NULL),
        "STRUCT(a INTEGER, b VARCHAR)",
        "{'a': 1, 'b': x}",
    ),
    (pa.array([[("k", 1)], None], MAPPED), "MAP(VARCHAR, INTEGER)", "{k=1}"),
]

REFUSED: list[tuple[pa.Array, str, str]] = [
    (pa.array([1 << 40]), "INTEGER", "expected int32, actual int64: Integer value"),
    (pa.array([-1]), "UHUGEINT", "a negative value of an unsigned type"),
    (pa.array([0.5]), "FLOAT", "expected float, actual double"),
    (pa.array([1]), "DOUBLE", "expected double, actual int64"),
    (pa.array([1]), "DECIMAL(4,1)", "actual int64"),
    (pa.array([Decimal("1.55")]), "DECIMAL(4,1)", "would cause data loss"),
    (pa.array([Decimal(10_000)]), "DECIMAL(4,1)", "expected decimal128"),
    (pa.array([Decimal("1.5")]), "HUGEINT", "actual decimal128"),
    (pa.array([1500], pa.timestamp("ns")), "TIMESTAMP", "would lose data"),
    (pa.array([1 << 62], pa.timestamp("s")), "TIMESTAMP", "out of bounds"),
    (pa.array([1], pa.timestamp("us")), "TIMESTAMPTZ", "actual timestamp"),
    (pa.array([1], pa.timestamp("us", "UTC")), "TIMESTAMP", "actual timestamp"),
    (pa.array([b"\xff"]), "VARCHAR", "expected string, actual binary"),
    (pa.array(["a"]), "BLOB", "expected binary, actual string"),
    (pa.array([b"a"], pa.binary(1)), "UUID", "actual fixed_size_binary"),
    (pa.array(["x"]), "UUID", "actual string"),
    (pa.array([None]), "INTEGER", "actual null"),
    (pa.array([1, 1]).dictionary_encode(), "VARCHAR", "actual dictionary"),
    (pa.array([[1]], pa.list_(pa.int32(), 1)), "INTEGER[2]", "actual fixed_size_list"),
    (pa.array([{"b": "x", "a": 1}]), "STRUCT(a INTEGER, b VARCHAR)", "expected struct<a:"),
    (pa.array([{"a": 1}]), "STRUCT(a INTEGER, b VARCHAR)", "expected struct<a:"),
    (pa.array([["x"]], pa.list_(pa.string_view())), "VARCHAR[]", "actual list"),
]


def named(case: tuple[pa.Array, str, str]) -> str:
    array, type_, text = case
    return f"{type_} from {array.type}: {text}"


@pytest.mark.parametrize(("array", "type_", "text"), TAKEN, ids=map(named, TAKEN))
def test_values_come_as_they_were(array: pa.Array, type_: str, text: str) -> None:
    kind = arrow_type(type_)
    column = cast_losslessly(pa.chunked_array([array, array.slice(1), array.slice(0, 0)]), kind)
    column.validate(full=True)
    assert column.type == kind
    table = pa.table({"x": column.slice(0, 1)})
    texts = Kernel().query_as("SELECT x::VARCHAR AS t FROM r", {"r": (table, [type_])})
    assert [*texts["t"].to_pylist(), *column.is_null().to_pylist()] == [text, False, True, True]


@pytest.mark.parametrize(("array", "type_", "why"), REFUSED, ids=map(named, REFUSED))
def test_what_could_lose_something_is_refused(array: pa.Array, type_: str, why: str) -> None:
    with pytest.raises(TypeMismatch, match=why):
        cast_losslessly(pa.chunked_array([array]), arrow_type(type_))


def test_values_that_many_rows_share_are_counted_for_each() -> None:
    indices = pa.array([0] * 100_000, pa.int8())
    shared = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * 100_000]))
    _, views, data = pa.array(["x" * 100_000], pa.string_view()).buffers()
    repeated = pa.py_buffer(views.to_pybytes()[:16] * 100_000)
    view = pa.Array.from_buffers(pa.string_view(), 100_000, [None, repeated, data])
    for table_ in (shared, view):
        assert table_.nbytes < 3_000_000
        assert unpacked_bytes(table_) == 10_000_000_000
        with pytest.raises(TooLarge):
            cast_losslessly(pa.chunked_array([table_]), pa.utf8())
    assert unpacked_bytes(view.slice(99_999)) == 100_000


def test_types_that_are_spelled_alike_are_told_apart() -> None:
    type_: Any = pa.opaque(pa.binary(16), "hugeint", "DuckDB")
    odd = pa.opaque(pa.binary(16), "hugeint", "Other")
    storage = pa.array([b"0" * 16], pa.binary(16))
    with pytest.raises(TypeMismatch) as raised:
        cast_losslessly(pa.chunked_array([pa.ExtensionArray.from_storage(odd, storage)]), type_)
    expected, actual = str(raised.value).removeprefix("expected ").split(", actual ", 1)
    assert expected != actual
