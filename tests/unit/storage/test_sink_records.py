"""Updates as records of an output topic: the bytes of keys, values and headers."""

import itertools
from collections.abc import Callable
from decimal import Decimal
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest

from schemas.keys import pack, unpack
from schemas.rows import decode_row, row_schema
from streams.ids import Timestamp, Topic
from streams.operators.context import ERRORS
from streams.storage.description import Description
from streams.storage.sinks import record_columns
from streams.storage.sinks.records import RecordEncoder
from streams.storage.sinks.sink import NO_KEYS
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import flatten


def test_a_union_is_json_of_its_member_and_a_key_that_sorts() -> None:
    kind = "UNION(n INTEGER, t VARCHAR)"
    columns = Description((("u", kind), ("v", kind)))
    recorder = RecordEncoder(Topic("out"), columns, ["u"], Kernel())
    values = [
        {"tag": 0, "n": 1, "t": None},
        {"tag": 1, "n": None, "t": None},
        {"tag": 1, "n": None, "t": "x"},
        None,
    ]
    rows = [{"c0": value, "c1": value, "time": 1, "diff": 1} for value in values]
    updates = pa.Table.from_pylist(rows, arrow_schema(columns.types))
    interval = recorder.decide(NO_KEYS, updates, ERRORS.empty_table(), Timestamp(2))
    pairs = [(record.key or b"", record.value or b"") for record in interval.records]
    decoded = {
        unpack(key)[0]: decode_row(recorder.rows.text, value)["v"] for key, value in pairs
    }
    assert decoded == {
        (0, 1, None): '{"n":1}',
        (1, None, None): '{"t":null}',
        (1, None, "x"): '{"t":"x"}',
        None: None,
    }
    assert [unpack(key)[0] for key in sorted(key for key, _ in pairs)] == [
        None, (0, 1, None), (1, None, None), (1, None, "x"),
    ]  # fmt: skip


def test_an_error_may_come_after_what_began_the_stall() -> None:
    columns = Description((("k", "BIGINT"),))
    recorder = RecordEncoder(Topic("out"), columns, ["k"], Kernel())
    rows = [{"c0": 1, "time": 1, "diff": 2}]
    errors = pa.Table.from_pylist([{"error": "no number", "time": 3, "diff": 1}], ERRORS)
    updates = pa.Table.from_pylist(rows, arrow_schema(columns.types))
    interval = recorder.decide(NO_KEYS, updates, errors, Timestamp(5))
    assert (interval.upper, interval.stall) == (1, "the collection is in error at 4: no number")


@pytest.mark.parametrize(
    ("kind", "texts", "keys"),
    [
        (
            "TIMESTAMP",
            ["2026-01-02 03:04:05", "20240-01-01 00:00:00", "infinity", "-infinity"],
            ["2026-01-02T03:04:05.000000", "20240-01-01 00:00:00", "infinity", "-infinity"],
        ),
        (
            "TIMESTAMP_NS",
            ["1970-01-01 00:00:00.000000007", "infinity", "-infinity"],
            [7, 2**63 - 1, 1 - 2**63],
        ),
        (
            "DATE",
            ["2026-01-02", "20000-01-01", "0044-03-15 (BC)"],
            ["2026-01-02", "20000-01-01", "0044-03-15 (BC)"],
        ),
        (
            "TIME",
            ["00:00:00", "23:59:59.999999", "24:00:00"],
            ["00:00:00.000000", "23:59:59.999999", "24:00:00"],
        ),
        ("TIME[]", ["[00:00:00]", "[24:00:00]"], [("00:00:00.000000",), "['24:00:00']"]),
        ("DATE[]", ["[2026-01-02]", "[20000-01-01]"], [("2026-01-02",), "[20000-01-01]"]),
    ],
)
def test_a_key_that_no_date_of_python_holds_is_apart(
    kind: str, texts: list[str], keys: list[object]
) -> None:
    columns = Description((("k", kind),))
    kernel = Kernel()
    recorder = RecordEncoder(Topic("out"), columns, ["k"], kernel)
    values = ", ".join(f"('{text}')" for text in texts)
    updates = kernel.query(
        f"SELECT v::{kind} AS c0, 1::BIGINT AS time, 1::BIGINT AS diff"
        f" FROM (VALUES {values}) AS t(v)"
    )
    updates = updates.cast(arrow_schema(columns.types))
    interval = recorder.decide(NO_KEYS, updates, ERRORS.empty_table(), Timestamp(2))
    assert interval.stall in {"", None}
    packed = {unpack(record.key or b"")[0] for record in interval.records}
    assert packed == set(keys)


