"""Expands outer, semi and anti joins into operators that maintain the unmatched rows.

Every Match becomes inner joins, which say which rows have partners, and a Threshold for the
rest. With l the left rows (and a column for each key), and J the inner join:

    LEFT     J + NULLs beside (l without J's left rows)
    SINGLE   LEFT - pairs of the rows with several partners, which are errors
    FULL     LEFT + NULLs beside (r without J's right rows)
    SEMI     l with J's left rows                              without a residual: J itself
    ANTI     l without J's left rows
    ASOF     J + NULLs beside (l without J's left rows)
               + NULLs beside r, but for one of each of J's right rows
    MARK     l marked by T and N          NULL_AWARE_ANTI      l without T + N

where a partner is known for the rows T, and for the rows N there is one of which the
predicates say NULL (three-valued logic). A pair's predicates are NULL only if a key equated by
`=` is NULL on one side and nothing is false; so N joins the rows with such a NULL, which are
few, on the keys that take NULL for equal, and the others not at all. Where the predicates are
of a form that is never NULL, as those of EXISTS are bound, no test is needed.

Where only the existence of partners counts and keys decide it alone, the right side shrinks to
its distinct keys: then the thousandth partner of a row costs nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from streams.plan.analyses import equijoin
from streams.plan.analyses.equijoin import Side
from streams.plan.ir import (
    Distinct,
    Filter,
    Join,
    JoinKind,
    Key,
    Match,
    Negate,
    Project,
    Relational,
    Threshold,
    Union,
    columns,
)
from streams.plan.passes.prune_columns import pick_columns
from streams.plan.passes.redundant_by_key import unique
from streams.plan.physical import Column, Rule
from streams.plan.scalar import (
    Call,
    Form,
    Literal,
    Ref,
    Scalar,
    conjunction,
    disjunction,
    nearest,
    refs,
    remap,
)

_DISTINCTIONS = ("IS DISTINCT FROM", "IS NOT DISTINCT FROM")


def expand(node: Match) -> Relational:
    """The plan that maintains a Match; it has no Match itself."""
    if sought := nearest(node.predicates):
        return _nearest(node, sought, _pairing(node))
    return _expanded(node)


def _expanded(node: Match) -> Relational:
    pairing = _pairing(node)
    left, known_rows = pairing.left, pairing.known()
    shown = list(range(len(columns(node.left))))
    match node.kind:
        case JoinKind.LEFT | JoinKind.FULL | JoinKind.SINGLE:
            paired = _single if node.kind is JoinKind.SINGLE else _outer
            return paired(node, pairing)
        case JoinKind.SEMI if not pairing.residual:
            return pick_columns(known_rows, shown)
        case JoinKind.SEMI:
            return pick_columns(Threshold((left, known_rows), Rule.WITH), shown)
        case JoinKind.ANTI:
            return pick_columns(Threshold((left, known_rows), Rule.WITHOUT), shown)
        case JoinKind.NULL_AWARE_ANTI:
            partners = _all([known_rows, *pairing.unknown()])
            return pick_columns(Threshold((left, partners), Rule.WITHOUT), shown)
        case JoinKind.MARK:
            unknown = [_all(parts)] if (parts := pairing.unknown()) else []
            marked = Threshold((left, known_rows, *unknown), Rule.MARK)
            return pick_columns(marked, [*shown, len(columns(left))])
        case JoinKind.INNER | JoinKind.RIGHT:
            raise AssertionError("a join to the nearest row")


def _outer(node: Match, pairing: "_Pairing") -> Relational:
    """The pairs, and the rows without a partner beside NULLs."""
    joined = Join(pairing.left, pairing.right, pairing.keys, pairing.residual)
    own, others = columns(node.left), columns(node.right)
    left, right = len(columns(pairing.left)), len(columns(pairing.right))
    shown = [*range(len(own)), *range(left, left + len(others))]
    alone = Threshold((pairing.left, pick_columns(joined, range(left))), Rule.WITHOUT)
    names = tuple(column.name for column in own + others)
    parts = [pick_columns(joined, shown), Project(alone, _refs(own) + _nulls(others), names)]
    if node.kind is JoinKind.FULL:
        matched = pick_columns(joined, range(left, left + right))
        alone = Threshold((pairing.right, matched), Rule.WITHOUT)
        parts.append(Project(alone, _nulls(own) + _refs(others), names))
    return Union(tuple(parts))


def _nearest(node: Match, sought: Call, pairing: "_Pairing") -> Relational:
    """The pairs of an ASOF join, and the rows without a partner beside NULLs.

    Where a range ends is nothing that the join shows: the rows beside it would change with it.
    """
    joined = Join(pairing.left, pairing.right, pairing.keys, pairing.residual)
    own, others = columns(node.left), columns(node.right)
    width = len(columns(pairing.left))
    end = max(refs(sought)) - len(own)
    places = [place for place in range(len(others)) if place != end]
    names = tuple(column.name for column in own + others)

    def beside(first: tuple[Scalar, ...], source: Relational, start: int) -> Project:
        """Right's columns, which begin at `start`, behind these."""
        shown = list(_nulls(others))
        for number, place in enumerate(places):
            shown[place] = _ref(columns(source)[start:], number, start)
        return Project(source, (*first, *shown), names)

    pairs = pick_columns(joined, [*range(len(own)), *(width + place for place in places)])
    parts = [beside(_refs(own), pairs, len(own))]
    if node.kind in {JoinKind.LEFT, JoinKind.FULL}:
        alone = Threshold((pairing.left, pick_columns(joined, range(width))), Rule.WITHOUT)
        parts.append(Project(alone, _refs(own) + _nulls(others), names))
    if node.kind in {JoinKind.RIGHT, JoinKind.FULL}:
        sides = (
            pick_columns(pairing.right, places),
            pick_columns(joined, [width + place for place in places]),
        )
        parts.append(beside(_nulls(own), Threshold(sides, Rule.BUT_ONE), 0))
    return Union(tuple(parts))


