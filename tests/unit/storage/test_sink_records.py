"""Updates as records of an output topic: values and keys of columns of unions."""

import pyarrow as pa
import pytest

from schemas.keys import unpack
from schemas.rows import decode_row
from streams.ids import Timestamp, Topic
from streams.operators.context import ERRORS
from streams.storage.description import Description
from streams.storage.sinks.records import RecordEncoder
from streams.storage.sinks.sink import NO_KEYS
from streams.trace.kernel.kernel import Kernel, arrow_schema


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
def test_a_key_that_no_date_of_python_holds_is_text(
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