TEXT = "{}::VARCHAR"
WIDE = (TEXT, TEXT, Decimal, int)
"""What makes a value of a column and one of a key in SQL, and what finishes each in Python."""
LITERALS: dict[
    str, tuple[tuple[str, str, Callable[..., object], Callable[..., object]], str]
] = {
    "BOOLEAN": (("{}", "{}", bool, bool), "true false"),
    "TINYINT": (("{}", "{}", int, int), "-128 127 -65 -64 0 63 64"),
    "BIGINT": (
        ("{}", "{}", int, int),
        "-9223372036854775808 9223372036854775807 0 255 256 -256",
    ),
    "UBIGINT": (WIDE, "18446744073709551615 18446744073709551614 9223372036854775808 0"),
    "HUGEINT": (
        WIDE,
        "170141183460469231731687303715884105727 (-170141183460469231731687303715884105728)"
        " 18446744073709551615 -18446744073709551615 -18446744073709551616 0 -128",
    ),
    "UHUGEINT": (WIDE, "340282366920938463463374607431768211455 18446744073709551616 0"),
    "DOUBLE": (("{}", "{}", float, float), "1.5 'inf' -0.5 1e308"),
    "DECIMAL(38,2)": (
        ("{}", "{}", Decimal, Decimal),
        "999999999999999999999999999999999999.99 1.28 0"
        " -999999999999999999999999999999999999.99",
    ),
    "VARCHAR": ((TEXT, TEXT, str, str), "'' 'ä€😀' chr(0) 'a'||chr(0)||'b' repeat('y',20000)"),
    "JSON": ((TEXT, TEXT, str, str), "'{\"a\":1}' 'null'"),
    "ENUM('a','bb')": ((TEXT, TEXT, str, str), "'a' 'bb'"),
    "BLOB": (("{}", "{}", bytes, bytes), "''::BLOB '\\x00\\xFF'::BLOB"),
    "UUID": ((TEXT, "{}", str, lambda value: value), "'6b86b273-ff34-4ce1-8d6b-804eff5a3f57'"),
    "DATE": (
        ("{} - DATE '1970-01-01'", "{}", int, lambda value: value),
        "'2026-01-02' '0001-01-01' '9999-12-31' '1969-12-31'",
    ),
    "TIME": (
        ("epoch_us({})", "{}", int, lambda value: value),
        "'00:00:00' '23:59:59.999999' '10:00:01.000010'",
    ),
    "TIMESTAMP_S": (
        ("epoch_us({}::TIMESTAMP)", "{}", int, lambda value: value),
        "'2026-01-02T03:04:05' '0001-01-01'",
    ),
    "TIMESTAMP_NS": (
        ("epoch_ns({})", "epoch_ns({})", int, int),
        "'2026-01-02T03:04:05.123456789'",
    ),
    "TIMESTAMP WITH TIME ZONE": (
        ("epoch_us({})", "{}", int, lambda value: value),
        "'2026-01-02T03:04:05+02' '0001-01-01T00:00:00+00'",
    ),
    "INTERVAL": ((TEXT, TEXT, str, str), "'1month' '2days'"),
    "TIME WITH TIME ZONE": ((TEXT, TEXT, str, str), "'01:02:03+02'"),
    "INTEGER[]": (("to_json({})::VARCHAR", "{}", str, lambda value: value), "[1,NULL] []"),
    "MAP(VARCHAR,INTEGER)": (
        ("to_json({})::VARCHAR", "{}", str, lambda value: value),
        "MAP{'k':2} MAP{}",
    ),
}


def finished(finish: Callable[..., object], values: list[object]) -> list[object]:
    return [None if value is None else finish(value) for value in values]