def _single(node: Match, pairing: "_Pairing") -> Relational:
    """The pairs but for those of rows with several, and the rows without one beside NULLs.

    Rows with several partners are few, mostly none: joined once more, they cost little beside
    the second copy of right's rows.
    """
    own, others, left = columns(node.left), columns(node.right), pairing.left
    width = len(columns(left))
    shown = [*range(len(own)), *range(width, width + len(others))]
    joined = Join(left, pairing.right, pairing.keys, pairing.residual)
    marked = Threshold((left, pick_columns(joined, range(width))), Rule.SINGLE)
    mark = _ref(columns(marked), width)
    several = pick_columns(Filter(marked, (_is_null(mark),)), range(width))
    taken = Join(several, pairing.right, pairing.keys, pairing.residual)
    alone = Filter(marked, (Call(Form.NOT, Form.NOT.value, (mark,), "BOOLEAN"),))
    names = tuple(column.name for column in own + others)
    padded = Project(alone, _refs(own) + _nulls(others), names)
    return Union((pick_columns(joined, shown), Negate(pick_columns(taken, shown)), padded))


@dataclass(frozen=True, slots=True)
class _Pairing:
    """Two sides with their keys as columns, and the residual predicates of a pair."""

    left: Relational
    right: Relational
    keys: tuple[Key, ...]
    residual: tuple[Scalar, ...]

    def known(self) -> Relational:
        """Left's rows, each as often as it has a partner."""
        return self.matched(self.keys, self.residual)

    def unknown(self) -> list[Relational]:
        """Left's rows that have partners of which the predicates say NULL, in parts."""
        vague = [key for key in self.keys if not key.null_equal]
        exact = tuple(key for key in self.keys if key.null_equal)
        nodes = []
        if vague:
            equal = [self._equal(key) for key in vague]
            judged: tuple[Scalar, ...] = ()
            if len(vague) > 1 or self.residual:  # else there is nothing that could be false
                judged = (_is_null(conjunction([*equal, *self.residual])),)
            left, right = columns(self.left), columns(self.right)
            nulls = [_is_null(_ref(left, key.left)) for key in vague]
            some = Filter(self.left, (disjunction(nulls),))
            nodes.append(self.matched(exact, judged, left=some))
            nulls = [_is_null(_ref(right, key.right)) for key in vague]
            some = Filter(self.right, (disjunction(nulls),))
            nodes.append(self.matched(exact, judged, right=some))
        if not all(map(_is_never_null, self.residual)):
            judged = (_is_null(conjunction(self.residual)),)
            nodes.append(self.matched(self.keys, judged))
        return nodes

    def matched(
        self,
        keys: tuple[Key, ...],
        residual: tuple[Scalar, ...],
        left: Relational | None = None,
        right: Relational | None = None,
    ) -> Relational:
        """The rows on the left, each as often as these keys and predicates find a partner."""
        ours, theirs = left or self.left, right or self.right
        if not residual:
            places = list(dict.fromkeys(key.right for key in keys))
            theirs = unique(Distinct(pick_columns(theirs, places)))
            keys = tuple(Key(k.left, places.index(k.right), k.null_equal) for k in keys)
        return pick_columns(Join(ours, theirs, keys, residual), range(len(columns(ours))))

    def _equal(self, key: Key) -> Scalar:
        left, right = columns(self.left), columns(self.right)
        left_ref, right_ref = _ref(left, key.left), _ref(right, key.right, len(left))
        return Call(Form.INFIX, "=", (left_ref, right_ref), "BOOLEAN")


