"""Make a Product a delta join where that saves state.

A tree of joins stores its inputs and every intermediate result; a delta join stores only the
inputs, but each by every set of columns by which a path looks it up (`analyses.delta_paths`).
If inputs refer to keys, no intermediate result has more rows than the largest input, and
storing that input by several keys would cost more. So a Product becomes a delta join if

    - some intermediate result has no key that bounds it: neither what is joined so far nor the
      next input is unique in the columns that connect the two (`plan.analyses.keys`); and
    - it stores no more copies of a collection than the tree of joins would; or at most as many
      more as there are intermediate results for which not even guessed keys
      (`analyses.cardinality`) give a bound. Each of these may cost a copy of an input, and
      saves a result without a bound.

The price is time: a change produces all combinations with the earlier inputs of its path, even
if the last input then matches none. Relies on `join_order`: the inputs are in the order in
which they would be joined. Leaves behind: Products that `binary_joins` makes trees of.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from streams.plan.analyses.cardinality import looks_unique
from streams.plan.analyses.delta_paths import (
    ColumnEquality,
    equals,
    first_columns,
    paths,
    shared_relations,
)
from streams.plan.analyses.equijoin import Side, side, with_keys
from streams.plan.analyses.fallible import can_fail
from streams.plan.analyses.keys import is_unique
from streams.plan.analyses.temporal import is_temporal
from streams.plan.ir import (
    DeltaJoin,
    Filter,
    Product,
    Relational,
    Values,
    children,
    columns,
    variables,
    with_children,
)
from streams.plan.passes.prune_columns import pick_columns
from streams.plan.scalar import Call, Ref, Scalar, equality, refs, remap

MOST_INPUTS = 6
"""A delta join of n inputs has n (n - 1) lookups: beyond, they would outweigh the state."""

Unique = Callable[[Relational, frozenset[int]], bool]
_Ends = tuple[tuple[int, Scalar], tuple[int, Scalar]]


def deltas(node: Relational) -> Relational:
    """Replace such products below and at the node."""
    node = with_children(node, tuple(deltas(child) for child in children(node)))
    if isinstance(node, Product) and 2 < len(node.inputs) <= MOST_INPUTS:  # noqa: PLR2004 - two make no intermediate result
        return _delta(node)
    return node


def _delta(product: Product) -> Relational:
    if variables(product) or any(isinstance(part, Values) for part in product.inputs):
        return product
    cuts = first_columns(product.inputs)
    sides = [side(part, at) for part, at in zip(product.inputs, cuts, strict=False)]
    # What can fail is asked of combinations that pass all else, and the time of the rest.
    scalars = [p for p in product.predicates if not can_fail(p) and not is_temporal(p)]
    last = [p for p in product.predicates if p not in scalars]
    ends = {p: ends_of for p in scalars if (ends_of := _ends(p, sides)) is not None}
    for number, key in (end for pair in ends.values() for end in pair):
        sides[number] = with_keys(sides[number], [key])
    whole = _whole(sides)
    predicates = tuple(
        _between(p, ends[p], sides) if p in ends else remap(p, whole.positions) for p in scalars
    )
    assert isinstance(whole.node, DeltaJoin)
    node = replace(whole.node, predicates=predicates)
    if not _saves(node):
        return product
    moved = tuple(whole.moved(predicate) for predicate in last)
    rest = Filter(node, moved) if moved else node
    return pick_columns(rest, [whole.positions[i] for i in range(cuts[-1])])


def _ends(predicate: Scalar, sides: Sequence[Side]) -> _Ends | None:
    """The two inputs that an equality connects, each with its expression."""
    equated = equality(predicate)
    if equated is None:
        return None
    first_end, second_end = _home(equated.one, sides), _home(equated.other, sides)
    if first_end is None or second_end is None or first_end == second_end:
        return None
    return (first_end, equated.one), (second_end, equated.other)


def _home(scalar: Scalar, sides: Sequence[Side]) -> int | None:
    """The input that has all the columns of an expression."""
    read = refs(scalar)
    homes = (n for n, part in enumerate(sides) if read and read <= part.positions.keys())
    return next(homes, None)


def _whole(sides: Sequence[Side]) -> Side:
    """The combinations of all rows of the sides."""
    inputs = tuple(part.node for part in sides)
    cuts = first_columns(inputs)
    positions = {
        column: start + place
        for part, start in zip(sides, cuts, strict=False)
        for column, place in part.positions.items()
    }
    return Side(DeltaJoin(inputs, (), tuple(range(cuts[-1]))), positions)


def _between(predicate: Scalar, ends: _Ends, sides: Sequence[Side]) -> Scalar:
    """An equality as one of columns."""
    assert isinstance(predicate, Call)
    cuts = first_columns([part.node for part in sides])
    places = [(number, sides[number].keys[key]) for number, key in ends]
    pairs = [(cuts[n] + place, columns(sides[n].node)[place]) for n, place in places]
    return replace(predicate, arguments=tuple(Ref(at, c.type, c.name) for at, c in pairs))


def _saves(node: DeltaJoin) -> bool:
    """Tell whether the delta join is to keep less than joins would."""
    paths_ = paths(node)
    if paths_ is None:
        return False
    copies = Counter(visit.node for visit in shared_relations(node.inputs))
    arrangements = Counter(
        arranged.node for arranged in {visit.arranged for path in paths_ for visit in path}
    )
    more = sum((arrangements - copies).values())
    return _unbounded(node, is_unique) > 0 and more <= _unbounded(node, looks_unique)


def _unbounded(node: DeltaJoin, unique: Unique) -> int:
    """The number of intermediate results that no key bounds, if these keys hold."""
    connected, count = equals(node), 0
    joined = [0]
    while len(joined) < len(node.inputs) - 1:
        new, by = next(_connected(node, connected, joined))
        bounded = unique(node.inputs[new], _own(node, new, by)) or _determined(
            node, connected, joined, by, unique
        )
        count += not bounded
        joined.append(new)
    return count


def _connected(
    node: DeltaJoin, connected: Sequence[Sequence[ColumnEquality]], joined: Sequence[int]
) -> Iterator[tuple[int, list[ColumnEquality]]]:
    """The inputs that may be joined next, with the keys that connect them."""
    for number in range(len(node.inputs)):
        by = [equal for equal in connected[number] if equal.to in joined]
        if number not in joined and by:
            yield number, by


def _own(node: DeltaJoin, number: int, by: Sequence[ColumnEquality]) -> frozenset[int]:
    """The columns of an input that these equalities are about."""
    start = first_columns(node.inputs)[number]
    return frozenset(equal.column - start for equal in by)


def _determined(
    node: DeltaJoin,
    connected: Sequence[Sequence[ColumnEquality]],
    joined: Sequence[int],
    by: Sequence[ColumnEquality],
    unique: Unique,
) -> bool:
    """Whether the columns on the known side determine a row of each known input."""
    cuts = first_columns(node.inputs)
    fixed: set[int] = set()
    while True:
        nexts = [
            number
            for number in set(joined) - fixed
            if unique(
                node.inputs[number],
                frozenset(e.other - cuts[number] for e in by if e.to == number)
                | _own(node, number, [e for e in connected[number] if e.to in fixed]),
            )
        ]
        if not nexts:
            return fixed == set(joined)
        fixed.update(nexts)
