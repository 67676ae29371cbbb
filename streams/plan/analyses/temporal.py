"""Comparisons of a row with the logical time: `mz_now() <= expires_at + INTERVAL '1 hour'`.

A *temporal conjunct* is a part of WHERE, HAVING, QUALIFY or of an inner join's condition, one
of those that must all be true, which compares `mz_now()` with an expression without it. It
bounds the times at which a row exists; at time t the query equals the same query with t in
place of `mz_now()`, so every pass may move such a conjunct like any other predicate.

`mz_now()` takes the type that it is compared with: milliseconds since 1970 as an integer, or
that point in time as a timestamp. For DuckDB's binder it is a macro for a reserved text,
because an untyped text is cast to the type that it is compared with. Anywhere else `mz_now()`
would change values continuously, not only insert and delete rows: it is refused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from streams.plan import ir
from streams.plan.physical import Bound, Expression
from streams.plan.refusal import Refusal
from streams.plan.scalar import Call, Form, Literal, Scalar, equality, replace_part, walk
from streams.plan.to_sql import label, sql

NOW_TEXT = "'the logical time of slackwater'"
"""The binder's stand-in for `mz_now()`: a constant text takes the type it is compared with."""
NOW = Literal(NOW_TEXT, "VARCHAR", "mz_now()")

_MIRRORED = {"<": ">", "<=": ">=", "=": "=", ">=": "<=", ">": "<"}
TIMESTAMPS = frozenset(
    {"TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_MS", "TIMESTAMP_NS"}
)
"""The types of points in time."""

_PLAIN_TIMES = TIMESTAMPS | {"DATE"}
"""Types whose equal values are the same in every expression."""

_NARROW = frozenset({
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER",
})  # fmt: skip
_WIDE = frozenset({"UBIGINT", "HUGEINT", "UHUGEINT"})
_CARRIED = TIMESTAMPS | _NARROW | _WIDE
_GREATEST = (1 << 63) - 1
_ALONE = "compare mz_now() alone, as in WHERE mz_now() <= ts + INTERVAL '1 hour' AND ..."

_OUTSIDE = "filter in a view of its own, and let the recursion read that"
_SIDE = "filter a side of the join in a subquery of its own"


def conjunct(predicate: Scalar) -> Scalar:
    """The predicate, in its own form if it compares the logical time with something.

    Errors: InvalidStatement for any other use of `mz_now()`.
    """
    if not _mentions(predicate):
        return predicate
    if not isinstance(predicate, Call) or len(predicate.arguments) != 2:  # noqa: PLR2004 - a comparison
        raise Refusal(f"mz_now() in {_words(predicate)}", _ALONE).raised()
    left, right = predicate.arguments
    name = "=" if predicate.name == "IS NOT DISTINCT FROM" else predicate.name
    if not _mentions(left):
        left, right, name = right, left, _MIRRORED.get(name, "")
    if name not in _MIRRORED or _mentions(right):
        raise Refusal(f"mz_now() in {_words(predicate)}", _ALONE).raised()
    return Call(Form.TEMPORAL, name, (_checked(left, right),), "BOOLEAN")


def is_temporal(predicate: Scalar) -> bool:
    """Whether it is a temporal conjunct."""
    return isinstance(predicate, Call) and predicate.form is Form.TEMPORAL


def before_end(end: Scalar) -> Scalar:
    """The conjunct `mz_now() < end`, for an end that is a timestamp."""
    assert end.type in TIMESTAMPS, end
    return Call(Form.TEMPORAL, "<", (end,), "BOOLEAN")


def total(predicate: Scalar) -> Scalar | None:
    """A temporal conjunct that never fails and is true where this one is or fails.

    So it may be evaluated on rows on which the predicate may not: it drops no other rows.
    None if there is none.
    """
    if not isinstance(predicate, Call) or predicate.form is not Form.TEMPORAL:
        return None
    (value,) = predicate.arguments
    if predicate.name not in {"<", "<="} or value.type not in TIMESTAMPS:
        return None
    return replace(predicate, arguments=(or_never(value),))


def or_never(end: Scalar) -> Scalar:
    """A time; the end of all times where it fails or is NULL."""
    tried = Call(Form.TRY, Form.TRY.value, (end,), end.type)
    never = Literal(f"CAST('infinity' AS {end.type})", end.type, "'infinity'")
    return Call(Form.COALESCE, Form.COALESCE.value, (tried, never), end.type)


def equated_conjuncts(predicate: Scalar, predicates: Sequence[Scalar]) -> Iterator[Scalar]:
    """The temporal conjuncts that follow from equalities among the predicates.

    Shape: each side of an equality in the place of the other, one equality at a time.
    """
    assert isinstance(predicate, Call), predicate
    (value,) = predicate.arguments
    for equal in filter(None, map(equality, predicates)):
        if equal.one.type not in _PLAIN_TIMES:
            continue  # equal intervals, say, may be added with different results
        for one, other in ((equal.one, equal.other), (equal.other, equal.one)):
            same = replace_part(value, one, other)
            if same != value:
                yield replace(predicate, arguments=(same,))


