"""Remove operators that a key makes redundant.

Removes a Distinct over rows that are distinct already, and a Group by a key, where each group
is one row and its aggregates are expressions over that row. Only keys that an operator enforces
count (`plan.analyses.keys`): the removed operator would have detected duplicates and negative
counts. Relies on `canonical`: a column that has a representative is no key here. Leaves behind:
no Distinct, and no Group of such aggregates, over a key.
"""

from dataclasses import replace

from streams.plan.analyses.keys import is_unique
from streams.plan.ir import (
    AggregateCall,
    Distinct,
    Group,
    Project,
    Relational,
    children,
    columns,
    with_children,
)
from streams.plan.scalar import Call, Form, Literal, Scalar

_EXACT = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DECIMAL")


def unique(node: Relational) -> Relational:
    """Leave out every such Distinct and Group of the tree."""
    node = with_children(node, tuple(unique(child) for child in children(node)))
    match node:
        case Distinct() if is_unique(node.input, frozenset(range(len(columns(node))))):
            return node.input
        case Group() if node.keys and _is_row(node):
            return _row(node)
        case _:
            return node


def _is_row(node: Group) -> bool:
    """Whether each group is one row, and its aggregates can be written as expressions."""
    by = replace(node, calls=(), names=node.names[: len(node.keys)])
    keys = Project(node.input, by.keys, by.names)
    every = frozenset(range(len(node.keys)))
    return is_unique(keys, every) and all(_of_row(call) is not None for call in node.calls)


def _row(node: Group) -> Relational:
    values = tuple(value for call in node.calls if (value := _of_row(call)) is not None)
    return Project(node.input, node.keys + values, node.names)


def _of_row(call: AggregateCall) -> Scalar | None:
    """The aggregate of a group of one row; None if we do not say it."""
    argument, kind = call.argument, call.type
    if call.general:
        return None
    match call.function:
        case "count" if argument is None:
            return _number(1, kind)
        case "count" if argument is not None:
            there = Call(Form.IS_NOT_NULL, Form.IS_NOT_NULL.value, (argument,), "BOOLEAN")
            return Call(Form.CASE, "case", (there, _number(1, kind), _number(0, kind)), kind)
        case "min" | "max" if argument is not None and argument.type == kind:
            return argument
        case "sum" if argument is not None and argument.type.startswith(_EXACT):
            return Call(Form.CAST, "cast", (argument,), kind)
        case _:
            return None


def _number(value: int, kind: str) -> Scalar:
    return Literal(f"CAST('{value}' AS {kind})", kind, str(value))
