"""Estimates how many rows a plan has, from the plan alone.

The plan is recreated at each start and must be the same each time, or the state of the view
would be discarded (rule 24). So no table is counted: every collection is assumed to have a
million rows, and plans differ by their keys, predicates and groups. Sizes are whole *decibels*
of rows, ten for a factor of ten: products become sums, and integers compare equally on every
machine.

A join on columns with d distinct values in the side with more of them has |left| |right| / d
rows. A key has as many values as the relation had before it was filtered, other columns fewer.
Where no key of a collection is known we guess that its first column is one, as people have it;
nothing but these numbers follows from the guess.

Source: P. G. Selinger et al., Access path selection in a relational database management system,
SIGMOD 1979, table 1.
"""

from collections.abc import Iterable

from streams.plan.analyses.keys import is_unique, same_column
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
    Negate,
    Product,
    Project,
    Relational,
    Threshold,
    TopK,
    Union,
    Unnest,
    Values,
    Variable,
    Window,
    columns,
)
from streams.plan.scalar import Call, Form, Literal, Scalar

Decibels = int

TABLE: Decibels = 60
_LIST: Decibels = 5
_OTHER: Decibels = 3
_FORMS = {
    Form.IS_NOT_NULL: 1,
    Form.NOT: 1,
    Form.NOT_IN: 1,
    Form.IS_NULL: 10,
    Form.IN: 7,
    Form.INFIX: 4,
}
_OF_CONSTANTS = {"=": 10, "IS NOT DISTINCT FROM": 10, "~~": 8, "!=": 1, "!~~": 1}


def rows(node: Relational) -> Decibels:
    """The guessed number of rows."""
    return max(_rows(node, filtered=True), 0)


def rows_without_predicates(node: Relational) -> Decibels:
    """The guessed number of rows if no predicate were asked: that of a key's values."""
    return max(_rows(node, filtered=False), 0)


def _rows(  # noqa: C901, PLR0911, PLR0912 - one case a node
    node: Relational, *, filtered: bool
) -> Decibels:
    match node:
        case Get() | Variable() | Loop():
            return TABLE
        case Values():
            return _decibels(len(node.rows))
        case Filter():
            input_rows = _rows(node.input, filtered=filtered)
            return (
                input_rows - sum(map(selectivity, node.predicates)) if filtered else input_rows
            )
        case Project() | Window() | Negate():
            return _rows(node.input, filtered=filtered)
        case Group():
            return _some(node.input, len(node.keys), filtered=filtered)
        case Distinct():
            return _some(node.input, len(columns(node)), filtered=filtered)
        case TopK():
            groups = _some(node.input, len(node.keys), filtered=filtered)
            most = TABLE if node.limit is None else groups + _decibels(node.limit)
            return min(_rows(node.input, filtered=filtered), most)
        case Unnest():
            return _rows(node.input, filtered=filtered) + _LIST
        case Union():
            return max(_rows(part, filtered=filtered) for part in node.inputs)
        case Threshold():
            return _rows(node.inputs[0], filtered=filtered)
        case Product() | DeltaJoin():
            return _most(node.inputs, filtered=filtered)
        case Join():
            return _most((node.left, node.right), filtered=filtered)
        case Match():
            return _match(node, filtered=filtered)


def _most(inputs: Iterable[Relational], *, filtered: bool) -> Decibels:
    """Inside an input of a join we do not guess again: keys that refer to keys make no rows."""
    return max(_rows(part, filtered=filtered) for part in inputs)


def _match(node: Match, *, filtered: bool) -> Decibels:
    size = _rows(node.left, filtered=filtered)
    if node.kind in {JoinKind.FULL, JoinKind.RIGHT}:
        return max(size, _rows(node.right, filtered=filtered))
    if filtered and node.kind in {JoinKind.SEMI, JoinKind.ANTI, JoinKind.NULL_AWARE_ANTI}:
        return size - _OTHER
    return size


def _some(node: Relational, keys: int, *, filtered: bool) -> Decibels:
    """The groups by this many keys: few by none, more by each."""
    return _rows(node, filtered=filtered) * min(6 + keys, 9) // 10 if keys else 0


def _decibels(count: int) -> Decibels:
    """Ten for each digit beyond the first."""
    return 10 * (len(str(count)) - 1)


def selectivity(predicate: Scalar) -> Decibels:
    """The selectivity of a predicate, in decibels."""
    if not isinstance(predicate, Call):
        return _OTHER
    if predicate.form is Form.AND:
        return sum(map(selectivity, predicate.arguments))
    if predicate.form is Form.OR:
        return max(min(map(selectivity, predicate.arguments)) - _OTHER, 0)
    if predicate.form is Form.INFIX and predicate.name in _OF_CONSTANTS:
        constant = any(isinstance(argument, Literal) for argument in predicate.arguments)
        return _OF_CONSTANTS[predicate.name] if constant else _OTHER
    return _FORMS.get(predicate.form, _OTHER)


def values(node: Relational, places: frozenset[int], every: Decibels) -> Decibels:
    """The guessed number of distinct values in these columns of `every` rows, unfiltered."""
    if looks_unique(node, places):
        return every
    return every * (9 if len(places) > 1 else 7) // 10


def looks_unique(node: Relational, places: frozenset[int]) -> bool:
    """Guess whether the columns are a key, where it is not known."""
    if is_unique(node, frozenset(range(len(columns(node))))):
        return is_unique(node, places)
    match node:
        case Get():
            return 0 in places
        case Filter():
            return looks_unique(node.input, places)
        case Project():
            shown = (same_column(node.outputs[place]) for place in places)
            return looks_unique(node.input, frozenset(i for i in shown if i is not None))
        case _:
            return False


def is_guess(node: Relational, places: frozenset[int]) -> bool:
    """Whether the columns are only guessed to be a key."""
    return looks_unique(node, places) and not is_unique(node, places)
