"""Turn every Product into a tree of joins.

Predicates of the form `a = b`, with the two sides from different inputs, become keys; the other
predicates become a Filter, as soon as its columns are available if it cannot fail, and at the
end if it can. The order is the query's, except that an input is joined only when a key connects
it: so no cross product is added to the query. If nothing connects an input, every pair of rows
matches, and the predicates are evaluated as the pairs are made. A constant row is joined by
adding its values to the other side. Leaves behind: no Product.
"""

from dataclasses import dataclass, replace

from streams.plan.analyses.equijoin import Side, equalities, join_sides, side, with_key_columns
from streams.plan.analyses.fallible import can_fail
from streams.plan.analyses.temporal import is_temporal
from streams.plan.ir import (
    Filter,
    Product,
    Project,
    Relational,
    Values,
    children,
    columns,
    with_children,
)
from streams.plan.passes.prune_columns import pick_columns
from streams.plan.scalar import Ref, Scalar, refs, substitute


@dataclass(frozen=True, slots=True)
class _Input:
    """One input of the product, and the first of its columns in the product's row."""

    node: Relational
    start: int

    @property
    def columns(self) -> frozenset[int]:
        """Its columns in the product's row."""
        return frozenset(range(self.start, self.start + len(columns(self.node))))


def joins(node: Relational) -> Relational:
    """Replace every product below and at the node."""
    node = with_children(node, tuple(joins(child) for child in children(node)))
    return _arrange(node) if isinstance(node, Product) else node


def _arrange(product: Product) -> Relational:
    inputs, start = [], 0
    for node in product.inputs:
        inputs.append(_Input(node, start))
        start += len(columns(node))
    pending = list(product.predicates)
    constants = [part for part in inputs if _constant_row(part.node)]
    tables = [part for part in inputs if part not in constants] or [constants.pop(0)]
    side = _first(tables.pop(0))
    for part in constants:
        side = _with_constants(side, part)
    side = _settle(side, pending)
    while tables:
        chosen = next((p for p in tables if _keys(side, p, pending)), tables[0])
        tables.remove(chosen)
        side = _settle(_join(side, chosen, pending), pending)
    last = _filtered(side.node, [side.moved(predicate) for predicate in pending])
    return pick_columns(last, [side.positions[i] for i in range(start)])


def _first(part: _Input) -> Side:
    return side(part.node, part.start)


def _constant_row(node: Relational) -> bool:
    """Tell whether the node is one row of constant values."""
    if isinstance(node, Project):
        return _constant_row(node.input)
    return isinstance(node, Values) and len(node.rows) == 1


def _constants(node: Relational) -> tuple[Scalar, ...]:
    if isinstance(node, Project):
        inside = _constants(node.input)
        return tuple(substitute(output, inside) for output in node.outputs)
    assert isinstance(node, Values)
    return node.rows[0]


def _with_constants(side: Side, part: _Input) -> Side:
    own = columns(side.node)
    outputs = tuple(Ref(i, c.type, c.name) for i, c in enumerate(own)) + _constants(part.node)
    names = tuple(c.name for c in own) + tuple(c.name for c in columns(part.node))
    positions = {i: len(own) + i - part.start for i in part.columns}
    node = Project(side.node, outputs, names)
    return replace(side, node=node, positions=side.positions | positions)


def _settle(side: Side, pending: list[Scalar]) -> Side:
    """Apply the predicates whose columns exist; those that can fail wait for the last join."""
    ready = _ready(pending, frozenset(side.positions), temporal=True)
    return replace(side, node=_filtered(side.node, [side.moved(p) for p in ready]))


def _ready(pending: list[Scalar], positions: frozenset[int], *, temporal: bool) -> list[Scalar]:
    """Take the pending predicates that these columns suffice for and that cannot fail.

    Comparisons with the logical time are for a Filter: a join cannot let rows go later.
    """
    ready = [
        p
        for p in pending
        if refs(p) <= positions and not can_fail(p) and (temporal or not is_temporal(p))
    ]
    for predicate in ready:
        pending.remove(predicate)
    return ready


def _filtered(node: Relational, predicates: list[Scalar]) -> Relational:
    return Filter(node, tuple(predicates)) if predicates else node


def _keys(side: Side, part: _Input, pending: list[Scalar]) -> bool:
    """Tell whether a pending predicate connects the two."""
    return bool(equalities(pending, frozenset(side.positions), part.columns))


def _join(side: Side, part: _Input, pending: list[Scalar]) -> Side:
    positions = frozenset(side.positions)
    equated = equalities(pending, positions, part.columns)
    for predicate, _ in equated:
        pending.remove(predicate)
    left, right, keys = with_key_columns(
        side, _first(part), [equality for _, equality in equated]
    )
    # All pairs of two inputs may be too many to be made first and judged then.
    both = positions | part.columns
    residual = [] if keys else _ready(pending, both, temporal=False)
    return join_sides(left, right, keys, residual)
