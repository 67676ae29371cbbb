"""A strict JSON scanner by RFC 8259, for the messages that are read one by one.

The vectorised path (`decode`) passes on messages that it cannot read with certainty. This
scanner decides them, so it is exact rather than fast: it refuses all that the RFC does (NaN,
trailing commas, comments, control characters in strings, lone surrogates, a byte order mark,
anything behind the document), keeps every number as it was written, keeps duplicate names
apart, and uses no recursion, so that depth is bounded by the message's size alone.

Error texts are our own and depend on the message alone: they become part of error rows, which
must be the same on every replica (rule 38).
"""

import json
import re
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["object", "array", "string", "number", "boolean", "null"]

NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""A number of JSON, for Python, Arrow and DuckDB alike."""

TOKEN = re.compile(
    r"""[ \t\n\r]*+(?:
        (?P<string>"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+")
      | (?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)
      | (?P<boolean>true|false)
      | (?P<null>null)
      | (?P<mark>[{}\[\]:,])
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)

SCALAR, STRING = "scalar", "string"
VALUE, FIRST_ITEM, FIRST_NAME, NAME, COLON, AFTER = range(6)

# The tokens allowed in a state, and the next state. `{`, `[` also open a level, `}`, `]`
# close the one that they match; a comma leads on to what the innermost level holds.
NEXT: dict[tuple[int, str], int] = {
    **{(state, symbol): AFTER for state in (VALUE, FIRST_ITEM) for symbol in (SCALAR, STRING)},
    **{(state, "{"): FIRST_NAME for state in (VALUE, FIRST_ITEM)},
    **{(state, "["): FIRST_ITEM for state in (VALUE, FIRST_ITEM)},
    (FIRST_ITEM, "]"): AFTER,
    (FIRST_NAME, "}"): AFTER,
    (FIRST_NAME, STRING): COLON,
    (NAME, STRING): COLON,
    (COLON, ":"): VALUE,
    (AFTER, ","): AFTER,
    (AFTER, "}"): AFTER,
    (AFTER, "]"): AFTER,
}
INSIDE = {"{": NAME, "[": VALUE}
OPENS = {"}": "{", "]": "["}


class Malformed(Exception):
    """The text is not one JSON document; the message says where."""


@dataclass(frozen=True, slots=True)
class Token:
    """A value as written: `text` is the exact slice of the document."""

    kind: Kind
    text: str


@dataclass(slots=True)
class _Cursor:
    text: str
    at: int = 0
    state: int = VALUE
    levels: list[str] = field(default_factory=list)

    def advance(self) -> tuple[str, int, str]:
        """Read one token: its kind, where it starts, its text. Errors: Malformed."""
        match = TOKEN.match(self.text, self.at)
        if match is None or match.lastgroup is None:
            start = re.compile(r"[ \t\n\r]*").match(self.text, self.at)
            raise _unexpected(self.text, self.at if start is None else start.end())
        kind, word = match.lastgroup, match[match.lastgroup]
        symbol = word if kind == "mark" else STRING if kind == "string" else SCALAR
        state = NEXT.get((self.state, symbol)) if kind != "end" else None
        if state is None or (kind == "mark" and not self._level(word)):
            raise _unexpected(self.text, match.start(kind))
        if kind == "string" and "\\u" in word and not _is_unicode(word):
            raise _unexpected(self.text, match.start(kind))
        self.state = INSIDE[self.levels[-1]] if word == "," else state
        self.at = match.end()
        return kind, match.start(kind), word

    def _level(self, mark: str) -> bool:
        """Open or close a level; False if `mark` closes or separates what is not open."""
        if mark in INSIDE:
            self.levels.append(mark)
        elif mark in OPENS:
            if self.levels[-1:] != [OPENS[mark]]:
                return False
            self.levels.pop()
        return mark != "," or bool(self.levels)


def document(text: str) -> Token:
    """Return the only document in `text`. Errors: Malformed."""
    cursor = _Cursor(text)
    token = _value(cursor)
    _finish(cursor)
    return token


def leading(text: str) -> str:
    """Return the JSON value at the start of `text`, whatever follows. Errors: Malformed."""
    return _value(_Cursor(text)).text


def members(text: str) -> list[tuple[str, Token]]:
    """Return the members of the only object in `text`, in order. Errors: Malformed."""
    cursor = _Cursor(text)
    pairs: list[tuple[str, Token]] = []
    assert cursor.advance()[2] == "{", "the text is an object"
    while cursor.levels:
        kind, _, word = cursor.advance()
        if kind == "string":
            name = unquote(word)
            cursor.advance()
            pairs.append((name, _value(cursor)))
    _finish(cursor)
    return pairs


def items(text: str) -> list[Token]:
    """Return the items of the only array in `text`, which is JSON, in order."""
    cursor = _Cursor(text)
    tokens: list[Token] = []
    assert cursor.advance()[2] == "[", "the text is an array"
    while cursor.levels:
        following = TOKEN.match(text, cursor.at)
        if following is not None and following["mark"] in {",", "]"}:
            cursor.advance()
        else:
            tokens.append(_value(cursor))
    return tokens


def unquote(text: str) -> str:
    """Return the characters of a string token."""
    value = json.loads(text)
    assert isinstance(value, str), "a string token"
    return value


def _value(cursor: _Cursor) -> Token:
    """Read one whole value, nested ones included."""
    depth = len(cursor.levels)
    kind, start, word = cursor.advance()
    while len(cursor.levels) > depth:
        cursor.advance()
    text = cursor.text[start : cursor.at]
    match kind:
        case "string":
            return Token("string", text)
        case "number":
            return Token("number", text)
        case "boolean":
            return Token("boolean", text)
        case "null":
            return Token("null", text)
        case _:
            return Token("object" if word == "{" else "array", text)


def _finish(cursor: _Cursor) -> None:
    rest = re.compile(r"[ \t\n\r]*").match(cursor.text, cursor.at)
    at = cursor.at if rest is None else rest.end()
    if at < len(cursor.text):
        raise Malformed(f"expected one JSON document, actual more at character {at + 1}")


def _is_unicode(string: str) -> bool:
    """Whether every escaped surrogate is one of a pair."""
    try:
        unquote(string).encode()
    except UnicodeEncodeError:
        return False
    return True


def _unexpected(text: str, at: int) -> Malformed:
    if at >= len(text):
        return Malformed("expected JSON, actual a text that ends too early")
    return Malformed(f"expected JSON, actual other text at character {at + 1}")
