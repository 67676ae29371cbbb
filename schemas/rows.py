"""Rows of an output topic as Avro records: the schema follows from the columns.

A record has one nullable field a column, in order. The value of a record is in single-object
encoding, so that it names its schema; the schema itself is published as JSON (the sink says
where). Reading it back needs any Avro library and nothing of ours.

Each DuckDB type has one Avro form, listed in `FORMS`. What Avro has no type for travels as
text: DuckDB's own, or JSON for nested types. A field's attribute `duckdb` is the column's type
and `column` its name, which need not be a name that Avro allows.

Since Avro's numbers end at 64 bits, wider integers are decimals with scale 0.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import fastavro
import pyarrow as pa

from schemas.avro_columns import encode_column
from schemas.codec import Record, Schema, load
from schemas.pieces import binary, joined

AS_IT_IS = "{}"


@dataclass(frozen=True, slots=True)
class Form:
    """How values of the DuckDB types that match `pattern` travel.

    `avro` is the JSON of the Avro type. `sql` turns a column, written `{}`, into an array that
    `schemas.avro_columns` encodes, and `key_sql` into one for a key; where it is `{}`
    the column is that array.
    """

    pattern: str
    avro: str
    sql: str = AS_IT_IS
    key_sql: str = AS_IT_IS


FORMS: tuple[Form, ...] = (
    Form("BOOLEAN", '"boolean"'),
    Form("U?TINYINT|U?SMALLINT|INTEGER", '"int"'),
    Form("BIGINT|UINTEGER", '"long"'),
    Form(
        "UBIGINT|U?HUGEINT",
        '{"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 0}',
    ),
    Form("FLOAT", '"float"'),
    Form("DOUBLE", '"double"'),
    Form("VARCHAR|CHAR|TEXT|JSON", '"string"'),
    Form(r"ENUM\b.*", '"string"'),
    Form("BLOB", '"bytes"'),
    Form("UUID", '{"type": "string", "logicalType": "uuid"}'),
    Form("DATE", '{"type": "int", "logicalType": "date"}'),
    Form("TIME", '{"type": "long", "logicalType": "time-micros"}'),
    Form("TIMESTAMP", '{"type": "long", "logicalType": "local-timestamp-micros"}'),
    Form(
        "TIMESTAMP_(S|MS)",
        '{"type": "long", "logicalType": "local-timestamp-micros"}',
        "epoch_us({}::TIMESTAMP)",
    ),
    Form("TIMESTAMP_NS", '{"type": "long", "logicalType": "local-timestamp-nanos"}'),
    Form(
        "TIMESTAMP WITH TIME ZONE|TIMESTAMPTZ",
        '{"type": "long", "logicalType": "timestamp-micros"}',
    ),
    Form(r"(.*\[\d*\])|STRUCT\b.*|MAP\b.*|UNION\b.*", '"string"', "to_json({})::VARCHAR"),
)
TEXT = Form(".*", '"string"', "{}::VARCHAR", "{}::VARCHAR")


def form_of(duckdb_type: str) -> Form:
    """The form of a type. A decimal's follows from its precision and scale."""
    decimal = re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", duckdb_type)
    if decimal:
        precision, scale = decimal.groups()
        avro = {"type": "bytes", "logicalType": "decimal"}
        sizes = {"precision": int(precision), "scale": int(scale)}
        return Form(re.escape(duckdb_type), json.dumps(avro | sizes))
    nested = FORMS[-1]
    if re.fullmatch(nested.pattern, duckdb_type, re.DOTALL):
        return nested
    matches = (form for form in FORMS if re.fullmatch(form.pattern, duckdb_type, re.DOTALL))
    return next(matches, TEXT)


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The schema of a topic's records and how to fill them.

    `selects` are SQL expressions, one a column, that make ready what `encode_rows` takes, and
    `key_selects` those of a key. Of a name alone the array is the column as it is.
    """

    schema: Schema
    text: str
    fields: tuple[str, ...]
    forms: tuple[Form, ...]
    selects: tuple[str, ...]
    key_selects: tuple[str, ...]

    @property
    def fingerprint(self) -> bytes:
        """The schema's CRC-64-AVRO, as it stands in each message."""
        return self.schema.header[2:]


def row_schema(name: str, columns: Sequence[tuple[str, str]]) -> RowSchema:
    """The schema of rows with these columns, (name, DuckDB type) each.

    `selects` refer to the columns by their positions, as `c0 .. cn`.
    """
    forms = tuple(form_of(kind) for _, kind in columns)
    fields = _field_names([column for column, _ in columns])
    record = {
        "type": "record",
        "name": _avro_name(name),
        "namespace": "slackwater.out",
        "fields": [
            {
                "name": field,
                "type": ["null", json.loads(form.avro)],
                "default": None,
                "column": column,
                "duckdb": kind,
            }
            for field, form, (column, kind) in zip(fields, forms, columns, strict=True)
        ],
    }
    text = json.dumps(record)
    selects = tuple(form.sql.format(f"c{index}") for index, form in enumerate(forms))
    keys = tuple(form.key_sql.format(f"c{index}") for index, form in enumerate(forms))
    return RowSchema(load(name, text), text, fields, forms, selects, keys)


def encode_rows(rows: RowSchema, columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """One message a row. Shape: `columns` are the arrays of `selects`, one for each column.

    Together the messages have at most 2 GiB.
    """
    parts = (part for column in columns for part in encode_column(column))
    return joined(binary(rows.schema.header), *parts)


def decode_row(schema_text: str, message: bytes) -> Record:
    """The record of a message whose published schema is `schema_text`."""
    schema = load("row", schema_text)
    source = BytesIO(message)
    source.seek(len(schema.header))
    record = fastavro.schemaless_reader(source, schema.parsed, None)
    assert isinstance(record, dict), "a row's schema is a record's"
    return record


def _avro_name(name: str) -> str:
    """The nearest name that Avro allows."""
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return clean if re.match(r"[A-Za-z_]", clean) else f"_{clean}"


def _field_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Distinct names that Avro allows, as near to the columns' as can be."""
    taken: list[str] = []
    for column in columns:
        name = base = _avro_name(column)
        number = 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.append(name)
    return tuple(taken)