def _pairing(node: Match) -> _Pairing:
    width = len(columns(node.left))
    ours = frozenset(range(width))
    theirs = frozenset(range(width, width + len(columns(node.right))))
    equated = equijoin.equalities(node.predicates, ours, theirs)
    taken = [predicate for predicate, _ in equated]
    left, right, keys = equijoin.with_key_columns(
        equijoin.side(node.left, 0),
        equijoin.side(node.right, width),
        [equality for _, equality in equated],
    )
    rest = [predicate for predicate in node.predicates if predicate not in taken]
    return _Pairing(left.node, right.node, keys, _residual(left, right, rest))


def _residual(left: Side, right: Side, predicates: Sequence[Scalar]) -> tuple[Scalar, ...]:
    width = len(columns(left.node))
    positions = left.positions | {i: width + place for i, place in right.positions.items()}
    return tuple(remap(predicate, positions) for predicate in predicates)


def _all(parts: Sequence[Relational]) -> Relational:
    return parts[0] if len(parts) == 1 else Union(tuple(parts))


def _ref(own: tuple[Column, ...], place: int, start: int = 0) -> Ref:
    return Ref(start + place, own[place].type, own[place].name)


def _refs(own: tuple[Column, ...]) -> tuple[Scalar, ...]:
    return tuple(_ref(own, i) for i in range(len(own)))


def _nulls(own: tuple[Column, ...]) -> tuple[Scalar, ...]:
    return tuple(Literal(f"CAST(NULL AS {c.type})", c.type, "NULL") for c in own)


def _is_never_null(scalar: Scalar) -> bool:
    """Whether a predicate is true or false, never NULL, for every row, by its form."""
    if not isinstance(scalar, Call):
        return False
    if scalar.form in {Form.AND, Form.OR, Form.NOT}:
        return all(map(_is_never_null, scalar.arguments))
    return scalar.form in {Form.IS_NULL, Form.IS_NOT_NULL} or scalar.name in _DISTINCTIONS


def _is_null(scalar: Scalar) -> Scalar:
    return Call(Form.IS_NULL, Form.IS_NULL.value, (scalar,), "BOOLEAN")
