"""What a record looks like: ours decoded, all else as it is."""

from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from schemas import keys, rows
from streams.app.topic.record_output import as_line, as_object, cached
from streams.kafka.client.records import TopicRecord

COLUMNS = [
    ("country", "VARCHAR"),
    ("total", "DECIMAL(9,2)"),
    ("at", "TIMESTAMP WITH TIME ZONE"),
]
SCHEMA = rows.row_schema("revenue", COLUMNS)
VALUES = [
    pa.array(["NL"]),
    pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
    pa.array([datetime(2026, 1, 2, tzinfo=UTC)], pa.timestamp("us", "UTC")),
]
VALUE = rows.encode_rows(SCHEMA, VALUES)[0].as_py()
TIME = ("slackwater-time", b"1767315845006")
OURS = TopicRecord(0, 4, 1767315845007, keys.pack(["NL"]), VALUE, (TIME,))


def schema_of(fingerprint: bytes) -> str | None:
    return SCHEMA.text if fingerprint == SCHEMA.fingerprint else None


def test_what_would_drive_a_terminal_is_shown() -> None:
    record = TopicRecord(1, 2, -1, b"a\x1b[2J", "b\n\x9b1m é".encode(), (("h\x07", b"\t"),))
    assert (
        as_line(as_object(record, schema_of)) == r"1@2  -  a\x1b[2J  b\x0a\x9b1m é  h\x07=\x09"
    )


def test_a_row_of_an_output_topic_is_decoded() -> None:
    shown = as_object(OURS, schema_of)
    assert shown == {
        "partition": 0,
        "offset": 4,
        "timestamp": 1767315845007,
        "key": ["NL"],
        "value": {"country": "NL", "total": "1.50", "at": "2026-01-02T00:00:00+00:00"},
        "headers": {"slackwater-time": "1767315845006"},
    }
    assert as_line(shown) == (
        '0@4  2026-01-02T01:04:05.007Z  ["NL"]  {"country": "NL", "total": "1.50", '
        '"at": "2026-01-02T00:00:00+00:00"}  slackwater-time=1767315845006'
    )


def test_a_deletion_of_ours_has_its_key_decoded() -> None:
    shown = as_object(OURS._replace(value=None), schema_of)
    assert (shown["key"], shown["value"]) == (["NL"], None)


@pytest.mark.parametrize(
    "value",
    [
        b"\xff\x00",
        VALUE[:9],
        VALUE[:10],
        VALUE[:2] + b"\x01" * 8 + VALUE[10:],
        VALUE[:10] + b"\xff" * 9,
    ],
)
def test_what_cannot_be_decoded_is_shown_in_base64(value: bytes) -> None:
    shown = as_object(TopicRecord(1, 2, -1, b"k", value), schema_of)
    assert shown["key"] == "k"
    assert shown["value"] == {"base64": b64encode(value).decode()}


@pytest.mark.parametrize("value", [b'{"a": 1}', b"", None])
def test_text_is_shown_as_it_is(value: bytes | None) -> None:
    shown = as_object(TopicRecord(1, 2, -1, None, value), schema_of)
    assert shown["value"] == (None if value is None else value.decode())
    assert as_line(shown).startswith("1@2  -  -  ")


def test_a_foreign_key_beside_our_header_is_no_failure() -> None:
    shown = as_object(OURS._replace(key=b"\x99", timestamp=1 << 62), schema_of)
    assert shown["key"] == {"base64": "mQ=="}
    assert as_line(shown).startswith(f"0@4  {1 << 62}  ")


def test_a_fingerprint_is_asked_for_once() -> None:
    requests: list[bytes] = []
    find = cached(requests.append)
    assert [find(b"a"), find(b"a"), find(b"b")] == [None] * 3
    assert requests == [b"a", b"b"]
