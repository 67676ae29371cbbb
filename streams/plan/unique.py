"""What is known of the number of rows, whatever the tables hold.

Both answers are safe: False only means that nothing is known.
"""

from streams.plan.ir import (
    Distinct,
    Filter,
    Group,
    Kind,
    Match,
    Product,
    Project,
    Relational,
    Threshold,
    TopK,
    Values,
    Window,
    columns,
)
from streams.plan.physical import Rule
from streams.plan.scalar import Call, Ref, refs

_EQUAL = ("=", "IS NOT DISTINCT FROM")


def is_unique(  # noqa: C901, PLR0911, PLR0912 - one case a node
    node: Relational, places: frozenset[int]
) -> bool:
    """Tell whether no two rows are equal in the columns at these places."""
    match node:
        case Values():
            return len(node.rows) <= 1
        case Filter():
            return is_unique(node.input, places)
        case Project():
            shown = [node.outputs[place] for place in places]
            return is_unique(
                node.input, frozenset(o.index for o in shown if isinstance(o, Ref))
            )
        case Group():
            return places >= frozenset(range(len(node.keys)))
        case Window():
            return is_unique(node.input, places & frozenset(range(len(columns(node.input)))))
        case TopK(offset=0, limit=1):
            by = {key.index for key in node.keys if isinstance(key, Ref)}
            first = len(by) == len(node.keys) and places >= by
            return first or is_unique(node.input, places)
        case TopK():
            return is_unique(node.input, places)
        case Distinct():
            return _whole(node, places) or is_unique(node.input, places)
        case Threshold():
            return node.rule in {Rule.INTERSECT, Rule.EXCEPT} and _whole(node, places)
        case Match():
            left = is_unique(node.left, places & frozenset(range(len(columns(node.left)))))
            return left and (node.kind is not Kind.FULL) and (_marks(node) or is_single(node))
        case Product():
            return _product(node, places)
        case _:
            return False


def is_single(node: Match) -> bool:
    """Tell whether every row on the left has at most one match."""
    width = len(columns(node.left))
    keys = set()
    for predicate in node.predicates:
        if isinstance(predicate, Call) and predicate.name in _EQUAL:
            for one, other in (predicate.arguments, reversed(predicate.arguments)):
                of_left = all(ref < width for ref in refs(other))
                if isinstance(one, Ref) and one.index >= width and of_left:
                    keys.add(one.index - width)
    return is_unique(node.right, frozenset(keys))


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
        case Match(kind=Kind.LEFT | Kind.SINGLE | Kind.MARK):
            return is_one_row(node.left) and (_marks(node) or is_single(node))
        case _:
            return False


def _whole(node: Relational, places: frozenset[int]) -> bool:
    return places >= frozenset(range(len(columns(node))))


def _marks(node: Match) -> bool:
    """Whether right's rows do not multiply left's."""
    return node.kind not in {Kind.LEFT, Kind.FULL, Kind.SINGLE}


def _product(node: Product, places: frozenset[int]) -> bool:
    start = 0
    for part in node.inputs:
        width = len(columns(part))
        own = frozenset(place - start for place in places if start <= place < start + width)
        if not is_unique(part, own):
            return False
        start += width
    return True
