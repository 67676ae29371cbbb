"""Take the first rows of a partition where a predicate drops all others.

With `row_number() <= 3` above a window, the window needs only the first three rows: it is
computed over these, and a search finds them (TopK). That is correct if every call of the window
depends only on the rows up to its own. The predicate is then redundant; and if the number is
not read, as for a correlated LIMIT, `prune_columns` drops it.
"""

from dataclasses import replace

from streams.plan.ir import (
    Filter,
    Relational,
    TopK,
    Window,
    children,
    columns,
    with_children,
)
from streams.plan.scalar import Call, Literal, Ref, Scalar

_DECIDED_BEFORE = frozenset({"row_number", "rank", "dense_rank", "lag"})
_MOST = {"<=": 0, "<": -1, "=": 0}
_MIRRORED = {">=": "<=", ">": "<", "=": "="}


def limits(node: Relational) -> Relational:
    """Limit every such window in the tree."""
    node = with_children(node, tuple(limits(child) for child in children(node)))
    if isinstance(node, Filter) and isinstance(node.input, Window):
        return _limited(node.input, node.predicates)
    return node


def _limited(window: Window, predicates: tuple[Scalar, ...]) -> Relational:
    width, orders = len(columns(window.input)), window.calls[0].orders
    alike = all(
        call.function in _DECIDED_BEFORE and call.orders == orders and not call.inner
        for call in window.calls
    )
    numbers = {
        width + place
        for place, call in enumerate(window.calls)
        if call.function == "row_number" and call.frame is None
    }
    bounds = [
        bound for predicate in predicates if (bound := _bound(predicate, numbers)) is not None
    ]
    if not alike or not bounds:
        return Filter(window, predicates)
    most = max(min(bounds), 0)
    first = TopK(window.input, window.keys, orders, 0, most, shared=window.shared)
    rest = tuple(predicate for predicate in predicates if not _holds(predicate, numbers, most))
    limited = replace(window, input=first)
    return Filter(limited, rest) if rest else limited


def _holds(predicate: Scalar, numbers: set[int], most: int) -> bool:
    """Whether all the first `most` row numbers pass."""
    bound = _bound(predicate, numbers)
    exact = isinstance(predicate, Call) and predicate.name == "="
    return bound is not None and bound >= most and not (exact and most != 1)


def _bound(predicate: Scalar, numbers: set[int]) -> int | None:
    """The greatest row number that the predicate lets through, if it is about one."""
    if not isinstance(predicate, Call) or len(predicate.arguments) != 2:  # noqa: PLR2004 - a comparison
        return None
    left, right = predicate.arguments
    name: str | None = predicate.name
    if isinstance(left, Literal):
        left, right, name = right, left, _MIRRORED.get(predicate.name)
    if not isinstance(left, Ref) or left.index not in numbers or name not in _MOST:
        return None
    if not isinstance(right, Literal) or not right.label.isdigit():
        return None
    return int(right.label) + _MOST[name]
