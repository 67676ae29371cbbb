"""Limits of statements, so that parsers and planners stay within their stacks.

DuckDB's parser takes more than linear time for brackets that are never closed, its plan is read
by recursion, and ours is made by recursion; so how deep a statement is nested is looked at
before any of them sees it.
"""

from collections.abc import Sequence

from sqlglot.tokenizer_core import TokenType

from streams.errors import InvalidStatement
from streams.plan.sql.tokens import Token, place

DEEPEST = 100
"""Maximum nesting of brackets: more than people write, less than stacks hold."""

MOST_STATEMENTS = 1000
"""Maximum of statements in one text."""

_OPENS = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSES = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}


def check_text(text: str) -> None:
    """Errors: InvalidStatement for characters that no name or string can contain."""
    if "\0" in text:
        raise InvalidStatement(
            "the text holds a NUL character",
            place(text, text.index("\0")),
            "write chr(0) for one in a string",
        )


def check_statements(text: str, statements: Sequence[Sequence[Token]]) -> None:
    """Errors: InvalidStatement when they are too many, or one is nested too deeply."""
    if len(statements) > MOST_STATEMENTS:
        raise InvalidStatement(
            f"expected at most {MOST_STATEMENTS} statements, actual {len(statements)}",
            hint="send them in several texts",
        )
    for tokens in statements:
        _check_depth(text, tokens)


def _check_depth(text: str, tokens: Sequence[Token]) -> None:
    depth = 0
    for token in tokens:
        depth += (token.kind in _OPENS) - (token.kind in _CLOSES)
        if depth > DEEPEST:
            raise too_deep(f"more than {DEEPEST} brackets are open, {place(text, token.start)}")


def too_deep(detail: str = "") -> InvalidStatement:
    """The error of a statement that a parser or planner cannot follow."""
    return InvalidStatement(
        "the statement is nested too deeply", detail, "name parts of it by WITH"
    )
