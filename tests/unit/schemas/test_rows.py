import io
import json
from datetime import date, datetime, time
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest

from schemas.keys import pack, unpack
from schemas.rows import decode_row, encode_rows, row_schema
from schemas.tuple_elements import encoded, is_plain
from streams.trace.columns import one_array
from streams.trace.kernel.kernel import Kernel

CASES = [
    ("BOOLEAN", "true", True),
    ("TINYINT", "-3", -3),
    ("UINTEGER", "4294967295", 4294967295),
    ("BIGINT", "-9223372036854775808", -9223372036854775808),
    ("UBIGINT", "18446744073709551615", Decimal(18446744073709551615)),
    ("HUGEINT", "170141183460469231731687303715884105727", Decimal(2**127 - 1)),
    ("HUGEINT", "-5", Decimal(-5)),
    ("FLOAT", "1.5", 1.5),
    ("DOUBLE", "0.1", 0.1),
    ("DECIMAL(10,2)", "-1.50", Decimal("-1.50")),
    ("DECIMAL(38,10)", "1234567890123456789012345678.0123456789", None),
    ("VARCHAR", "'ä\"'", 'ä"'),
    ("ENUM('a', 'b')", "'b'", "b"),
    ("BLOB", "'\\x00a'", b"\x00a"),
    ("UUID", "'00000000-0000-0000-0000-000000000001'", None),
    ("DATE", "'1969-12-31'", date(1969, 12, 31)),
    ("TIME", "'10:00:00.000001'", time(10, 0, 0, 1)),
    ("TIMESTAMP", "'2020-01-02 03:04:05.000006'", datetime(2020, 1, 2, 3, 4, 5, 6)),  # noqa: DTZ001  a timestamp without zone
    ("TIMESTAMP_S", "'2020-01-02 03:04:05'", datetime(2020, 1, 2, 3, 4, 5)),  # noqa: DTZ001  as above
    ("TIMESTAMP WITH TIME ZONE", "'2020-01-02 03:04:05+01'", None),
    ("INTERVAL", "'1 month 2 days'", "1 month 2 days"),
    ("JSON", "'{\"a\": 1}'", '{"a": 1}'),
    ("INTEGER[]", "[1, NULL]", "[1,null]"),
    ("STRUCT(a INTEGER, b DOUBLE[])", "{'a': 1, 'b': [0.5]}", '{"a":1,"b":[0.5]}'),
    ("ENUM('x')[]", "['x']", '["x"]'),
    ("MAP(VARCHAR, INTEGER)", "MAP {'k': 2}", '{"k":2}'),
    ("BIT", "'101'", "101"),
]


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return Kernel()


def ready(kernel: Kernel, select: str, kind: str, *literals: str) -> pa.Array:
    """What a select makes of literals, in a type that carries it in tables of ours."""
    values = ", ".join(f"(({literal})::{kind})" for literal in literals)
    table = kernel.query(f"SELECT {select} AS v FROM (VALUES {values}) AS t(c0)")
    is_text = pa.types.is_dictionary(table.schema.field("v").type)
    return one_array(table["v"].cast(pa.string()) if is_text else table["v"])


@pytest.mark.parametrize(("kind", "literal", "expected"), CASES)
def test_a_value_comes_back_through_any_avro_library(kernel, kind, literal, expected) -> None:
    schema = row_schema("out", [("x", kind)])
    column = ready(kernel, schema.selects[0], kind, literal, "NULL")
    some, none = encode_rows(schema, [column]).to_pylist()
    assert decode_row(schema.text, none) == {"x": None}
    value = decode_row(schema.text, some)["x"]
    if expected is not None:
        assert value == expected
    else:
        text = kernel.query(f"SELECT (({literal})::{kind})::VARCHAR AS v")["v"][0].as_py()
        assert str(value)[: len(text)] == text or str(value) == text + ":00"
    # the published JSON alone is enough
    parsed = fastavro.parse_schema(json.loads(schema.text))
    assert fastavro.schemaless_reader(io.BytesIO(some[10:]), parsed, None) == {"x": value}


@pytest.mark.parametrize(("kind", "literal", "expected"), CASES)
def test_every_type_can_be_a_key_that_tells_rows_apart(kernel, kind, literal, expected) -> None:
    schema = row_schema("out", [("x", kind)])
    column = ready(kernel, schema.key_selects[0], kind, literal, "NULL")
    if is_plain(column):
        keys = encoded(column).to_pylist()
    else:
        keys = [pack([value]) for value in column.to_pylist()]
    assert len(set(keys)) == 2
    assert unpack(keys[1]) == (None,)


def test_names_that_avro_forbids_are_kept_beside_the_field() -> None:
    schema = row_schema("1 out", [("a b", "INTEGER"), ("a_b", "INTEGER"), ("ä", "INTEGER")])
    assert schema.fields == ("a_b", "a_b_2", "_")
    record = json.loads(schema.text)
    assert record["name"] == "_1_out"
    assert [field["column"] for field in record["fields"]] == ["a b", "a_b", "ä"]


def test_the_fingerprint_is_in_front_of_every_message() -> None:
    schema = row_schema("out", [("x", "INTEGER")])
    (message,) = encode_rows(schema, [pa.array([1], pa.int32())]).to_pylist()
    assert message[:2] == b"\xc3\x01"
    assert message[2:10] == schema.fingerprint
    assert row_schema("out", [("x", "BIGINT")]).fingerprint != schema.fingerprint
