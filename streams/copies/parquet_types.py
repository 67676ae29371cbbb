"""The types that columns of an answer have in Parquet. Pure.

A type that Parquet has is kept. HUGEINT becomes DECIMAL(38,0), which a value must fit. Types
that Parquet lacks become the text that SELECT shows, which a cast reads back. This holds inside
of nested types too. The others are refused by the name of the column.
"""

import re
from collections.abc import Sequence

from streams.errors import InvalidStatement
from streams.plan.physical import Column
from streams.plan.type_names import contains

WIDE = "DECIMAL(38,0)"
"""Of HUGEINT and UHUGEINT."""

REFUSED = ("UNION", "VARIANT", "GEOMETRY", "LAMBDA")
"""Types that have neither a form in Parquet nor a text that is read back."""

_END = r"(?=[\[(),]|$)"
# A word that is followed by another one is the name of a field, but for those of several words.
_ENUM = re.compile(r"\bENUM\((?:'(?:[^']|'')*'(?:, )?)*\)")
_NAME = re.compile(r'("(?:[^"]|"")*")')
_FORMS = (
    (re.compile(rf"\bU?HUGEINT{_END}"), WIDE),
    (re.compile(rf"\bTIMESTAMP_S{_END}"), "TIMESTAMP_MS"),
    (re.compile(rf"\b(INTERVAL|BIT|UUID|JSON|BIGNUM|TIME WITH TIME ZONE){_END}"), "VARCHAR"),
)


def parquet_type(duckdb_type: str) -> str:
    """Return the DuckDB type whose values stand in Parquet for those of a DuckDB type."""
    # Values of an ENUM may hold quotes and words of types.
    pieces = _NAME.split(_ENUM.sub("VARCHAR", duckdb_type))
    return "".join(piece if piece.startswith('"') else _replaced(piece) for piece in pieces)


def _replaced(text: str) -> str:
    for pattern, form in _FORMS:
        text = pattern.sub(form, text)
    return text


def refuse_columns(columns: Sequence[Column]) -> None:
    """Errors: InvalidStatement for columns that cannot be in one Parquet file."""
    seen: dict[str, str] = {}
    for column in columns:
        name = column.name.casefold()
        if name in seen:
            raise InvalidStatement(
                f"COPY expected columns of different names, actual {column.name} twice",
                "readers of Parquet compare names without case",
                f"name one of them otherwise: SELECT ... AS {column.name}_2",
            )
        seen[name] = column.type
        for kind in REFUSED:
            if contains(column.type, kind):
                raise InvalidStatement(
                    f"COPY cannot write column {column.name} of type {column.type}",
                    f"{kind} has no form in Parquet",
                    f"write it as text: CAST({column.name} AS VARCHAR)",
                )
