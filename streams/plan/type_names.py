"""The names of DuckDB's types, from its serialised plans, spelled as DuckDB prints them.

Everything of ours keeps types as such text: it is what a user reads, what DuckDB parses in a
cast, and equal types have equal text. The type of a bare NULL has no stored form, so
`"NULL"` becomes INTEGER wherever it would reach a column (DuckDB does so in CREATE TABLE).
"""

import re
from collections.abc import Iterable

from streams.plan.duckdb_plan import Record
from streams.plan.keywords import KEYWORDS, RESERVED

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_QUOTES = re.compile(r"""'[^']*'|"[^"]*\"""")


def identifier(name: str) -> str:
    """The name, in quotes where it needs them."""
    return _quoted_if(name, RESERVED)


def _quoted_if(name: str, words: frozenset[str]) -> str:
    plain = _PLAIN.match(name) and name.lower() not in words
    return name if plain else quoted(name)


def quoted(name: str) -> str:
    """The name in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def type_name(record: Record) -> str:
    """The text of a serialised type."""
    kind = record.text("id")
    if not record.has("type_info"):
        return '"NULL"' if kind in {"NULL", "SQLNULL"} else kind
    info = record.record("type_info")
    if info.text("type") == "GENERIC_TYPE_INFO":
        return info.text("alias") or kind
    render = _NESTED.get(kind)
    return render(info) if render else kind


def stored_type(type_: str) -> str:
    """The type a column of this type has once it is stored."""
    return type_.replace('"NULL"', "INTEGER")


def contains(type_: str, kind: str) -> bool:
    """Tell whether a type is of this kind (`ENUM`) or has one that is inside it."""
    # A word that is followed by another one is the name of a field.
    return bool(re.search(rf"\b{kind}(?=[\[(),]|$)", _QUOTES.sub("", type_)))


def _decimal(info: Record) -> str:
    return f"DECIMAL({info.number('width')},{info.number('scale')})"


def _list(info: Record) -> str:
    return f"{type_name(info.record('child_type'))}[]"


def _array(info: Record) -> str:
    return f"{type_name(info.record('child_type'))}[{info.number('size')}]"


def _fields(info: Record) -> list[tuple[str, str]]:
    return [
        (child.text("first"), type_name(child.record("second")))
        for child in info.records("child_types")
    ]


def struct_type(fields: Iterable[tuple[str, str]]) -> str:
    """The type of a struct of these names and types."""
    return "STRUCT(" + ", ".join(f"{_quoted_if(n, KEYWORDS)} {t}" for n, t in fields) + ")"


def _struct(info: Record) -> str:
    return struct_type(_fields(info))


def _tuple(info: Record) -> str:
    return "TUPLE(" + ", ".join(t for _, t in _fields(info)) + ")"


def _union(info: Record) -> str:
    # The first member is the tag, which has no name and which DuckDB does not print.
    return (
        "UNION("
        + ", ".join(f"{_quoted_if(n, KEYWORDS)} {t}" for n, t in _fields(info)[1:])
        + ")"
    )


def _map(info: Record) -> str:
    (_, key), (_, value) = _fields(info.record("child_type").record("type_info"))
    return f"MAP({key}, {value})"


def _enum(info: Record) -> str:
    values = (value.replace("'", "''") for value in info.texts("values"))
    return "ENUM(" + ", ".join(f"'{value}'" for value in values) + ")"


_NESTED = {
    "DECIMAL": _decimal,
    "LIST": _list,
    "ARRAY": _array,
    "STRUCT": _struct,
    "TUPLE": _tuple,
    "UNION": _union,
    "MAP": _map,
    "ENUM": _enum,
}
