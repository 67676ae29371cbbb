"""Translates DuckDB's joins: inner ones to Product, all others to Match.

DuckDB turns every subquery into a join before we see it: IN, ANY and EXISTS into MARK joins,
scalar subqueries into SINGLE ones. RIGHT joins come turned round, or are turned here.
"""

from streams.plan.analyses.temporal import conjunct
from streams.plan.bind.scalars import bind_scalar, row_scope
from streams.plan.duckdb_plan import Record
from streams.plan.ir import PAIRED, JoinKind, Match, Product, Project, Relational, columns
from streams.plan.passes.prune_columns import pick_columns
from streams.plan.refusal import Refusal
from streams.plan.scalar import Call, Form, Literal, Ref, Scalar, conjuncts, remap, shift

_KINDS = {
    "LEFT": JoinKind.LEFT,
    "FULL": JoinKind.FULL,
    "OUTER": JoinKind.FULL,
    "SEMI": JoinKind.SEMI,
    "ANTI": JoinKind.ANTI,
    "MARK": JoinKind.MARK,
    "SINGLE": JoinKind.SINGLE,
}
_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "!=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
    "COMPARE_DISTINCT_FROM": "IS DISTINCT FROM",
}
_VAGUE = ("FLOAT", "DOUBLE", "INTERVAL")  # equal values may differ; their texts then do too


def comparison(record: Record, left: Relational, right: Relational) -> Relational:
    """A join on a list of conditions.

    Errors: InvalidStatement for a kind of join that we do not know.
    """
    scalars = [
        part
        for record_ in record.records("conditions")
        for part in conjuncts(condition(record_, left, right))
    ]
    return _joined(record, left, right, tuple(scalars))


def join_on_expression(record: Record, left: Relational, right: Relational) -> Relational:
    """A join on one expression over both rows.

    Errors: InvalidStatement for a kind of join that we do not know.
    """
    both = row_scope(columns(left) + columns(right))
    scalars = conjuncts(bind_scalar(record.record("condition"), both))
    return _joined(record, left, right, scalars)


def projection(record: Record, name: str) -> tuple[int, ...] | None:
    """The columns that DuckDB keeps of a result; None where it keeps all of them."""
    entries = record.items(name)
    return tuple(int(str(item)) for item in entries) if entries else None


def _joined(
    record: Record, left: Relational, right: Relational, scalars: tuple[Scalar, ...]
) -> Relational:
    predicates = tuple(scalar for scalar in scalars if not is_true(scalar))
    kind = record.text("join_type")
    if kind == "RIGHT":
        return output_columns(_turned(left, right, predicates), record, left, right)
    if kind == "INNER":
        judged = tuple(map(conjunct, predicates))
        return output_columns(Product((left, right), judged), record, left, right)
    if kind not in _KINDS:
        raise Refusal(f"{kind} JOIN").raised()
    return output_columns(Match(left, right, _KINDS[kind], predicates), record, left, right)


def _turned(left: Relational, right: Relational, scalars: tuple[Scalar, ...]) -> Relational:
    """A RIGHT join as a LEFT join with the sides swapped, and the columns in order."""
    ours, theirs = len(columns(left)), len(columns(right))
    places = [*range(theirs, theirs + ours), *range(theirs)]
    # A row of both begins with right's columns now.
    moved = tuple(remap(scalar, dict(enumerate(places))) for scalar in scalars)
    return pick_columns(Match(right, left, JoinKind.LEFT, moved), places)


def output_columns(
    node: Relational, record: Record, left: Relational, right: Relational
) -> Relational:
    """The output columns of a join of these sides."""
    width, total = len(columns(left)), len(columns(node))
    ours = projection(record, "left_projection_map") or tuple(range(width))
    if not isinstance(node, Match) or node.kind in PAIRED:
        theirs = projection(record, "right_projection_map")
        theirs = tuple(range(len(columns(right)))) if theirs is None else theirs
        return pick_columns(node, [*ours, *(width + place for place in theirs)])
    return pick_columns(node, [*ours, *range(width, total)])


def condition(record: Record, left: Relational, right: Relational) -> Scalar:
    """A condition of a list, over the row of both sides; a comparison has left's side first."""
    if not record.has("right"):  # no comparison of a side with the other
        both = row_scope(columns(left) + columns(right))
        return bind_scalar(record.record("left"), both)
    left_scalar = bind_scalar(record.record("left"), row_scope(columns(left)))
    theirs = bind_scalar(record.record("right"), row_scope(columns(right)))
    other = shift(theirs, len(columns(left)))
    return Call(
        Form.INFIX, _COMPARISONS[record.text("comparison")], (left_scalar, other), "BOOLEAN"
    )


def is_true(scalar: Scalar) -> bool:
    """Whether a condition asks for nothing."""
    return isinstance(scalar, Literal) and scalar.sql == "true"


def with_row_identity(source: Relational) -> Relational:
    """The rows with themselves for a number: equal ones have equal partners."""
    own = columns(source)
    refs_ = tuple(Ref(i, c.type, c.name) for i, c in enumerate(own))
    parts = tuple(
        Call(Form.CAST, "cast", (ref,), "VARCHAR") if ref.type in _VAGUE else ref
        for ref in refs_
    )
    names = tuple(f"c{i}" for i in range(len(own)))
    members = ", ".join(f"{name} {part.type}" for name, part in zip(names, parts, strict=True))
    identity = Call(Form.FUNCTION, "struct_pack", parts, f"STRUCT({members})", names)
    called = tuple(column.name for column in own)
    return Project(source, (*refs_, identity), (*called, "row"))
