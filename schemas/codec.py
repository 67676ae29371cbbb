"""Avro records on the wire, each with the name of its own schema in front.

A message is Avro's *single-object encoding*: the two bytes `C3 01`, the CRC-64-AVRO
fingerprint of the writer's schema in canonical form (8 bytes, little endian), then the body.
The fingerprint says which record it is, so one topic carries many kinds of record and a
reader knows an unknown kind when it sees one.

Every schema is one `.avsc` file under `schemas/avro`, complete in itself: a reader of our
topics in another language takes the file and needs nothing else. A file is never
edited once a message was written with it, for that would change its fingerprint; a new form
is a new file.

Source: Apache Avro 1.12 specification, "Single-object encoding" and "Parsing Canonical Form".
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Any, cast

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from streams.errors import Corrupt

Record = dict[str, Any]  # type: ignore[explicit-any]  # the schema holds the types of the fields

MARKER = b"\xc3\x01"
HEADER_SIZE = 10


@dataclass(frozen=True, slots=True)
class Schema:
    """One `.avsc`: its short name (the file's), the ten bytes in front of a message, itself.

    `raw` is as it stands in the file; parsing gives names their namespaces.
    """

    name: str
    header: bytes
    parsed: Record
    raw: Record


@dataclass(frozen=True, slots=True)
class Registry:
    """All schemas we know, by short name and by header."""

    by_name: Mapping[str, Schema]
    by_header: Mapping[bytes, Schema]


@cache
def registry() -> Registry:
    """The schemas in the package, parsed once a process."""
    schemas = [
        load(entry.name.removesuffix(".avsc"), entry.read_text(encoding="utf-8"))
        for entry in sorted((files("schemas") / "avro").iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".avsc")
    ]
    by_header = {schema.header: schema for schema in schemas}
    assert len(by_header) == len(schemas), "two schemas with one canonical form"
    return Registry({schema.name: schema for schema in schemas}, by_header)


def load(name: str, text: str) -> Schema:
    """Parse one schema."""
    raw = cast("Record", json.loads(text))
    parsed = cast("Record", fastavro.parse_schema(raw))
    canonical = to_parsing_canonical_form(parsed)
    # fastavro prints the fingerprint's bytes in the order in which they go on the wire
    header = MARKER + bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))
    return Schema(name, header, parsed, raw)


def encode(schema_name: str, record: Record) -> bytes:
    """One message: header and body."""
    schema = registry().by_name[schema_name]
    sink = BytesIO()
    sink.write(schema.header)
    fastavro.schemaless_writer(sink, schema.parsed, record)
    return sink.getvalue()


def decode(message: bytes, *, leave_out: frozenset[str] = frozenset()) -> tuple[str, Record]:
    """The short name of the message's schema, and the record.

    Fields that are left out are passed over, which takes an eighth of the time. No type may be
    defined in one of them that another one needs.

    Errors: Corrupt when there is no header, no such schema, or no such body; the caller knows
    where the message lay and adds it.
    """
    schema = registry().by_header.get(message[:HEADER_SIZE])
    if schema is None:
        raise Corrupt(f"avro header: expected a known schema, actual {message[:10].hex()!r}")
    source = BytesIO(message)
    source.seek(HEADER_SIZE)
    try:
        wanted = without(schema.name, leave_out) if leave_out else None
        record = cast("Record", fastavro.schemaless_reader(source, schema.parsed, wanted))
    except (EOFError, IndexError, ValueError, OverflowError, KeyError) as cause:
        raise Corrupt(f"avro body of schema {schema.name}: {cause}") from cause
    if source.tell() != len(message):
        surplus = len(message) - source.tell()
        raise Corrupt(f"avro body of schema {schema.name}: {surplus} bytes too many")
    return schema.name, record


@cache
def without(name: str, leave_out: frozenset[str]) -> Record:
    """The schema without some of its fields, for readers who do not want them."""
    raw = registry().by_name[name].raw
    fields = [field for field in raw["fields"] if field["name"] not in leave_out]
    return cast("Record", fastavro.parse_schema({**raw, "fields": fields}))


def name_of(message: bytes) -> str | None:
    """The short name of the message's schema without reading its body; None when unknown."""
    schema = registry().by_header.get(message[:HEADER_SIZE])
    return schema.name if schema else None
