"""The clauses about messages that cannot be decoded: ON ERROR, ERROR LIMIT, and ALTER SOURCE.

WITH (ERROR LIMIT 100), WITH (ERROR LIMIT '0.5 %')
ALTER SOURCE name SET (ON ERROR SKIP, ERROR LIMIT 100 | '0.5 %' | NONE)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from sqlglot.tokenizer_core import TokenType

from streams.errors import InvalidStatement
from streams.plan.metadata import ErrorLimit, OnError
from streams.plan.sql.tokens import Cursor

CHOICES = "DEAD LETTER | INLINE | FAIL | SKIP"
ON_ERROR_USAGE = f"[ON ERROR {CHOICES}]"
LIMIT_USAGE = "ERROR LIMIT number | 'share %'"
ALTER_USAGE = f"ON ERROR {CHOICES}, {LIMIT_USAGE} | NONE"

LIMIT = "ERROR LIMIT"
OPTIONS = ("ON ERROR", LIMIT)
"""What ALTER SOURCE ... SET may say of messages."""

_ON_ERROR: Mapping[str, OnError] = {
    "DEAD LETTER": "dead_letter",
    "INLINE": "inline",
    "FAIL": "fail",
    "SKIP": "skip",
}
_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,4})?) *%", re.ASCII)

_WHOLE = 1_000_000

LARGEST = 10**15
"""The greatest number of messages that a limit may be."""


@dataclass(frozen=True, slots=True)
class AlterErrors:
    """Change the handling of a source's bad messages; None: unchanged."""

    name: str
    on_error: OnError | None
    limit: ErrorLimit | None


def on_error(cursor: Cursor) -> OnError | None:
    """`[ON ERROR ...]`; None if the statement does not say it. Errors: InvalidStatement."""
    if not cursor.accept("ON", "ERROR"):
        return None
    return _ON_ERROR[cursor.choose(tuple(_ON_ERROR))]


def spelled(on_error: OnError) -> str:
    """Return it as the statement writes it."""
    return on_error.replace("_", " ").upper()


def limit(cursor: Cursor) -> ErrorLimit:
    """The value of ERROR LIMIT: a number, or a share as '1 %'. Errors: InvalidStatement."""
    token = cursor.current
    if token is not None and token.kind is TokenType.NUMBER:
        number = cursor.integer("a number of messages")
        if number > LARGEST:
            raise InvalidStatement(f"{LIMIT} is {number}", f"expected at most {LARGEST}")
        return ErrorLimit(number=number)
    text = cursor.string("a number of messages, or a share in quotes as '1 %'")
    share = _SHARE.fullmatch(text.strip())
    millionths = None if share is None else int(Decimal(share[1]) * 10_000)
    if millionths is None or not 0 < millionths < _WHOLE:
        raise InvalidStatement(
            f"'{text}' is not a share of messages",
            "expected more than 0 % and less than 100 %, at most four decimals, as '0.5 %', or"
            " a number of messages without quotes",
        )
    return ErrorLimit(millionths=millionths)


def is_alter(cursor: Cursor, others: tuple[str, ...]) -> bool:
    """Tell whether SET is about bad messages; `others` are the options that are not.

    Errors: InvalidStatement for none of them all.
    """
    start = cursor.position
    cursor.expect("(")
    option = cursor.choose((*others, *OPTIONS))
    cursor.position = start
    return option in OPTIONS


def alter(cursor: Cursor, name: str) -> AlterErrors:
    """Read `(ON ERROR ..., ERROR LIMIT ...)`, one of them or both. Errors: InvalidStatement."""
    said: OnError | None = None
    declared: ErrorLimit | None = None
    cursor.expect("(")
    while True:
        option = cursor.choose(OPTIONS)
        if (said if option == "ON ERROR" else declared) is not None:
            raise InvalidStatement(f"option {option} appears twice")
        if option == "ON ERROR":
            said = _ON_ERROR[cursor.choose(tuple(_ON_ERROR))]
        else:
            declared = ErrorLimit() if cursor.accept("NONE") else limit(cursor)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return AlterErrors(name, said, declared)
