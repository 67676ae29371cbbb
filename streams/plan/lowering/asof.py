"""Lowers a join to the nearest row (`Form.NEAREST`) to its physical operator."""

from streams.plan import ir, physical
from streams.plan.lowering import aggregate_sql
from streams.plan.scalar import Ref, nearest

Sides = tuple[physical.NodeId, physical.NodeId, tuple[int, ...], tuple[int, ...]]
"""The inputs of a join, and the positions of its keys on either side."""


def asof(node: ir.Join, sides: Sides, null_equal: tuple[bool, ...]) -> physical.Asof | None:
    """The operator for a join whose only predicate is `nearest`; else None."""
    predicate = nearest(node.residual)
    if predicate is None:
        return None
    assert len(node.residual) == 1, "all other predicates are pushed into the inputs"
    width = len(ir.columns(node.left))
    point, start, end = (
        argument for argument in predicate.arguments if isinstance(argument, Ref)
    )
    descends = predicate.name in {"<=", "<"}  # from start to end values fall then
    left = ir.Order(point, descends)
    right = ir.Order(Ref(start.index - width, start.type, start.name), descends)
    last = ir.Order(Ref(end.index - width, end.type, end.name), descends)
    rows = aggregate_sql.whole_row(node.left), aggregate_sql.whole_row(node.right)
    return physical.Asof(
        *sides,
        null_equal,
        point.index,
        start.index - width,
        end.index - width,
        (_key(left), _key(right), _key(last)),
        (aggregate_sql.sort_key([left], rows[0]), aggregate_sql.sort_key([right], rows[1])),
        predicate.name in {">=", "<="},
    )


def _key(order: ir.Order) -> str:
    """A sort key of one value with an empty text behind it, which makes a BLOB of any."""
    return f"create_sort_key({aggregate_sql.sort_key([order], [])}, '', 'ASC NULLS LAST')"
