"""Which predicates no row of NULLs can pass, and which joins that makes simpler.

A predicate is *strict* in some columns if it is not true whenever these are all NULL. The list
of functions that propagate NULL is short on purpose: an outer join that is not simplified costs
some speed, one that is wrongly made an inner join loses rows.
"""

from collections.abc import Sequence

from streams.plan.analyses.keys import is_one_row, is_single
from streams.plan.ir import JoinKind, Match, Product, Project, Relational, columns
from streams.plan.passes.prune_columns import pick_columns
from streams.plan.scalar import Call, Form, Literal, Ref, Scalar, nearest, remap

_HANDS_ON = frozenset({
    "=", "!=", "<", ">", "<=", ">=", "~~", "!~~", "+", "-", "*", "/", "//", "%", "lower",
    "upper", "length", "abs",
})  # fmt: skip

_OF_ONE = frozenset({
    Form.CAST, Form.TRY_CAST, Form.NOT, Form.TEMPORAL, Form.AS_STRUCT, Form.AS_UNION,
    Form.AS_KEY,
})  # fmt: skip

_NEAREST = {
    (True, True): JoinKind.FULL,
    (True, False): JoinKind.LEFT,
    (False, True): JoinKind.RIGHT,
    (False, False): JoinKind.INNER,
}
"""The kind that has the rows of the left, and of the right, that have no match."""


def is_strict(predicate: Scalar, of: frozenset[int]) -> bool:
    """Tell whether the predicate is not true when the columns `of` are all NULL."""
    if not isinstance(predicate, Call):
        return _is_null(predicate, of)
    if predicate.form is Form.AND:
        return any(is_strict(part, of) for part in predicate.arguments)
    if predicate.form is Form.OR:
        return all(is_strict(part, of) for part in predicate.arguments)
    if predicate.form is Form.IS_NOT_NULL:
        return _is_null(predicate.arguments[0], of)
    return _is_null(predicate, of)


def _is_null(scalar: Scalar, of: frozenset[int]) -> bool:
    """Tell whether the expression is NULL when the columns are."""
    if isinstance(scalar, Ref):
        return scalar.index in of
    if not isinstance(scalar, Call):
        return False
    if scalar.form in _OF_ONE:
        return _is_null(scalar.arguments[0], of)
    hands_on = scalar.form in {Form.INFIX, Form.PREFIX, Form.FUNCTION}
    return (
        hands_on
        and scalar.name in _HANDS_ON
        and any(_is_null(argument, of) for argument in scalar.arguments)
    )


def simplified(node: Match, predicates: Sequence[Scalar]) -> Relational:
    """The simplified join, given that only rows that pass the predicates are needed.

    The result has the same columns, and is the same after the predicates.
    """
    width = len(columns(node.left))
    ours = frozenset(range(width))
    theirs = frozenset(range(width, len(columns(node))))
    if nearest(node.predicates):
        return _nearest(node, predicates, width)
    match node.kind:
        case JoinKind.MARK:
            return _judged(node, predicates, width)
        case JoinKind.LEFT | JoinKind.SINGLE if _once(node):
            is_inner = any(is_strict(predicate, theirs) for predicate in predicates)
            is_inner |= not node.predicates and is_one_row(node.right)
            if is_inner:
                return Product((node.left, node.right), node.predicates)
            return Match(node.left, node.right, JoinKind.LEFT, node.predicates)
        case JoinKind.FULL:
            left = any(is_strict(predicate, ours) for predicate in predicates)
            right = any(is_strict(predicate, theirs) for predicate in predicates)
            return _full(node, left=left, right=right)
        case _:
            return node


def _nearest(node: Match, predicates: Sequence[Scalar], width: int) -> Match:
    """A join to the nearest row without the rows that have NULLs where none may be."""
    ours, theirs = frozenset(range(width)), frozenset(range(width, len(columns(node))))
    left = any(is_strict(predicate, ours) for predicate in predicates)
    right = any(is_strict(predicate, theirs) for predicate in predicates)
    ours_alone = node.kind in {JoinKind.LEFT, JoinKind.FULL} and not right
    theirs_alone = node.kind in {JoinKind.RIGHT, JoinKind.FULL} and not left
    return Match(node.left, node.right, _NEAREST[ours_alone, theirs_alone], node.predicates)


def _once(node: Match) -> bool:
    return node.kind is JoinKind.LEFT or is_single(node)


def _judged(node: Match, predicates: Sequence[Scalar], width: int) -> Relational:
    """A mark that must be true, or false, needs no column."""
    mark = Ref(width, "BOOLEAN", "mark")
    refused = Call(Form.NOT, Form.NOT.value, (mark,), "BOOLEAN")
    if mark in predicates:
        kind, value = JoinKind.SEMI, "true"
    elif refused in predicates:
        kind, value = JoinKind.NULL_AWARE_ANTI, "false"
    else:
        return node
    rejoined = Match(node.left, node.right, kind, node.predicates)
    own = columns(node.left)
    outputs = tuple(Ref(i, c.type, c.name) for i, c in enumerate(own))
    names = tuple(column.name for column in columns(node))
    return Project(rejoined, (*outputs, Literal(value, "BOOLEAN", value)), names)


def _full(node: Match, *, left: bool, right: bool) -> Relational:
    """A FULL join without the rows that have NULLs on the left, on the right, or both."""
    if left and right:
        return Product((node.left, node.right), node.predicates)
    if left:
        return Match(node.left, node.right, JoinKind.LEFT, node.predicates)
    if not right:
        return node
    ours, theirs = len(columns(node.left)), len(columns(node.right))
    places = [*range(theirs, theirs + ours), *range(theirs)]
    moved = tuple(remap(predicate, dict(enumerate(places))) for predicate in node.predicates)
    return pick_columns(Match(node.right, node.left, JoinKind.LEFT, moved), places)
