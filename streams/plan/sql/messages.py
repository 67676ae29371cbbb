"""The clauses of CREATE SOURCE about messages: formats of keys and values."""

import json
import re
from dataclasses import dataclass
from typing import Literal, cast

from streams.errors import InvalidStatement
from streams.plan.metadata import TYPES, Included, Located, Part
from streams.plan.physical import Column
from streams.plan.sql.tokens import Cursor

KeyFormat = Literal["json", "text", "bytes"]

KEY_FORMATS: tuple[str, ...] = ("JSON", "TEXT", "BYTES")
USAGE = (
    "[KEY FORMAT JSON | TEXT | BYTES] [VALUE] FORMAT JSON"
    " [INCLUDE PARTITION | OFFSET | TIMESTAMP | HEADERS | KEY [AS column], ...]"
)
DEEPEST_PATH = 24
"""Maximum of members in a path: messages are taken apart by recursion."""

_NAME = re.compile(r'\.(?:[^\W\d]\w*|"(?:[^"\\]|\\.)*")')
_PATH = re.compile(rf"\$(?:{_NAME.pattern})+")
_PARTS = tuple(part.upper() for part in TYPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """The formats of messages. `key_format` is None if the statement does not give one."""

    key_format: KeyFormat | None = None
    included: tuple[Included, ...] = ()
    located: tuple[Located, ...] = ()


def messages(
    cursor: Cursor, columns: tuple[Column, ...], located: tuple[Located, ...]
) -> Messages:
    """`[KEY FORMAT ...] [VALUE] FORMAT JSON [INCLUDE ...]`, behind the declared columns.

    Errors: InvalidStatement.
    """
    key_format: KeyFormat | None = None
    if cursor.accept("KEY", "FORMAT"):
        key_format = cast("KeyFormat", cursor.choose(KEY_FORMATS).lower())
    cursor.accept("VALUE")
    cursor.expect("FORMAT", "JSON")
    included = _included(cursor, columns)
    return Messages(key_format=key_format, included=included, located=located)


def path(cursor: Cursor, column: str) -> Located | None:
    """`[PATH '$.a.b']`, behind a column's type. Errors: InvalidStatement."""
    if not cursor.accept("PATH"):
        return None
    text = cursor.string("a path in quotes, as '$.a.b'")
    if not _PATH.fullmatch(text):
        raise InvalidStatement(
            f"path '{text}' of column {column} is not valid",
            "expected $ and names of members, as $.a.b",
            'put a name with other characters in quotes: $.a."b c"; for items of a list declare'
            " the list",
        )
    names = tuple(_name(match[0][1:]) for match in _NAME.finditer(text))
    if len(names) > DEEPEST_PATH:
        raise InvalidStatement(
            f"the path of column {column} has {len(names)} members",
            f"expected at most {DEEPEST_PATH}",
            "declare the column JSON, and take it apart in a view",
        )
    return Located(column, names)


def _name(word: str) -> str:
    """Return the name of a member as written in a path. Errors: InvalidStatement."""
    try:
        name: str = json.loads(word) if word.startswith('"') else word
        name.encode()
    except ValueError as error:
        raise InvalidStatement(
            f"name {word} in a path is not valid", "expected a string as in JSON"
        ) from error
    return name


def refuse_paths_of_keys(located: tuple[Located, ...], keys: tuple[str, ...]) -> None:
    """Errors: InvalidStatement for a key column with a path."""
    for column in located:
        if column.column in keys:
            raise InvalidStatement(
                f"key column {column.column} has a PATH",
                "key columns are read from the message's key, by their names",
            )


def _included(cursor: Cursor, columns: tuple[Column, ...]) -> tuple[Included, ...]:
    if not cursor.accept("INCLUDE"):
        return ()
    included = [_one_included(cursor)]
    while cursor.accept(","):
        included.append(_one_included(cursor))
    taken = {column.name.lower() for column in columns}
    for column in included:
        if column.column.lower() in taken:
            raise InvalidStatement(
                f"column {column.column} of INCLUDE appears twice",
                hint=f"give it another name: INCLUDE {column.part.upper()} AS ...",
            )
        taken.add(column.column.lower())
    return tuple(included)


def _one_included(cursor: Cursor) -> Included:
    part = cast("Part", cursor.choose(_PARTS).lower())
    name = cursor.name("a column name") if cursor.accept("AS") else part
    return Included(part, name)
