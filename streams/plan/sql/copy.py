"""COPY: the answer of a SELECT, as Parquet files below a URI."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from streams.errors import InvalidStatement
from streams.ids import Timestamp
from streams.plan.sql.select import Select, query, select
from streams.plan.sql.tokens import Cursor

USAGE = (
    "COPY (SELECT ... [AS OF time]) | view [AS OF time] TO 'URI'"
    " [WITH (FORMAT PARQUET, MAX FILE SIZE '256 MiB', REPLICA name)]"
)

FILE_BYTES = 256 << 20
LEAST_FILE_BYTES = 64 << 10
MOST_FILE_BYTES = 1 << 40

_UNITS: Mapping[str, int] = {
    "B": 1,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
_SHOWN = {"MAX FILE": "MAX FILE SIZE"}
_SIZE = re.compile(r"\s*([0-9]{1,15})\s*([A-Za-z]+)\s*")
_BY_WORD = {unit.lower(): size for unit, size in _UNITS.items()}


@dataclass(frozen=True, slots=True)
class CopyTo:
    """Write the answer of `selected` to a directory that `uri` names.

    A file has at most about `file_bytes` bytes. `replica` names the replica that reads and
    writes; empty: the coordinator does.
    """

    selected: Select
    uri: str
    file_bytes: int = FILE_BYTES
    replica: str = ""


def copy(cursor: Cursor) -> CopyTo:
    """`(query) | name [AS OF time] TO 'uri' [WITH (...)]`. Errors: InvalidStatement."""
    selected = _in_brackets(cursor) if cursor.accept("(") else _named(cursor)
    if not cursor.accept("TO"):
        raise InvalidStatement("expected TO and a URI", hint=f"the statement is {USAGE}")
    uri = cursor.string("a URI in quotes, as 'file:///directory/name'")
    file_bytes, replica = _options(cursor)
    return CopyTo(selected, uri, file_bytes, replica)


def _in_brackets(cursor: Cursor) -> Select:
    """The query up to the bracket that closes the one before the cursor."""
    begin, depth = cursor.position, 1
    while depth:
        if cursor.current is None:
            raise cursor.refused(")")
        token = cursor.take()
        depth += {"(": 1, ")": -1}.get(cursor.source[token.start : token.end], 0)
    inside = Cursor(cursor.source, cursor.tokens[: cursor.position - 1], USAGE, begin)
    if inside.current is None:
        inside = Cursor(cursor.source, cursor.tokens, USAGE, begin)
        raise inside.refused("SELECT")
    query(Cursor(cursor.source, inside.tokens, USAGE, begin))  # it begins as one
    return select(inside)


def _named(cursor: Cursor) -> Select:
    begin = cursor.position
    cursor.relation("the name of a view or source, or a SELECT in brackets")
    first, last = cursor.tokens[begin], cursor.tokens[cursor.position - 1]
    text = f"SELECT * FROM {cursor.source[first.start : last.end]}"
    if not cursor.accept("AS"):
        return Select(text, None)
    cursor.expect("OF")
    return Select(text, Timestamp(cursor.integer("a time in milliseconds")))


def _options(cursor: Cursor) -> tuple[int, str]:
    """`[WITH (option, ...)]`: the bytes of a file, and the name of a replica."""
    file_bytes, replica, seen = FILE_BYTES, "", set[str]()
    if not cursor.accept("WITH"):
        return file_bytes, replica
    cursor.expect("(")
    while True:
        option = cursor.choose(("FORMAT", "MAX FILE", "REPLICA"))
        match option:
            case "FORMAT":
                cursor.expect("PARQUET")
            case "MAX FILE":
                cursor.expect("SIZE")
                file_bytes = size(cursor.string("a size in quotes, as '256 MiB'"))
            case _:
                replica = cursor.name("the name of a replica")
        if option in seen:
            raise InvalidStatement(f"option {_SHOWN.get(option, option)} appears twice")
        seen.add(option)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return file_bytes, replica


def size(text: str) -> int:
    """Return the bytes of a size as '256 MiB'. Errors: InvalidStatement."""
    parsed = _SIZE.fullmatch(text)
    unit = _BY_WORD.get(parsed[2].lower()) if parsed else None
    number = int(parsed[1]) * unit if parsed and unit else None
    if number is None or not LEAST_FILE_BYTES <= number <= MOST_FILE_BYTES:
        raise InvalidStatement(
            f"expected a size of a file from 64 KiB to 1024 GiB, actual '{text[:40]}'",
            f"a size is a whole number and one of {', '.join(_UNITS)}",
            "write MAX FILE SIZE '256 MiB'",
        )
    return number
