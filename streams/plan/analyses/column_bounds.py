"""Comparisons of columns with constants that hold for every relevant row of an import.

A reader of an import may skip rows that cannot satisfy them, such as chunks whose ranges do not
overlap. They are derived from the predicates of the nodes that read the import, and hold only
if all these nodes have them. A false predicate beats one that fails (rule 38), so skipped rows
would not have been errors either.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from streams.plan.physical import Dataflow, Linear, Node, Source, Temporal, inputs

_INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT"})
_COLUMN = r"c(?P<column>\d+)"
_NUMBER = (
    r"(?:CAST\()+'(?P<number>-?\d+(?:\.\d+)?)'"
    r"(?: AS (?:TINYINT|SMALLINT|INTEGER|BIGINT|DOUBLE|DECIMAL\(\d+,\d+\))\))+"
)
_TEXT = r"'(?P<text>(?:[^']|'')*)'"
_OPERATOR = r" (?P<operator>=|<=|<|>=|>) "
_FORMS = [
    re.compile(pattern, re.DOTALL)
    for pattern in (
        rf"\({_COLUMN}{_OPERATOR}(?:{_NUMBER}|{_TEXT})\)",
        rf"\((?:{_NUMBER}|{_TEXT}){_OPERATOR}{_COLUMN}\)",
    )
]
_MEMBERS = re.compile(rf"\({_COLUMN} IN \((?P<members>.*)\)\)", re.DOTALL)
_MEMBER = re.compile(rf"(?:{_NUMBER}|{_TEXT})(?:, |$)", re.DOTALL)
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPERATORS = frozenset(_TURNED)
_Bound = TypeVar("_Bound", "ColumnComparison", "ColumnMembership")
_EXACT_DIGITS = 15
"""So many digits of a decimal make the same double in every implementation."""


@dataclass(frozen=True, slots=True)
class ColumnComparison:
    """A column, by its position, compared (`=`, `<`, `<=`, `>`, `>=`) with a constant."""

    column: int
    operator: str
    value: int | float | str


@dataclass(frozen=True, slots=True)
class ColumnMembership:
    """A column, by its position, equals one of some constants."""

    column: int
    values: tuple[int | float | str, ...]


def column_comparisons(dataflow: Dataflow, index: int) -> tuple[ColumnComparison, ...]:
    """Predicates that hold for every row of an import that the dataflow reads.

    Integers, doubles and text alone; NaN, which is above all doubles, meets `>` and `>=` and is
    in no range, so that these are not among them.
    """
    return _in_all_readers(dataflow, index, _parsed)


def column_memberships(dataflow: Dataflow, index: int) -> tuple[ColumnMembership, ...]:
    """Columns that equal one of some constants in every row of an import that is read.

    Integers, doubles and text alone, as of `column_comparisons`.
    """
    return _in_all_readers(dataflow, index, _membership)


def only_compares(node: Linear, types: tuple[str, ...]) -> bool:
    """Whether each predicate compares a column with constants; `types` are the input's."""
    texts = [predicate.sql for predicate in node.predicates]
    return all(_parsed(sql, types) or _membership(sql, types) for sql in texts)


def _in_all_readers(
    dataflow: Dataflow, index: int, parse: Callable[[str, tuple[str, ...]], _Bound | None]
) -> tuple[_Bound, ...]:
    """Return the predicates that all nodes that read an import have in common."""
    sources = [i for i, node in enumerate(dataflow.nodes) if node == Source(index)]
    bounds = [
        _of(node, dataflow.types[source], parse)
        for source in sources
        for node in dataflow.nodes
        if source in inputs(node)
    ]
    if not bounds or any(source == len(dataflow.nodes) - 1 for source in sources):
        return ()
    return tuple(bound for bound in bounds[0] if all(bound in others for others in bounds))


def _of(
    node: Node,
    types: tuple[str, ...],
    parse: Callable[[str, tuple[str, ...]], _Bound | None],
) -> list[_Bound]:
    if not isinstance(node, Linear | Temporal):
        return []
    parsed = [parse(predicate.sql, types) for predicate in node.predicates]
    return [bound for bound in parsed if bound is not None]


def _membership(sql: str, types: tuple[str, ...]) -> ColumnMembership | None:
    comparison = _parsed(sql, types)
    if comparison is not None:
        is_equal = comparison.operator == "="
        return ColumnMembership(comparison.column, (comparison.value,)) if is_equal else None
    match = _MEMBERS.fullmatch(sql)
    if match is None:
        return None
    column, values, end = int(match["column"]), list[int | float | str](), 0
    for member in _MEMBER.finditer(match["members"]):
        value = _value(types[column], member["number"], member["text"])
        if member.start() != end or value is None:
            return None
        values.append(value)
        end = member.end()
    is_whole = values and end == len(match["members"])
    return ColumnMembership(column, tuple(values)) if is_whole else None


def _parsed(sql: str, types: tuple[str, ...]) -> ColumnComparison | None:
    for turned, form in enumerate(_FORMS):
        match = form.fullmatch(sql)
        if match is None:
            continue
        column, operator = int(match["column"]), match["operator"]
        value = _value(types[column], match["number"], match["text"])
        operator = _TURNED[operator] if turned else operator
        if value is None or (isinstance(value, float) and operator in {">", ">="}):
            return None
        return ColumnComparison(column, operator, value)
    return None


def _value(type_: str, number: str | None, text: str | None) -> int | float | str | None:
    if type_ == "VARCHAR" and text is not None:
        return text.replace("''", "'")
    if number is None:
        return None
    if type_ in _INTEGERS and "." not in number:
        return int(number)
    is_exact = sum(map(str.isdigit, number)) <= _EXACT_DIGITS
    return float(number) if type_ == "DOUBLE" and is_exact else None
