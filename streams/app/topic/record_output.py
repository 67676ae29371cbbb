"""Prints records of a topic: ours decoded, text as text, other bytes in base64.

Rows of output topics name their schema, and their keys are tuples (`schemas/OUTPUT.md`).
Whatever cannot be decoded is shown as any other record: others may write what they want.
"""

import base64
import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache
from uuid import UUID

from schemas import keys, rows
from streams.app.printable import printable
from streams.kafka.client.records import TopicRecord

SchemaOf = Callable[[bytes], str | None]
"""The schema, as JSON, that a fingerprint of 8 bytes stands for; None for none."""

MARKER = b"\xc3\x01"  # Avro's single-object encoding
HEADER_BYTES = 10
NOTHING = "-"


def as_object(record: TopicRecord, schema_of: SchemaOf) -> dict[str, object]:
    """The record for programs: an object of JSON values.

    Text is a string; other bytes are `{"base64": ...}`; a row of ours is an object by field,
    its key a list; decimals are strings.
    """
    row = _row(record.value, schema_of)
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _key(record) if row is not None or _is_ours(record) else readable(record.key),
        "value": readable(record.value) if row is None else row,
        "headers": {name: readable(value) for name, value in record.headers},
    }


def as_line(shown: Mapping[str, object]) -> str:
    """The record for people: where it is, when, key, value, headers."""
    headers = shown["headers"]
    assert isinstance(headers, Mapping)
    parts = [
        f"{shown['partition']}@{shown['offset']}",
        _moment(shown["timestamp"]),
        word(shown["key"]),
        word(shown["value"]),
        *(f"{printable(name)}={word(value)}" for name, value in headers.items()),
    ]
    return "  ".join(parts)


def cached(find: SchemaOf) -> SchemaOf:
    """The same, with a cache of fingerprints."""
    return cache(find)


def _is_ours(record: TopicRecord) -> bool:
    return any(name == "slackwater-time" for name, _ in record.headers)


def _row(value: bytes | None, schema_of: SchemaOf) -> object | None:
    """The row of an output topic; None where it is none."""
    if value is None or not value.startswith(MARKER) or len(value) < HEADER_BYTES:
        return None
    schema = schema_of(value[len(MARKER) : HEADER_BYTES])
    if schema is None:
        return None
    try:
        return _plain(rows.decode_row(schema, value))
    except Exception:  # noqa: BLE001  bytes of others: fastavro raises whatever it stumbles over
        return None


def _key(record: TopicRecord) -> object:
    if record.key is None:
        return None
    try:
        return _plain(keys.unpack(record.key))
    except Exception:  # noqa: BLE001  bytes of others, as above
        return readable(record.key)


def readable(value: bytes | None) -> object:
    """Bytes as a value of JSON: text as it is, others as `{"base64": ...}`."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _plain(value: object) -> object:
    """A decoded value as JSON has it."""
    match value:
        case Mapping():
            return {str(name): _plain(member) for name, member in value.items()}
        case list() | tuple():
            return [_plain(element) for element in value]
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case _:
            return value


def _moment(timestamp: object) -> str:
    if not isinstance(timestamp, int) or timestamp < 0:
        return NOTHING
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a producer may say any time
        return str(timestamp)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def word(value: object) -> str:
    """A value of JSON for people: text without quotes."""
    if value is None:
        return NOTHING
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
