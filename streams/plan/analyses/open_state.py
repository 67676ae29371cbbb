"""Which operators of a view with EMIT ON CLOSE keep rows of windows that have closed.

The filter `mz_now() < end` of a row's window is pushed down to the inputs if the end follows
from the columns by which the query groups, partitions or joins, or from a bound on the distance
of two times. An operator above an append-only input that no such filter reaches keeps its rows
for ever: those of a session, whose end depends on other rows; of a FULL JOIN, whose rows have
the end of either side; of a frame or a join without a bound on the distance.

Inputs that are not append-only are not reported: their rows may be retracted.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from streams.plan.analyses.temporal import TIMESTAMPS
from streams.plan.ir import (
    DeltaJoin,
    Distinct,
    Filter,
    Get,
    Group,
    Join,
    JoinKind,
    Loop,
    Match,
    Product,
    Relational,
    Threshold,
    TopK,
    Union,
    Window,
    children,
    gets,
)
from streams.plan.scalar import Call, Form, Scalar
from streams.plan.type_names import identifier


class Rows(IntEnum):
    """What becomes of the rows of a relation: each leaves, nothing is known, or all stay."""

    LEAVE = 0
    UNKNOWN = 1
    STAY = 2


def kept(node: Relational) -> tuple[str, ...]:
    """Describe each operator that keeps rows for ever, with the way to bound its state."""
    messages: list[str] = []
    _look(node, messages)
    return tuple(dict.fromkeys(messages))


def _look(node: Relational, messages: list[str]) -> Rows:
    inputs = children(node)
    states = [_look(below, messages) for below in inputs]
    name = _operator(node)
    if name:
        staying = [
            get
            for below, rows in zip(inputs, states, strict=True)
            if rows is Rows.STAY
            for get in gets(below)
            if get.monotone
        ]
        if staying:
            messages.append(_said(name, staying))
    return _rows(node, states)


def _rows(node: Relational, states: Sequence[Rows]) -> Rows:
    """How long the rows of a node are kept, given how long those of its inputs are."""
    match node:
        case Get():
            return Rows.STAY if node.monotone else Rows.UNKNOWN
        case Filter() | Product() | DeltaJoin() if any(map(_ends, node.predicates)):
            return Rows.LEAVE
        case Product() | Join() | DeltaJoin():
            return Rows.LEAVE if Rows.LEAVE in states else max(states)
        case Match() if node.kind not in {JoinKind.FULL, JoinKind.RIGHT}:
            return states[0]
        case Match() | Union():
            return max(states)
        case _:
            return states[0] if len(states) == 1 else Rows.UNKNOWN


def _ends(predicate: Scalar) -> bool:
    """Whether rows leave by a predicate in time: `mz_now() < end`."""
    if not isinstance(predicate, Call) or predicate.form is not Form.TEMPORAL:
        return False
    return predicate.name in {"<", "<=", "="}


_NAMES: Mapping[type, str] = {
    Group: "GROUP BY",
    Window: "OVER",
    TopK: "LIMIT",
    Distinct: "DISTINCT",
    Product: "JOIN",
    Join: "JOIN",
    DeltaJoin: "JOIN",
    Threshold: "INTERSECT or EXCEPT",
    Loop: "WITH RECURSIVE",
}


def _operator(node: Relational) -> str:
    """What users call an operator that keeps rows; empty if it keeps none, or a few."""
    if isinstance(node, Group | TopK) and not node.keys:
        return ""
    return f"{node.kind} JOIN" if isinstance(node, Match) else _NAMES.get(type(node), "")


def _said(operator: str, staying: Sequence[Get]) -> str:
    names = dict.fromkeys(identifier(get.relation) for get in staying)
    get = staying[0]
    moments = (column.name for column in get.columns if column.type in TIMESTAMPS)
    moment = identifier(next(moments, "ts"))
    name = identifier(get.relation)
    return (
        f"{operator} keeps all rows of {', '.join(names)}, also of windows that have closed; to"
        f" say for how long a row matters: FROM (SELECT * FROM {name} WHERE mz_now() < {moment}"
        f" + INTERVAL '1 day') AS {name}"
    )
