"""AND and OR without a defined operand order, in a statement of TRYs (rule 38).

DuckDB may evaluate the operands of AND and OR in any order and may stop early. So that an error
does not depend on the other rows of a batch, the rewritten form defines the result: false AND
error is false, true OR error is true, and any other error is an error. `with_lazy_operands`
rewrites the text of one expression.

It reads tokens, not grammar: strings, quoted names, brackets and words. The AND of BETWEEN is
recognized by its BETWEEN; CASE .. END is a bracket with WHEN, THEN and ELSE as separators.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$\$.*?\$\$|[A-Za-z_]\w*|\s+|[()\[\]{},]|.""", re.DOTALL
)
_OPEN, _CLOSE = {"(": ")", "[": "]", "{": "}", "CASE": "END"}, {")", "]", "}", "END"}
_OUTERMOST = 2
_SEPARATORS = {",", "WHEN", "THEN", "ELSE"}


@dataclass(slots=True)
class _Piece:
    """An operand being read: its text so far, and the operators before it on this level."""

    text: list[str]
    operands: list[tuple[str, str]]
    betweens: int = 0

    def cut(self, operator: str) -> None:
        self.operands.append(("".join(self.text), operator))
        self.text = []

    def close(self) -> str:
        """The whole as text, with AND and OR in tolerant form."""
        operands = [*self.operands, ("".join(self.text), "")]
        if len(operands) == 1:
            return operands[0][0]
        groups: list[list[str]] = [[]]
        for text, operator in operands:
            groups[-1].append(text)
            if operator == "OR":
                groups.append([])
        conjunctions = [_combine(group, "AND") for group in groups]
        return f" {_combine(conjunctions, 'OR')} "


def _combine(operands: Sequence[str], operator: str) -> str:
    if len(operands) == 1:
        return operands[0]
    decisive = "true" if operator == "OR" else "false"
    tries = ", ".join(f"try({{'v': {operand}}})" for operand in operands)
    count = len(operands)
    decided = " OR ".join(f"coalesce(x[{i + 1}].v = {decisive}, false)" for i in range(count))
    failed = " OR ".join(f"x[{i + 1}] IS NULL" for i in range(count))
    value = f" {operator} ".join(f"x[{i + 1}].v" for i in range(count))
    body = (
        f"CASE WHEN {decided} THEN {decisive} WHEN {failed} THEN CAST('failed' AS BOOLEAN) "
        f"ELSE {value} END"
    )
    return f"(list_transform([[{tries}]], lambda x: {body})[1])"


def with_lazy_operands(sql: str) -> str:
    """The expression with AND and OR that an error in one operand does not always fail."""
    upper = sql.upper()
    if " AND " not in upper and " OR " not in upper:
        return sql
    stack = [_Piece([], [])]
    for token in _TOKEN.findall(sql):
        _read(token, stack)
    return stack[0].close() if len(stack) == 1 else sql


def _read(token: str, stack: list[_Piece]) -> None:
    word, top = token.upper(), stack[-1]
    if word in _OPEN:
        stack.append(_Piece([token], []))
        stack.append(_Piece([], []))
    elif word in _CLOSE and len(stack) > _OUTERMOST:
        inner = stack.pop().close()
        bracket = stack.pop()
        stack[-1].text.append("".join([*bracket.text, inner, token]))
    elif word in _SEPARATORS and len(stack) > 1:
        inner = stack.pop().close()
        stack[-1].text += [inner, token]
        stack.append(_Piece([], []))
    elif word == "AND" and top.betweens:
        top.betweens -= 1
        top.text.append(token)
    elif word in {"AND", "OR"}:
        top.cut(word)
    else:
        top.betweens += word == "BETWEEN"
        top.text.append(token)
