"""`EMIT ON CLOSE`, the last clause of a view's query: rows appear when their windows end.

The clause belongs to us and the query before it to DuckDB, so it is cut off by its tokens. It
stays in the text of the view: who plans that text again cannot lose it.

Behind a JOIN that still needs its condition `emit` is a table, or an alias, and `ON close` is
that condition: a query cannot end before it.
"""

from dataclasses import dataclass

from sqlglot.tokenizer_core import TokenType

from streams.errors import InvalidStatement
from streams.plan.sql.tokens import Cursor, Token, place, tokenize

USAGE = "EMIT ON CLOSE [(end of the window)]"

_WORDS = ("EMIT", "ON", "CLOSE")


@dataclass(frozen=True, slots=True)
class Emit:
    """The expression of the clause over the view's columns, as written; empty: not given."""

    expression: str


def emits(query: str) -> bool:
    """Tell whether a view's query has the clause."""
    return split(query)[1] is not None


def split(query: str) -> tuple[str, Emit | None]:
    """The query before the clause, and the clause; None if there is none.

    Errors: InvalidStatement for a clause without anything between its parentheses.
    """
    if _WORDS[-1] not in query.upper():
        return query, None
    tokens = tokenize(query)
    while tokens and tokens[-1].kind is TokenType.SEMICOLON:
        tokens = tokens[:-1]
    opening = _opening(tokens)
    words = len(tokens) if opening is None else opening
    first = words - len(_WORDS)
    if first < 0 or not Cursor(query, tokens, position=first).at(*_WORDS):
        return query, None
    if _lacks_condition(query, tokens[:first]):
        return query, None
    before = query[: tokens[first].start]
    if opening is None:
        return before, Emit("")
    if opening + 2 == len(tokens):
        raise InvalidStatement(
            "expected an expression, actual )",
            place(query, tokens[-1].start),
            f"the clause is {USAGE}",
        )
    return before, Emit(query[tokens[opening].end : tokens[-1].start].strip())


def _lacks_condition(query: str, tokens: tuple[Token, ...]) -> bool:
    """Whether a JOIN outside of parentheses has no ON or USING yet, and needs one."""
    depth = open_joins = 0
    for number, token in enumerate(tokens):
        kind = token.kind
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if depth or kind in {TokenType.L_PAREN, TokenType.R_PAREN}:
            continue
        at = Cursor(query, tokens, position=number).at
        if at("JOIN"):
            open_joins += _takes_condition(tokens[:number])
        elif (at("ON") and not _ends_with(tokens[:number], "DISTINCT")) or (
            at("USING") and not at("USING", "SAMPLE")
        ):
            open_joins -= 1
    return open_joins > 0


def _takes_condition(before: tuple[Token, ...]) -> bool:
    """Whether a JOIN behind these tokens has a condition."""
    words = [token.text.upper() for token in before[-3:]]
    while words and words[-1] in _SIDES:
        words.pop()
    return not words or words[-1] not in _UNCONDITIONAL


def _ends_with(tokens: tuple[Token, ...], word: str) -> bool:
    return bool(tokens) and tokens[-1].text.upper() == word


_SIDES = frozenset({"INNER", "LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI"})

_UNCONDITIONAL = frozenset({"CROSS", "NATURAL", "POSITIONAL"})


def _opening(tokens: tuple[Token, ...]) -> int | None:
    """The number of the parenthesis that the last token closes; None if it closes none."""
    if not tokens or tokens[-1].kind is not TokenType.R_PAREN:
        return None
    depth = 0
    for number in reversed(range(len(tokens))):
        kind = tokens[number].kind
        depth += (kind is TokenType.R_PAREN) - (kind is TokenType.L_PAREN)
        if not depth:
            return number
    return None
