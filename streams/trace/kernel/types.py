"""The parts of DuckDB's nested types, from their text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_NAMED = re.compile(r'\s*("(?:[^"]|"")*"|\S+)\s+(.*)', re.DOTALL)
_SUFFIX = re.compile(r"(.*)\[(\d*)\]", re.DOTALL)
_COMPOSED = re.compile(r"(STRUCT|TUPLE|MAP|UNION)\((.*)\)", re.DOTALL)
_MARK = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[(),]""")

DEEPEST_TYPE = 24
"""Maximum nesting of a column's type: Arrow's C interface takes 64 levels, two for a MAP."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A nested type: LIST, ARRAY, STRUCT, TUPLE, MAP or UNION, with the types inside it.

    `spelled` are the names of a STRUCT's or UNION's members as SQL, in quotes where they need
    them; `size` is the text of an ARRAY's.
    """

    kind: str
    types: tuple[str, ...]
    spelled: tuple[str, ...] = ()
    size: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the members."""
        return tuple(map(_unquoted, self.spelled))


@lru_cache(maxsize=4096)
def parts(type_: str) -> Parts | None:
    """The parts of a type, given its text as DuckDB prints it; None if it is not nested."""
    if suffix := _SUFFIX.fullmatch(type_):
        return Parts("ARRAY" if suffix[2] else "LIST", (suffix[1],), size=suffix[2])
    composed = _COMPOSED.fullmatch(type_)
    if not composed:
        return None
    kind, members = composed[1], _members(composed[2])
    if kind in {"TUPLE", "MAP"}:
        return Parts(kind, tuple(member.strip() for member in members))
    named = [match for member in members if (match := _NAMED.fullmatch(member))]
    return Parts(kind, tuple(n[2] for n in named), tuple(n[1] for n in named))


def is_deeper(type_: str, levels: int) -> bool:
    """Whether types are nested in more than so many levels."""
    types: Sequence[str] = (type_,)
    for _ in range(levels + 1):
        types = [inner for outer in types if (inside := parts(outer)) for inner in inside.types]
    return bool(types)


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _members(text: str) -> list[str]:
    """The text cut at the commas that stand in no brackets and no quotes."""
    members, start, depth = [], 0, 0
    for mark in _MARK.finditer(text):
        depth += (mark[0] == "(") - (mark[0] == ")")
        if mark[0] == "," and not depth:
            members.append(text[start : mark.start()])
            start = mark.end()
    return [*members, text[start:]]