@pytest.mark.parametrize("kind", LITERALS)
def test_records_are_those_that_one_by_one_would_be(kind: str) -> None:
    """Of rows whose value and key have the type: contents, then tombstones."""
    (sql, key_sql, value_of, key_of), texts = LITERALS[kind]
    kernel, columns = Kernel(), Description((("k", kind), ("v", kind), ("n", "INTEGER")))
    literals = [*texts.split(" "), "NULL"]
    listed = ", ".join(f"(({text})::{kind}, {n})" for n, text in enumerate(literals))
    typed = f"(SELECT x AS c0, x AS c1, n AS c2 FROM (VALUES {listed}) AS t(x, n))"
    updates = kernel.query(f"SELECT *, 1::BIGINT AS time, 1::BIGINT AS diff FROM {typed}")
    schema = arrow_schema(columns.types)
    there = pa.Table.from_batches([flatten([updates], schema)])
    gone = there.set_column(3, "time", pa.array([2] * len(literals)))
    gone = gone.set_column(4, "diff", pa.array([-1] * len(literals)))
    recorder = RecordEncoder(Topic("out"), columns, ["n", "k"], kernel)
    both = pa.concat_tables([there, gone])
    interval = recorder.decide(NO_KEYS, both, ERRORS.empty_table(), Timestamp(3))
    ready = kernel.query(
        f"SELECT {sql.format('c1')} AS v, {key_sql.format('c0')} AS k, c2"
        f" FROM {typed} ORDER BY c2"
    )
    values = finished(value_of, ready["v"].to_pylist())
    keys = finished(key_of, ready["k"].to_pylist())
    rows = row_schema("out", columns.columns)
    expected = []
    for number, (value, key) in enumerate(zip(values, keys, strict=True)):
        message = BytesIO()
        message.write(rows.schema.header)
        record = {"k": value, "v": value, "n": number}
        fastavro.schemaless_writer(message, rows.schema.parsed, record)
        packed = pack([number, key])
        expected += [(1, packed, message.getvalue()), (2, packed, None)]
    actual = [
        (int(record.headers[0][1]), record.key, record.value) for record in interval.records
    ]
    assert sorted(actual, key=repr) == sorted(expected, key=repr)
    assert [time for time, *_ in actual] == sorted(time for time, *_ in actual)


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_NS", "TIMESTAMPTZ"])
def test_an_infinite_timestamp_is_null_in_the_value(kind: str) -> None:
    kernel, columns = Kernel(), Description((("k", "INTEGER"), ("v", kind)))
    updates = kernel.query(
        f"SELECT n::INTEGER AS c0, v::{kind} AS c1, 1::BIGINT AS time, 1::BIGINT AS diff"
        " FROM (VALUES (1, 'infinity'), (2, '-infinity'), (3, '1970-01-01')) AS t(n, v)"
    ).cast(arrow_schema(columns.types))
    recorder = RecordEncoder(Topic("out"), columns, ["k"], kernel)
    records = recorder.decide(NO_KEYS, updates, ERRORS.empty_table(), Timestamp(2)).records
    decoded = [decode_row(recorder.rows.text, record.value or b"") for record in records]
    values = {row["k"]: row["v"] for row in decoded}
    assert values.keys() == {1, 2, 3}
    assert values[1] is values[2] is None
    assert values[3] is not None


@pytest.mark.parametrize("most", [1 << 28, 1])
def test_records_are_the_same_however_they_are_cut(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(record_columns, "MOST_BYTES", most)
    columns = Description((("k", "BIGINT"), ("t", "VARCHAR")))
    recorder = RecordEncoder(Topic("out"), columns, ["k"], Kernel())
    rows = [
        {"c0": n, "c1": "x" * n, "time": 1 + n // 4, "diff": diff}
        for n, diff in itertools.product(range(20), (1,))
    ]
    rows += [{"c0": n, "c1": "x" * n, "time": 9, "diff": -1} for n in range(0, 20, 3)]
    updates = pa.Table.from_pylist(rows, arrow_schema(columns.types))
    records = recorder.decide(NO_KEYS, updates, ERRORS.empty_table(), Timestamp(10)).records
    every = list(records)
    assert len(every) == len(records) == 27
    for step in (1, 3, 26):
        cut = [
            record
            for first in range(0, 27, step)
            for record in records.between(first, min(first + step, 27))
        ]
        assert cut == every
    times = [int(record.headers[0][1]) for record in every]
    assert times == [1 + n // 4 for n in range(20)] + [9] * 7
    assert [record.value for record in every[-7:]] == [None] * 7
