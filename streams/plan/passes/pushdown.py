"""Move predicates towards the collections that their columns come from.

Leaves behind: no Filter over a Product; no outer join of which only the pairs are read; a
predicate of one input of a Product lies in that input, unless it can fail (then it waits until
the join has removed the rows it may not see). A key equality in all parts of an OR becomes a
join key, and their conditions on one input become a filter of that input. A predicate moves
below a Group or Distinct only if it has the same value there: a float or an interval may be
represented by another value of its group. A predicate moves into a side of an outer join only
if it concerns that side's rows alone, matched or not.

A temporal predicate ends the life of rows, so it bounds the state of operators above it
(`analyses.temporal`). If it can fail it stays, and its total form is pushed down. It applies to
each input of a join that has columns equal to those that it reads.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from streams.plan.analyses.disjunctions import factor, implied_predicate
from streams.plan.analyses.fallible import can_fail
from streams.plan.analyses.frame_values import seen_conjunct
from streams.plan.analyses.known_predicates import known_predicates
from streams.plan.analyses.temporal import TIMESTAMPS, equated_conjuncts, is_temporal, total
from streams.plan.analyses.time_bounds import implied_conjuncts
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
    children,
    columns,
    with_children,
)
from streams.plan.passes.null_rejecting import simplified
from streams.plan.scalar import (
    Call,
    Form,
    Literal,
    Ref,
    Scalar,
    conjuncts,
    equality,
    nearest,
    refs,
    replace_part,
    shift,
    substitute,
    walk,
)

_OF_PARTITION = Literal("NULL", "INTEGER", "what a partition has in common")
_MOST_NODES = 200  # of a predicate that is repeated instead of computed once above

_OF_LEFT = frozenset({JoinKind.LEFT, JoinKind.SINGLE, JoinKind.SEMI, JoinKind.ANTI})
"""Kinds whose answer is, for each row on the left, a function of its matches."""

Predicates = tuple[Scalar, ...]


def pushdown(node: Relational) -> Relational:
    """Move every predicate of the tree as far down as it may go."""
    return _push(node, ())


def _push(  # noqa: C901, PLR0911, PLR0912 - one case for each kind of node
    node: Relational, predicates: Predicates
) -> Relational:
    match node:
        case Filter():
            return _push(node.input, predicates + _factored(node.predicates))
        case Project():
            return _through_project(node, predicates)
        case Product():
            return _into_product(node, predicates)
        case Group():
            return _through_group(node, predicates)
        case Match():
            return _into_match(node, predicates)
        case Window() | TopK():
            return _through_partitions(node, predicates)
        case Distinct() | Threshold():
            below, above = _split(predicates, _exact)
            parts = tuple(_push(part, below) for part in children(node))
            return _filter(with_children(node, parts), above)
        case Unnest():
            return _through_unnest(node, predicates)
        case Union():
            return Union(tuple(_push(part, predicates) for part in node.inputs))
        case Join():
            sides = replace(node, left=_push(node.left, ()), right=_push(node.right, ()))
            return _filter(sides, predicates)
        case Negate():
            return _filter(Negate(_push(node.input, ())), predicates)
        case Get() | Values() | Variable() | Loop() | DeltaJoin():
            return _filter(node, predicates)


def _filter(node: Relational, predicates: Predicates) -> Relational:
    return Filter(node, predicates) if predicates else node


def _through_project(node: Project, predicates: Predicates) -> Relational:
    below: list[Scalar] = []
    above: list[Scalar] = []
    for predicate in predicates:
        moved = substitute(predicate, node.outputs)
        if sum(1 for _ in walk(moved)) <= _MOST_NODES:
            below.extend(part for part in conjuncts(moved) if not _holds(part))
        else:
            above.append(predicate)
    return _filter(replace(node, input=_push(node.input, tuple(below))), tuple(above))


def _holds(predicate: Scalar) -> bool:
    """Tell whether the predicate is true, or that something false is not."""
    if isinstance(predicate, Call) and predicate.form is Form.NOT:
        return _literal(predicate.arguments[0]) == "false"
    return _literal(predicate) == "true"


def _literal(scalar: Scalar) -> str:
    return scalar.sql if isinstance(scalar, Literal) else ""


def _into_product(node: Product, predicates: Predicates) -> Relational:
    starts, start = [], 0
    for part in node.inputs:
        starts.append(start)
        start += len(columns(part))
    inside: list[list[Scalar]] = [[] for _ in node.inputs]
    rest = []
    for predicate in _factored(node.predicates) + predicates:
        home = _home(predicate, starts)
        if home is None or can_fail(predicate):
            rest.append(predicate)
            for place, scalar in _implied(predicate, node, starts):
                inside[place].append(shift(scalar, -starts[place]))
        else:
            inside[home].append(shift(predicate, -starts[home]))
    _also_elsewhere(node, predicates, starts, inside)
    parts = zip(node.inputs, inside, strict=True)
    return Product(tuple(_push(part, tuple(own)) for part, own in parts), tuple(rest))


def _also_elsewhere(
    node: Product, predicates: Predicates, starts: list[int], inside: list[list[Scalar]]
) -> None:
    """Apply temporal predicates to inputs that have the columns they read, or equal ones."""
    every = node.predicates + predicates
    ends = _temporal(every)
    given = every + known_predicates(Product(node.inputs, ())) if ends else ()
    home = partial(_home, starts=starts)
    for predicate in ends:
        placed = [
            (place, same)
            for same in (predicate, *equated_conjuncts(predicate, every))
            if (place := home(same)) is not None and not can_fail(same)
        ]
        reached = {place for place, _ in placed}
        derived = implied_conjuncts(predicate, given, home)
        placed += [(place, same) for place, same in derived if place not in reached]
        for place, same in placed:
            own = shift(same, -starts[place])
            inside[place] += [] if own in inside[place] else [own]


def _temporal(predicates: Predicates) -> Predicates:
    """The temporal predicates in a form that does not fail, where they have one."""
    safe = (p if not can_fail(p) else total(p) for p in predicates if is_temporal(p))
    return tuple(predicate for predicate in safe if predicate is not None)


def _implied(
    predicate: Scalar, node: Product, starts: list[int]
) -> Iterator[tuple[int, Scalar]]:
    """The conjuncts that a predicate of several inputs implies for each alone."""
    for place, (start, part) in enumerate(zip(starts, node.inputs, strict=True)):
        scalar = implied_predicate(
            predicate, frozenset(range(start, start + len(columns(part))))
        )
        if scalar is not None:
            yield place, scalar


def _factored(predicates: Predicates) -> Predicates:
    return tuple(part for predicate in predicates for part in factor(predicate))


def _into_match(node: Match, predicates: Predicates) -> Relational:
    simple = simplified(replace(node, predicates=_factored(node.predicates)), predicates)
    if not isinstance(simple, Match):
        return _push(simple, predicates)
    width = len(columns(simple.left))

    def of_left(predicate: Scalar) -> bool:
        return all(ref < width for ref in refs(predicate)) and not can_fail(predicate)

    def of_right(predicate: Scalar) -> bool:
        read = refs(predicate)
        return bool(read) and all(ref >= width for ref in read) and not can_fail(predicate)

    mine, above = _split(predicates, of_left)
    theirs: Predicates = ()
    within = simple.predicates
    if simple.kind in {JoinKind.FULL, JoinKind.RIGHT}:
        mine, above = (), predicates
    if simple.kind in {JoinKind.LEFT, JoinKind.SINGLE, JoinKind.SEMI, JoinKind.ANTI}:
        theirs, within = _split(within, of_right)
    if simple.kind is JoinKind.SEMI:
        more, within = _split(within, of_left)
        mine += more
    partners = (*_of_partners(simple, mine), *_by_distance(simple, predicates))
    theirs += tuple(dict.fromkeys(same for same in partners if of_right(same)))
    if simple.kind is JoinKind.FULL:
        of_either = tuple(_of_either(simple, predicates))
        mine = tuple(same for same in of_either if of_left(same))
        theirs += tuple(same for same in of_either if of_right(same))
    right = _push(simple.right, tuple(shift(predicate, -width) for predicate in theirs))
    pushed = Match(_push(simple.left, mine), right, simple.kind, within)
    return _filter(pushed, above)


def _of_partners(node: Match, mine: Predicates) -> Iterator[Scalar]:
    """What temporal predicates of left's rows say of the rows on the right that match them.

    Where it counts whether a match is unknown, they must agree without a NULL.
    """
    asked = node.predicates
    if node.kind is JoinKind.NULL_AWARE_ANTI:
        asked = tuple(p for p in asked if (equal := equality(p)) and equal.null_equal)
    elif node.kind not in _OF_LEFT:
        return
    for predicate in _temporal(mine):
        yield from equated_conjuncts(predicate, asked)


def _by_distance(node: Match, predicates: Predicates) -> Iterator[Scalar]:
    """What temporal predicates of left's rows say by the distance of times of those they match.

    A row on the left needs its matches as long as it is there, and not after that.
    """
    width = len(columns(node.left))
    if node.kind not in _OF_LEFT or nearest(node.predicates):
        return
    home = partial(_home, starts=[0, width])
    ends = [p for p in predicates if is_temporal(p) and all(ref < width for ref in refs(p))]
    both = Product((node.left, node.right), ())
    given = node.predicates + known_predicates(both) if ends else ()
    for predicate in ends:
        yield from (same for _, same in implied_conjuncts(predicate, given, home))


def _of_either(node: Match, predicates: Predicates) -> Iterator[Scalar]:
    """What temporal predicates of a FULL join's rows say of the rows of each side.

    Read is `coalesce(l, r)` of two columns that the join equates. A row and all that match it
    are equal there, so all of them go, or none: none loses its match and stays.
    """
    for equal in filter(None, map(equality, node.predicates)):
        one, other = equal.one, equal.other
        if isinstance(one, Ref) and isinstance(other, Ref) and one.type in TIMESTAMPS:
            both = frozenset({one.index, other.index})
            for predicate in _temporal(predicates):
                yield from (_as_of(predicate, both, side) for side in (one, other))


def _as_of(scalar: Scalar, both: frozenset[int], side: Ref) -> Scalar:
    """An expression with one of two columns in the place of whichever is not NULL."""
    if not isinstance(scalar, Call):
        return scalar
    are_columns = all(isinstance(argument, Ref) for argument in scalar.arguments)
    if scalar.form is Form.COALESCE and are_columns and refs(scalar) == both:
        return side
    arguments = tuple(_as_of(argument, both, side) for argument in scalar.arguments)
    return replace(scalar, arguments=arguments)


def _through_unnest(node: Unnest, predicates: Predicates) -> Relational:
    width = len(columns(node.input))

    def of_rows(predicate: Scalar) -> bool:
        return all(ref < width for ref in refs(predicate)) and not can_fail(predicate)

    below, above = _split(predicates, of_rows)
    return _filter(replace(node, input=_push(node.input, below)), above)


def _home(predicate: Scalar, starts: list[int]) -> int | None:
    """The one input that the predicate reads; the first if it reads none."""
    owners = {max(i for i, s in enumerate(starts) if s <= ref) for ref in refs(predicate)}
    if len(owners) > 1:
        return None
    return owners.pop() if owners else 0


def _through_group(node: Group, predicates: Predicates) -> Relational:
    width = len(node.keys)

    def of_keys(predicate: Scalar) -> bool:
        # Without keys there is a row even over nothing, so nothing may be taken away below.
        return width > 0 and all(ref < width for ref in refs(predicate)) and _exact(predicate)

    below, above = _split(predicates, of_keys)
    moved = tuple(substitute(predicate, node.keys) for predicate in below)
    return _filter(replace(node, input=_push(node.input, moved)), above)


def _through_partitions(node: Window | TopK, predicates: Predicates) -> Relational:
    """A predicate of the keys keeps or drops whole partitions."""
    keys = [key for key in node.keys if not node.shared and not _is_vague(key.type)]

    def of_keys(predicate: Scalar) -> bool:
        bare = predicate
        for key in keys:
            bare = replace_part(bare, key, _OF_PARTITION)
        return bare != predicate and not refs(bare) and _exact(predicate)

    below, above = _split(predicates, of_keys)
    if isinstance(node, Window):
        below += tuple(filter(None, (seen_conjunct(node, p) for p in predicates)))
    return _filter(replace(node, input=_push(node.input, below)), above)


def _exact(predicate: Scalar) -> bool:
    """Tell whether the predicate may be judged on any row of a group, not on the group."""
    types = {node.type for node in walk(predicate) if isinstance(node, Ref)}
    return not can_fail(predicate) and not any(map(_is_vague, types))


def _is_vague(type_: str) -> bool:
    """Tell whether values of the type may be equal and yet behave otherwise."""
    return any(name in type_ for name in ("FLOAT", "DOUBLE", "INTERVAL"))


def _split(
    predicates: Predicates, chosen: Callable[[Scalar], bool]
) -> tuple[Predicates, Predicates]:
    yes = tuple(predicate for predicate in predicates if chosen(predicate))
    no = tuple(predicate for predicate in predicates if predicate not in yes)
    ahead = tuple(predicate for predicate in _temporal(no) if chosen(predicate))
    return yes + ahead, no
