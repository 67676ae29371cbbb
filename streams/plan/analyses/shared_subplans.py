"""Finds subtrees that occur several times in a plan, so that passes rewrite them alike.

Equal subtrees are computed once (`lower`). The copies of a common table expression, and of the
outer side of a decorrelated subquery, are equal after binding. If passes adapted each copy to
its reader, the same join would be maintained twice, with different columns. So passes apply the
same rewrite to all copies of `repeated_subtrees`.
"""

from collections import Counter
from collections.abc import Iterator

from streams.plan.ir import (
    Filter,
    Get,
    Negate,
    Product,
    Project,
    Relational,
    Union,
    Values,
    Variable,
    children,
)


def repeated_subtrees(node: Relational) -> frozenset[Relational]:
    """The subtrees with state that occur more than once, without the parts of larger ones."""
    counts = Counter(_subtrees(node))
    if not any(count > 1 for count in counts.values()):
        return frozenset()
    return frozenset(_largest(node, counts))


def count_stateful(node: Relational) -> int:
    """The number of stateful operators in the subtree."""
    return sum(1 for _ in _subtrees(node))


def _subtrees(node: Relational) -> Iterator[Relational]:
    if _has_state(node):
        yield node
        for child in children(node):
            yield from _subtrees(child)


def _largest(node: Relational, counts: Counter[Relational]) -> Iterator[Relational]:
    if counts[node] > 1:
        yield node
    else:
        for child in children(node):
            yield from _largest(child, counts)


def _has_state(node: Relational) -> bool:
    """Whether computing the subtree once saves more than reading a collection once."""
    match node:
        case Get() | Values() | Variable():
            return False
        case Product(inputs=(only,)):
            return _has_state(only)
        case Project() | Filter() | Negate() | Union():
            return any(map(_has_state, children(node)))
        case _:
            return True
