"""The Arrow types that chunks have, as a stranger reads them off the page's table of types."""

import json
import re

import pyarrow as pa

PLAIN: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "HUGEINT": pa.opaque(pa.binary(16), "hugeint", "DuckDB"),
    "UHUGEINT": pa.opaque(pa.binary(16), "uhugeint", "DuckDB"),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.utf8(),
    "JSON": pa.json_(pa.utf8()),
    "BLOB": pa.binary(),
    "UUID": pa.uuid(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP_S": pa.timestamp("s"),
    "TIMESTAMP_MS": pa.timestamp("ms"),
    "TIMESTAMP_NS": pa.timestamp("ns"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "INTERVAL": pa.month_day_nano_interval(),
    "TIMETZ": pa.opaque(pa.binary(8), "time_tz", "DuckDB"),
    "BIT": pa.opaque(pa.binary(), "bit", "DuckDB"),
    "BIGNUM": pa.opaque(pa.binary(), "bignum", "DuckDB"),
}


def schema(description: str) -> pa.Schema:
    """The columns of a collection, from its description."""
    columns = json.loads(description)["columns"]
    return pa.schema([(column["name"], arrow(column["type"])) for column in columns])


def arrow(text: str) -> pa.DataType:
    """The Arrow type in which a DuckDB type is written."""
    if listed := re.fullmatch(r"(.*)\[(\d*)\]", text):
        inner, size = arrow(listed[1]), listed[2]
        return pa.list_(inner, int(size)) if size else pa.list_(inner)
    name, _, rest = text.partition("(")
    inside = parts(rest[:-1])
    match name:
        case "DECIMAL":
            return pa.decimal128(*map(int, inside))
        case "ENUM":
            return pa.utf8()
        case "STRUCT":
            return pa.struct([named(part) for part in inside])
        case "MAP":
            return pa.map_(*map(arrow, inside))
        case "UNION":
            fields = [named(part) for part in inside]
            tag, names = "tag", {field.name.lower() for field in fields}
            while tag in names:
                tag += "_"
            return pa.struct([pa.field(tag, pa.uint8()), *fields])
        case _:
            return PLAIN[text]


def named(text: str) -> pa.Field:
    """A field of a struct or a union: its name and its type."""
    name, _, kind = text.partition(" ")
    return pa.field(name, arrow(kind))


def parts(text: str) -> list[str]:
    """What commas divide, but for those within parentheses."""
    pieces, depth = [""], 0
    for sign in text:
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += sign
    return [part.strip() for part in pieces if part.strip()]
