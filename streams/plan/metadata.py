"""Columns of a source that are not members of the value: parts of messages, nested members."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Part = Literal["partition", "offset", "timestamp", "headers", "key"]

TYPES: Mapping[Part, str] = {
    "partition": "INTEGER",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "headers": 'STRUCT("key" VARCHAR, "value" BLOB)[]',
    "key": "BLOB",
}
"""The types of the parts of a message, as DuckDB prints them; a key of text is a VARCHAR."""


@dataclass(frozen=True, slots=True)
class Included:
    """A part of each message, and the name of the column that holds it."""

    part: Part
    column: str


@dataclass(frozen=True, slots=True)
class Located:
    """A column and the members' names on the way to its value: `PATH '$.a.b'`. At least one."""

    column: str
    path: tuple[str, ...]
