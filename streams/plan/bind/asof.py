"""ASOF joins: each row on the left beside the nearest row on the right.

The right rows of a key are ordered by the column of the inequality, the nearest to its end
first, and rows of one value by the whole row. Each row is the nearest one for all left values
between its own value and that of the row before it. So the window function `lag` gives the end
of a row's range; the ranges of a key do not overlap, and of rows with one value all but the
first have an empty range. The inequality is then a predicate over a pair of rows
(`Form.NEAREST`), and the rest is an ordinary join.

If the join has conditions beyond keys and one inequality, the nearest row among those that meet
all conditions is wanted. It may differ for each left row: it is the first row of a sort of all
pairs.
"""

from dataclasses import dataclass

from streams.plan.bind.joins import (
    comparison,
    condition,
    is_true,
    output_columns,
    with_row_identity,
)
from streams.plan.duckdb_plan import Record
from streams.plan.ir import (
    Distinct,
    JoinKind,
    Match,
    Order,
    Product,
    Relational,
    TopK,
    Window,
    WindowCall,
    columns,
    shared,
)
from streams.plan.passes.project_group_inputs import with_columns
from streams.plan.passes.prune_columns import pick_columns
from streams.plan.scalar import (
    EQUALS,
    Call,
    Form,
    Literal,
    Ref,
    Scalar,
    conjunction,
    conjuncts,
    refs,
    remap,
    shift,
)

_KINDS = {
    "INNER": JoinKind.INNER,
    "LEFT": JoinKind.LEFT,
    "RIGHT": JoinKind.RIGHT,
    "FULL": JoinKind.FULL,
    "OUTER": JoinKind.FULL,
}
_INEQUALITIES = frozenset({">=", ">", "<=", "<"})


@dataclass(frozen=True, slots=True)
class _Conditions:
    """The conditions of a pair, over the row of both sides, left's columns first."""

    keys: tuple[Call, ...]
    inequality: Call
    others: tuple[Scalar, ...]


def asof(record: Record, left: Relational, right: Relational) -> Relational:
    """An ASOF join of a bound plan.

    Errors: InvalidStatement for a kind of join that we do not know.
    """
    kind = _KINDS.get(record.text("join_type"))
    if kind is None:  # whether a row has a match is not a matter of the nearest
        return comparison(record, left, right)
    conditions = _conditions(record, left, right)
    ours = frozenset(range(len(columns(left))))
    by_ranges = all(refs(other) <= ours for other in conditions.others)
    node = (_nearest if by_ranges else _first_of_all)(left, right, kind, conditions)
    return output_columns(node, record, left, right)


def _conditions(record: Record, left: Relational, right: Relational) -> _Conditions:
    keys, inequalities, others = list[Call](), list[Call](), list[Scalar]()
    for record_ in record.records("conditions"):
        predicate = condition(record_, left, right)
        if not record_.has("right") or not isinstance(predicate, Call):
            others += (part for part in conjuncts(predicate) if not is_true(part))
        elif predicate.name in EQUALS.values():
            keys.append(predicate)
        elif predicate.name in _INEQUALITIES:
            inequalities.append(predicate)
        else:
            others.append(predicate)
    (inequality,) = inequalities  # DuckDB takes one
    return _Conditions(tuple(keys), inequality, tuple(others))


def _nearest(
    left: Relational, right: Relational, kind: JoinKind, conditions: _Conditions
) -> Relational:
    """The join of left's points with right's ranges."""
    start, (point, beginning) = len(columns(left)), conditions.inequality.arguments
    if conditions.others:  # about left's row alone: without a point nothing is near it
        nothing = Literal(f"CAST(NULL AS {point.type})", point.type, "NULL")
        predicate = conjunction(conditions.others)
        point = Call(Form.CASE, Form.CASE.value, (predicate, point, nothing), point.type)
    mine = [key.arguments[0] for key in conditions.keys]
    theirs = [shift(key.arguments[1], -start) for key in conditions.keys]
    beginning = shift(beginning, -start)
    left_with_point, at_left = with_columns(left, (*mine, point))
    right_with_begin, at_right = with_columns(right, (*theirs, beginning))
    order = Order(at_right(beginning), _descends(conditions), nulls_first=True)
    end = WindowCall("lag", (order.scalar,), order.scalar.type, (order,), None)
    ranged = Window(right_with_begin, tuple(map(at_right, theirs)), (end,), ("end",))
    width = len(columns(left_with_point))
    places = (order.scalar, Ref(len(columns(right_with_begin)), end.type, "end"))
    sought = (at_left(point), *(shift(place, width) for place in places))
    predicates = [
        Call(Form.INFIX, key.name, (at_left(ours), shift(at_right(its), width)), "BOOLEAN")
        for key, ours, its in zip(conditions.keys, mine, theirs, strict=True)
    ]
    predicates.append(Call(Form.NEAREST, conditions.inequality.name, sought, "BOOLEAN"))
    match = Match(left_with_point, ranged, kind, tuple(predicates))
    return pick_columns(match, [*range(start), *range(width, width + len(columns(right)))])


def _first_of_all(
    left: Relational, right: Relational, kind: JoinKind, conditions: _Conditions
) -> Relational:
    """The nearest of all pairs that meet the conditions, for each different row on the left."""
    start, marked = len(columns(left)), with_row_identity(shared(left))
    row = Ref(start, columns(marked)[start].type, "row")
    behind = {i: i + (i >= start) for i in range(start + len(columns(right)))}
    every = (*conditions.keys, conditions.inequality, *conditions.others)
    both = Product((Distinct(marked), right), tuple(remap(scalar, behind) for scalar in every))
    by = remap(conditions.inequality.arguments[1], behind)
    order = Order(by, _descends(conditions), nulls_first=True)
    node = pick_columns(TopK(both, (row,), (order,), 0, 1), range(start, len(columns(both))))
    same = (row, Ref(start + 1, row.type, "row"))
    equal = (Call(Form.INFIX, EQUALS[True], same, "BOOLEAN"),)
    inner = kind is JoinKind.INNER
    joined = Product((marked, node), equal) if inner else Match(marked, node, kind, equal)
    return pick_columns(joined, [*range(start), *range(start + 2, len(columns(joined)))])


def _descends(conditions: _Conditions) -> bool:
    """Whether the nearest of right's rows is the one with the greatest value."""
    return conditions.inequality.name in {">=", ">"}