def bound(predicate: Scalar) -> Bound:
    """A temporal conjunct as the physical plan has it."""
    assert isinstance(predicate, Call), predicate
    (value,) = predicate.arguments
    carried = _milliseconds(value)
    return Bound(predicate.name, Expression(sql(carried), carried.type, label(value)))


def refuse_elsewhere(node: ir.Relational) -> None:
    """Refuse the logical time wherever it is not a temporal conjunct.

    Errors: InvalidStatement that names the place.
    """
    place, scalars = _place(node)
    if any(_mentions(scalar) for scalar in scalars):
        hint = _SIDE if isinstance(node, ir.Match) else _ALONE
        raise Refusal(f"mz_now() in {place}", hint).raised()
    if isinstance(node, ir.Loop) and any(map(_has_conjunct, node.values)):
        raise Refusal("mz_now() in a recursion", _OUTSIDE).raised()
    for part in ir.parts(node):
        refuse_elsewhere(part)


def _has_conjunct(node: ir.Relational) -> bool:
    predicates = node.predicates if isinstance(node, ir.Filter | ir.Product) else ()
    return any(map(is_temporal, predicates)) or any(map(_has_conjunct, ir.parts(node)))


def _mentions(scalar: Scalar) -> bool:
    return any(part == NOW for part in walk(scalar))


def _words(predicate: Scalar) -> str:
    """The expression around the logical time, as a person would call it."""
    if isinstance(predicate, Call):
        forms = {Form.OR: "OR", Form.NOT: "NOT", Form.CASE: "CASE", Form.IN: "IN"}
        return forms.get(predicate.form, f"an expression with {predicate.name}")
    return "an expression"


def _checked(now: Scalar, value: Scalar) -> Scalar:
    """The value that the logical time is compared with.

    The time's own type must not round it, and so cut off what makes the comparison exact.
    """
    while isinstance(now, Call) and now.form is Form.CAST:
        if now.type not in _CARRIED:
            raise Refusal(f"mz_now() as {now.type}", _OTHERS.get(now.type, _CAST)).raised()
        (now,) = now.arguments
    if now != NOW:
        raise Refusal(f"mz_now() in {_words(now)}", _ALONE).raised()
    if value.type not in _CARRIED:
        hint = _OTHERS.get(value.type, _CAST)
        raise Refusal(f"comparing mz_now() with {value.type}", hint).raised()
    return value


_CAST = "cast the other side to TIMESTAMP, or to BIGINT for milliseconds since 1970"
_OTHERS = {"DATE": "cast the date to TIMESTAMP: that is its first moment"}


def _milliseconds(value: Scalar) -> Scalar:
    """The value as a timestamp, or as milliseconds in a BIGINT; beyond its range the end."""
    if value.type in TIMESTAMPS:
        return value
    plain = value if value.type == "BIGINT" else Call(Form.CAST, "cast", (value,), "BIGINT")
    if value.type in _NARROW:
        return plain
    parts: list[Scalar] = []
    ends = [(">", _GREATEST)] + ([("<", -_GREATEST)] if value.type == "HUGEINT" else [])
    for comparison, end in ends:
        there = Literal(f"CAST('{end}' AS {value.type})", value.type, str(end))
        parts.append(Call(Form.INFIX, comparison, (value, there), "BOOLEAN"))
        parts.append(Literal(f"CAST('{end}' AS BIGINT)", "BIGINT", str(end)))
    return Call(Form.CASE, "case", (*parts, plain), "BIGINT")


def _place(  # noqa: PLR0911 - one case a node
    node: ir.Relational,
) -> tuple[str, tuple[Scalar, ...]]:
    """The expressions of a node that are no conjuncts, and how a person calls their place."""
    match node:
        case ir.Project():
            return "the select list", node.outputs
        case ir.Group():
            return "a grouped query", node.keys + _all(node.calls)
        case ir.Window():
            return "a window", node.keys + _all(node.calls)
        case ir.TopK():
            return "ORDER BY", node.keys + tuple(order.scalar for order in node.orders)
        case ir.Values():
            return "VALUES", tuple(cell for row in node.rows for cell in row)
        case ir.Match():
            return "the condition of an outer join or a subquery", node.predicates
        case _:
            return "", ()


def _all(calls: tuple[ir.AggregateCall, ...] | tuple[ir.WindowCall, ...]) -> tuple[Scalar, ...]:
    return tuple(scalar for call in calls for scalar in call.scalars)
