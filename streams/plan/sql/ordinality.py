"""Rewrites WITH ORDINALITY, whose plan DuckDB binds but does not serialize whole.

    unnest(list) WITH ORDINALITY AS e(x, place)
    (SELECT unnest(v), unnest(range(1, len(v) + 1)) FROM (SELECT list AS v)) AS e(x, place)

A call that is numbered becomes a subquery of the same columns, before anything is bound. It
keeps the alias that follows it, and may stand wherever the call may: alone, LATERAL, in a join.
"""

from collections.abc import Sequence

from sqlglot.tokenizer_core import TokenType

from streams.errors import InvalidStatement
from streams.plan.keywords import RESERVED
from streams.plan.sql.tokens import Token, tokenize
from streams.plan.type_names import quoted

_LISTS = frozenset({"unnest", "generate_series", "range"})
_VALUES = '"values of the call"'
_NODES = frozenset({"json_each", "json_tree"})  # their rows are numbered in the text's order
_JOINS = frozenset({"anti", "asof", "cross", "full", "inner", "join", "left", "natural"}) | {
    "positional", "right", "sample", "semi", "tablesample",
}  # fmt: skip
"""Words that DuckDB does not reserve and that yet are no alias without AS."""


def rewrite_ordinality(query: str) -> str:
    """The query with a subquery for each call WITH ORDINALITY; of other functions they stay.

    Errors: InvalidStatement for an alias without names of columns: DuckDB calls the first one
    like the alias, or like the function, as the arguments read columns or not.
    """
    while True:
        tokens = tokenize(query)
        # from the right: what is inside an argument is rewritten before what is around it
        places = [
            place for place in reversed(range(len(tokens) - 2)) if _is_numbered(tokens, place)
        ]
        calls = (_rewritten(query, tokens, place) for place in places)
        first_text = next((text for text in calls if text is not None), None)
        if first_text is None:
            return query
        query = first_text


def _is_numbered(tokens: Sequence[Token], place: int) -> bool:
    """Whether a closing bracket and the words WITH ORDINALITY stand there."""
    words = [token.text.upper() for token in tokens[place : place + 3]]
    names = {token.kind for token in tokens[place : place + 3]}
    return words == [")", "WITH", "ORDINALITY"] and TokenType.IDENTIFIER not in names


def _rewritten(query: str, tokens: Sequence[Token], closing: int) -> str | None:
    """The query with this call rewritten, if it is of a function that we know."""
    opening = _opening(tokens, closing)
    if opening < 1:
        return None
    name = tokens[opening - 1]
    arguments = query[tokens[opening].end : tokens[closing].start]
    alias = _alias(query, tokens, closing + 3)
    if name.text.lower() in _LISTS:
        if alias is not None and not _names_columns(tokens, alias):
            called = tokens[alias].text
            raise InvalidStatement(
                f"the columns of {called} WITH ORDINALITY have no names",
                hint=f"write {called}(x, place)",
            )
        listed = arguments if name.text.lower() == "unnest" else f"{name.text}({arguments})"
        inner = (
            f"SELECT unnest({_VALUES}) AS {quoted(name.text)},"
            f" unnest(range(1, len({_VALUES}) + 1)) AS ordinality"
            f" FROM (SELECT {listed} AS {_VALUES})"
        )
    elif name.text.lower() in _NODES:
        call = f"{name.text}({arguments})"
        inner = f"SELECT *, row_number() OVER (ORDER BY id) AS ordinality FROM {call}"
    else:
        return None
    called = "" if alias is not None else f" AS {quoted(name.text)}"
    behind = tokens[closing + 2].end
    return f"{query[: name.start]}({inner}){called}{query[behind:]}"


def _opening(tokens: Sequence[Token], closing: int) -> int:
    """The bracket that this one closes; -1 if there is none."""
    depth = 0
    for place in range(closing, -1, -1):
        kind = tokens[place].kind
        depth += (kind is TokenType.R_PAREN) - (kind is TokenType.L_PAREN)
        if depth == 0:
            return place
    return -1


def _alias(query: str, tokens: Sequence[Token], place: int) -> int | None:
    """The position of the alias, if there is one, with or without AS."""
    token = tokens[place] if place < len(tokens) else None
    if token is None:
        return None
    if token.kind is TokenType.IDENTIFIER:
        return place
    word = query[token.start : token.end]
    if word.upper() == "AS":
        return place + 1 if place + 1 < len(tokens) else None
    is_name = word.isidentifier() and word.lower() not in RESERVED | _JOINS
    return place if is_name else None


def _names_columns(tokens: Sequence[Token], alias: int) -> bool:
    """Whether a bracket follows the alias."""
    return alias + 1 < len(tokens) and tokens[alias + 1].kind is TokenType.L_PAREN
