"""Derives keys and row-count bounds of a plan that hold for any contents of its inputs.

A set of columns is a *key* if no two rows are equal in all of them, NULLs equal to each other,
-0.0 to 0.0. Keys begin where an operator makes them so (a Group, a Distinct, the upsert behind
a source) and are followed upwards: where a predicate equates a column with what other columns
determine, they determine it too, and with a key they determine the rest of its input's row. So
the rows of orders beside their customer have the key of orders.

Declared keys are not trusted. An operator that a key makes redundant
(`passes.redundant_by_key`) would have merged equal rows, or reported a negative count; if no
operator enforces the key, removing that operator gives a wrong answer instead of an error.

Every answer is safe: False only means that nothing is known.

Source: the closure of attributes under functional dependencies, W. W. Armstrong, Dependency
structures of data base relationships, IFIP 1974.
"""

from collections.abc import Iterator, Sequence

from streams.plan.ir import (
    PAIRED,
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
from streams.plan.physical import Rule
from streams.plan.scalar import (
    EQUALS,
    Call,
    Form,
    Literal,
    Ref,
    Scalar,
    equality,
    nearest,
    refs,
    walk,
)

Places = frozenset[int]
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_VAGUE = ("FLOAT", "DOUBLE", "INTERVAL", "VARIANT", "TIME WITH")


def is_unique(  # noqa: C901, PLR0911, PLR0912 - one case a node
    node: Relational, places: Places
) -> bool:
    """Tell whether no two rows are equal in the columns at these places."""
    match node:
        case Get():
            return any(places >= frozenset(key) for key in node.keys)
        case Values():
            return len(node.rows) <= 1
        case Filter():
            return is_unique(node.input, _closed(places, node.predicates))
        case Project():
            shown = (same_column(node.outputs[place]) for place in places)
            return is_unique(node.input, frozenset(i for i in shown if i is not None))
        case Group():
            return _group(node, places)
        case Window():
            return is_unique(node.input, _below(places, 0, len(columns(node.input))))
        case TopK(offset=0, limit=1):
            by = {key.index for key in node.keys if isinstance(key, Ref)}
            first = len(by) == len(node.keys) and places >= by
            return first or is_unique(node.input, places)
        case TopK():
            return is_unique(node.input, places)
        case Distinct():
            return _whole(node, places) or is_unique(node.input, places)
        case Threshold():
            return _threshold(node, places)
        case Match():
            return _match(node, places)
        case Product():
            return _product(node.inputs, node.predicates, places)
        case DeltaJoin():
            read = frozenset(node.outputs[place] for place in places)
            return _product(node.inputs, node.predicates, read)
        case Join():
            return _product((node.left, node.right), join_predicates(node), places)
        case Loop():
            return is_unique(node.values[node.result], places)
        case Union() | Unnest() | Negate() | Variable():
            return False


def key(node: Relational) -> tuple[int, ...] | None:
    """A key without a column to spare, of the first columns there are; None without a key.

    Of a relation with at most one row it is empty.
    """
    places = tuple(range(len(columns(node))))
    if not is_unique(node, frozenset(places)):
        return None
    for place in reversed(places):
        fewer = tuple(column for column in places if column != place)
        if is_unique(node, frozenset(fewer)):
            places = fewer
    return places


def is_single(node: Match) -> bool:
    """Tell whether every row on the left has at most one match."""
    return _is_single(node, frozenset())


def is_one_row(node: Relational) -> bool:
    """Tell whether there is always exactly one row."""
    match node:
        case Values():
            return len(node.rows) == 1
        case Project():
            return is_one_row(node.input)
        case Group():
            return not node.keys
        case Product(predicates=()):
            return all(map(is_one_row, node.inputs))
        case Match(kind=JoinKind.LEFT | JoinKind.SINGLE | JoinKind.MARK):
            return is_one_row(node.left) and (_marks(node) or is_single(node))
        case _:
            return False


def join_predicates(node: Join) -> tuple[Scalar, ...]:
    """The predicates of a Join, keys included, over the row of both sides."""
    left, right = columns(node.left), columns(node.right)
    equal = tuple(
        Call(
            Form.INFIX,
            EQUALS[key_.null_equal],
            (
                Ref(key_.left, left[key_.left].type, left[key_.left].name),
                Ref(len(left) + key_.right, right[key_.right].type, right[key_.right].name),
            ),
            "BOOLEAN",
        )
        for key_ in node.keys
    )
    return equal + node.residual


def same_column(scalar: Scalar) -> int | None:
    """The column that has equal values in two rows exactly when this expression has."""
    if isinstance(scalar, Ref):
        return scalar.index
    if isinstance(scalar, Call) and scalar.form is Form.CAST:
        inner = scalar.arguments[0]
        if inner.type in _INTEGERS and scalar.type in _INTEGERS:
            return same_column(inner)
    return None


def _below(places: Places, start: int, width: int) -> Places:
    """The places as those of an input whose columns begin at `start`."""
    return frozenset(place - start for place in places if start <= place < start + width)


def _whole(node: Relational, places: Places) -> bool:
    return places >= frozenset(range(len(columns(node))))


def _group(node: Group, places: Places) -> bool:
    if places >= frozenset(range(len(node.keys))):
        return True
    keys = (same_column(by) for n, by in enumerate(node.keys) if n in places)
    return is_unique(node.input, frozenset(i for i in keys if i is not None))


def _threshold(node: Threshold, places: Places) -> bool:
    match node.rule:
        case Rule.INTERSECT | Rule.EXCEPT:
            return _whole(node, places) or is_unique(node.inputs[0], places)
        case Rule.INTERSECT_ALL:
            return any(is_unique(part, places) for part in node.inputs)
        case Rule.EXCEPT_ALL:
            return is_unique(node.inputs[0], places)
        case _:
            return False


def _match(node: Match, places: Places) -> bool:
    width = len(columns(node.left))
    if node.kind in {JoinKind.FULL, JoinKind.RIGHT} or not is_unique(
        node.left, _below(places, 0, width)
    ):
        return False
    return _marks(node) or _is_single(node, places)


def _is_single(node: Match, places: Places) -> bool:
    """Whether a row on the left has at most one match with the same values at these places."""
    width = len(columns(node.left))
    ours = frozenset(range(width))
    fixed = _closed(places | ours, node.predicates, fixed=ours)
    if nearest(node.predicates):
        return True
    return is_unique(node.right, _below(fixed, width, len(columns(node.right))))


def _marks(node: Match) -> bool:
    """Whether right's rows do not multiply left's."""
    return node.kind not in PAIRED


def _product(
    inputs: Sequence[Relational], predicates: Sequence[Scalar], places: Places
) -> bool:
    """Whether these places determine a row of each input, one after the other."""
    pending, start = dict[int, Relational](), 0
    for part in inputs:
        pending[start] = part
        start += len(columns(part))
    determined = places
    while pending:
        determined = _closed(determined, predicates)
        places_ = [
            at
            for at, part in pending.items()
            if is_unique(part, _below(determined, at, len(columns(part))))
        ]
        for at in places_:
            determined |= frozenset(range(at, at + len(columns(pending.pop(at)))))
        if not places_:
            return False
    return True


def _closed(
    places: Places, predicates: Sequence[Scalar], fixed: Places = frozenset()
) -> Places:
    """The places, and the columns that they determine by the equalities of the predicates.

    The `fixed` ones are those of one row, so that their very bits are the same.
    """
    determined = list(_determined(predicates, fixed))
    grown = True
    while grown:
        more = {to for to, by in determined if by <= places} - places
        places, grown = places | more, bool(more)
    return places


def _determined(predicates: Sequence[Scalar], fixed: Places) -> Iterator[tuple[int, Places]]:
    """Columns, and those that determine them where all predicates are true."""
    for predicate in predicates:
        equated = equality(predicate)
        if equated is None:
            continue
        left, right = equated.one, equated.other
        for column, by in ((left, right), (right, left)):
            place = same_column(column)
            if place is not None and (refs(by) <= fixed or _is_function(by)):
                yield place, refs(by)


def _is_function(scalar: Scalar) -> bool:
    """Whether columns with equal values give it equal values: not of a zero with a sign."""
    if isinstance(scalar, Ref | Literal):
        return True
    return not any(
        name in part.type for part in walk(scalar) if isinstance(part, Ref) for name in _VAGUE
    )
