"""The column types that a source may declare: those that JSON represents without loss.

What a message must hold for each is said where messages are read (`streams.replica.ingest`).
"""

import re
from collections.abc import Sequence

from streams.errors import InvalidStatement
from streams.plan.physical import Column
from streams.trace.kernel.types import DEEPEST_TYPE, is_deeper, parts

PLAIN = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "UHUGEINT",
    "FLOAT",
    "DOUBLE",
    "VARCHAR",
    "BLOB",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP WITH TIME ZONE",
    "UUID",
    "JSON",
)
"""All but DECIMAL, which has a width and a scale, and those with parts."""

NESTED = ("LIST", "STRUCT", "MAP")

_DECIMAL = re.compile(r"DECIMAL\(([0-9]+),\s*([0-9]+)\)")


def decimal(type_: str) -> tuple[int, int] | None:
    """Width and scale of a DECIMAL; None for another type."""
    match = _DECIMAL.fullmatch(type_)
    return (int(match[1]), int(match[2])) if match else None


def is_source_type(type_: str) -> bool:
    """Tell whether a source's column may be of the type, spelled as DuckDB prints it."""
    inside = parts(type_)
    if inside is None:
        return type_ in PLAIN or decimal(type_) is not None
    if inside.kind not in NESTED or (inside.kind == "MAP" and inside.types[0] != "VARCHAR"):
        return False
    return all(map(is_source_type, inside.types))


def refuse_source_types(columns: Sequence[Column]) -> None:
    """Errors: InvalidStatement for a column that messages cannot fill."""
    for column in columns:
        if is_deeper(column.type, DEEPEST_TYPE):
            raise InvalidStatement(
                f"column {column.name} has more than {DEEPEST_TYPE} types in each other",
                f"actual {column.type[:40]}...",
                "declare it JSON, and take it apart in a view",
            )
        if not is_source_type(column.type):
            raise InvalidStatement(
                f"column {column.name} of type {column.type} cannot be read from a topic",
                f"a source's columns are {', '.join(PLAIN)} or DECIMAL(width, scale), or"
                " type[], STRUCT(...) or MAP(VARCHAR, type) of them",
                "declare it JSON or VARCHAR, and take it apart in a view",
            )
