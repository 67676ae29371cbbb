"""Decodes one message at a time: its values, or the reason why it has none.

This defines decoding; `batch` is a faster way to the same values. The first error is the
reason, in this order: the message is absent, empty, not UTF-8, not one JSON document, not an
object; then, column by column as declared, a column that is given twice or a value that does
not fit.
"""

from collections.abc import Mapping, Sequence

from streams.replica.ingest.fields import Field, Value
from streams.replica.ingest.scan import Malformed, Token, document, members

SPACE = b" \t\n\r"
CALLED = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "number": "a number",
    "boolean": "a boolean",
    "null": "null",
}


class UndecodableValue(Exception):
    """The message cannot be decoded; the text is the reason."""


def read(raw: bytes | None, fields: Sequence[Field]) -> list[Value | None]:
    """Return the parsed value of each field; None for NULL and for fields that are not parsed.

    Errors: UndecodableValue.
    """
    if raw is None:
        raise UndecodableValue("expected a JSON object, actual nothing")
    tokens = _members(_text(raw))
    return [_value(field, tokens) for field in fields]


def _text(raw: bytes) -> str:
    if not raw.strip(SPACE):
        raise UndecodableValue("expected a JSON object, actual an empty text")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UndecodableValue(
            f"expected UTF-8, actual other bytes at byte {error.start + 1}"
        ) from None


def _members(text: str) -> Mapping[str, list[Token]]:
    tokens: dict[str, list[Token]] = {}
    try:
        if not text.lstrip(SPACE.decode()).startswith("{"):
            raise UndecodableValue(
                f"expected a JSON object, actual {CALLED[document(text).kind]}"
            )
        for name, token in members(text):
            tokens.setdefault(name, []).append(token)
    except Malformed as error:
        raise UndecodableValue(str(error)) from None
    return tokens


def _value(field: Field, members: Mapping[str, list[Token]]) -> Value | None:
    tokens = members.get(field.name, [])
    if len(tokens) > 1:
        opening = field.opening or f'member "{field.name}'  # of columns with a path through it
        raise UndecodableValue(f'{opening}": given {len(tokens)} times')
    if not tokens or tokens[0].kind == "null" or field.parsed is None:
        return None
    value = field.read(tokens[0])
    if value is None:
        raise UndecodableValue(field.expected(tokens[0].text))
    return value
