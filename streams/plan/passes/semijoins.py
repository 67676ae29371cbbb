"""Evaluate semijoins before the joins that they filter.

A SEMI or ANTI join above a product whose predicates read only one input can be applied to that
input. Below the product, the product stores fewer rows, and the match narrower ones. It stays
above if the product is estimated to have fewer rows than the input (`analyses.cardinality`),
and if other operators read the product too, which would then exist twice. Predicates that can
fail are not moved: the rows on which they are evaluated must not change. Relies on `flatten`.
Leaves behind: such matches as inputs of products.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from streams.plan.analyses.fallible import can_fail
from streams.plan.ir import (
    JoinKind,
    Match,
    Product,
    Project,
    Relational,
    children,
    columns,
    with_children,
)
from streams.plan.passes.join_order import sizes
from streams.plan.scalar import Ref, Scalar, refs, remap

_OF_LEFT = frozenset({JoinKind.SEMI, JoinKind.ANTI, JoinKind.NULL_AWARE_ANTI})
"""Kinds that keep some of left's rows as they are."""


_Readers = Mapping[Relational, AbstractSet[int]]
"""By what is read, the numbers of the different nodes that read it: equal trees are computed
once, and have one number."""


def semijoins(node: Relational) -> Relational:
    """Move such matches in the tree."""
    readers: dict[Relational, set[int]] = {}
    _read_in(node, readers, {})
    return _moved(node, readers)


def _read_in(
    node: Relational, readers: dict[Relational, set[int]], numbers: dict[Relational, int]
) -> None:
    # numbered once: a node's hash costs as much as the tree below it
    number = numbers.setdefault(node, len(numbers))
    for child in children(node):
        readers.setdefault(child, set()).add(number)
        _read_in(child, readers, numbers)


def _moved(node: Relational, readers: _Readers) -> Relational:
    node = with_children(node, tuple(_moved(child, readers) for child in children(node)))
    if not isinstance(node, Match) or node.kind not in _OF_LEFT:
        return node
    return _below(node, readers) or node


def _below(node: Match, readers: _Readers) -> Relational | None:
    """The semijoin pushed into one input; None if it stays."""
    if len(readers.get(node.left, ())) > 1:
        return None
    match node.left:
        case Product(predicates=predicates) if not any(
            map(can_fail, (*node.predicates, *predicates))
        ):
            return _of_input(node, node.left)
        case Project(input=below, outputs=outputs) if not any(map(can_fail, outputs)):
            moved = _over(node, below, outputs)
            rewritten = None if moved is None else _below(moved, readers)
            return None if rewritten is None else replace(node.left, input=rewritten)
        case _:
            return None


def _over(node: Match, below: Relational, outputs: tuple[Scalar, ...]) -> Match | None:
    """The match over what a projection reads; None if a predicate reads what is computed."""
    places = dict[int, int]()
    for column in _read(node):
        shown = outputs[column]
        if not isinstance(shown, Ref):
            return None
        places[column] = shown.index
    return _matched(node, below, places)


def _of_input(node: Match, product: Product) -> Relational | None:
    read, start = _read(node), 0
    result, input_rows = sizes(product)
    for place, part in enumerate(product.inputs):
        end = start + len(columns(part))
        if read and all(start <= column < end for column in read):
            if input_rows[place] > result:
                return None
            inputs = list(product.inputs)
            inputs[place] = _matched(node, part, {at: at - start for at in read})
            return Product(tuple(inputs), product.predicates)
        start = end
    return None


def _read(node: Match) -> frozenset[int]:
    """The columns of left that the predicates read."""
    width = len(columns(node.left))
    every = frozenset[int]().union(*map(refs, node.predicates))
    return frozenset(column for column in every if column < width)


def _matched(node: Match, left: Relational, places: dict[int, int]) -> Match:
    """The match of another left side, in which the columns that are read have these places."""
    width, own = len(columns(node.left)), len(columns(left))
    moved = {width + n: own + n for n in range(len(columns(node.right)))} | places
    predicates = tuple(remap(predicate, moved) for predicate in node.predicates)
    return Match(left, node.right, node.kind, predicates)
