"""Avro single-object encoding with nothing but fastavro and the schema files."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

FOLDER = Path(__file__).parents[2] / "schemas" / "avro"

PARSED: dict[str, Any] = {}
NAMES: dict[bytes, str] = {}
HEADERS: dict[str, bytes] = {}
for _file in FOLDER.glob("*.avsc"):
    _parsed = fastavro.parse_schema(json.loads(_file.read_text()))
    _crc = bytes.fromhex(fingerprint(to_parsing_canonical_form(_parsed), "CRC-64-AVRO"))
    PARSED[_file.stem] = _parsed
    HEADERS[_file.stem] = b"\xc3\x01" + _crc
    NAMES[b"\xc3\x01" + _crc] = _file.stem


def encode(name: str, record: dict[str, Any]) -> bytes:
    sink = BytesIO()
    sink.write(HEADERS[name])
    fastavro.schemaless_writer(sink, PARSED[name], record)
    return sink.getvalue()


def is_known(value: bytes | None) -> bool:
    """Whether a value begins as one of the schemas does."""
    return value is not None and value[:10] in NAMES


def decode(value: bytes | None) -> tuple[str, dict[str, Any]]:
    assert value is not None
    name = NAMES[value[:10]]
    record: Any = fastavro.schemaless_reader(BytesIO(value[10:]), PARSED[name], None)
    return name, record
