"""Turn every Product into a tree of joins on equal columns.

Predicates of the form `a = b`, with the two sides from different inputs, become keys; what
else is left becomes a Filter, as early as its columns are there if it cannot fail, and at the
end if it can. The order is the query's, except that an input waits until a key connects it:
so no cross product arises where the query has none. A constant row joins by being written
into the other side. Leaves behind: no Product.

Errors: InvalidStatement for inputs that nothing connects.
"""

from dataclasses import dataclass, field, replace

from streams.errors import InvalidStatement
from streams.plan.fallible import can_fail
from streams.plan.ir import (
    Filter,
    Join,
    Key,
    Product,
    Project,
    Relational,
    Values,
    children,
    columns,
    gets,
    with_children,
)
from streams.plan.passes.canonical import representative
from streams.plan.passes.prune import pick
from streams.plan.scalar import Call, Ref, Scalar, refs, remap, substitute

_EQUAL = {"=": False, "IS NOT DISTINCT FROM": True}


@dataclass(frozen=True, slots=True)
class _Equality:
    """Two expressions over the product's row that a predicate equates."""

    one: Scalar
    other: Scalar
    null_equal: bool

    def oriented(self, known: frozenset[int], new: frozenset[int]) -> "_Equality | None":
        """The equality with `one` over known columns and `other` over new ones, if it is."""
        for one, other in ((self.one, self.other), (self.other, self.one)):
            left, right = refs(one), refs(other)
            if left and right and left <= known and right <= new:
                return _Equality(one, other, self.null_equal)
        return None


@dataclass(frozen=True, slots=True)
class _Joined:
    """What is joined so far, and where it holds each column of the product's row.

    `keys` are expressions over the product's row that were keys and still have a column.
    """

    node: Relational
    positions: dict[int, int]
    keys: dict[Scalar, int] = field(default_factory=dict)

    def moved(self, scalar: Scalar) -> Scalar:
        """An expression over the product's row as one over `node`."""
        return remap(scalar, self.positions)


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
    joined = _first(tables.pop(0))
    for part in constants:
        joined = _with_constants(joined, part)
    joined = _settle(joined, pending)
    while tables:
        chosen = next((p for p in tables if _keys(joined, p, pending)), None)
        if chosen is None:
            raise _cross_product(joined, tables)
        tables.remove(chosen)
        joined = _settle(_join(joined, chosen, pending), pending)
    last = _filtered(joined.node, [joined.moved(predicate) for predicate in pending])
    return pick(last, [joined.positions[i] for i in range(start)])


def _first(part: _Input) -> _Joined:
    return _Joined(part.node, {i: i - part.start for i in part.columns})


def _constant_row(node: Relational) -> bool:
    """Tell whether the node is one row whose values no input can change."""
    if isinstance(node, Project):
        return _constant_row(node.input)
    return isinstance(node, Values) and len(node.rows) == 1


def _constants(node: Relational) -> tuple[Scalar, ...]:
    if isinstance(node, Project):
        inside = _constants(node.input)
        return tuple(substitute(output, inside) for output in node.outputs)
    assert isinstance(node, Values)
    return node.rows[0]


def _with_constants(joined: _Joined, part: _Input) -> _Joined:
    own = columns(joined.node)
    outputs = tuple(Ref(i, c.type, c.name) for i, c in enumerate(own)) + _constants(part.node)
    names = tuple(c.name for c in own) + tuple(c.name for c in columns(part.node))
    positions = {i: len(own) + i - part.start for i in part.columns}
    node = Project(joined.node, outputs, names)
    return replace(joined, node=node, positions=joined.positions | positions)


def _settle(joined: _Joined, pending: list[Scalar]) -> _Joined:
    """Apply what can be judged now; what can fail waits for the last join."""
    known = joined.positions.keys()
    ready = [p for p in pending if refs(p) <= known and not can_fail(p)]
    for predicate in ready:
        pending.remove(predicate)
    moved = [joined.moved(predicate) for predicate in ready]
    return replace(joined, node=_filtered(joined.node, moved))


def _filtered(node: Relational, predicates: list[Scalar]) -> Relational:
    return Filter(node, tuple(predicates)) if predicates else node


def _equality(predicate: Scalar) -> _Equality | None:
    if isinstance(predicate, Call) and predicate.name in _EQUAL:
        one, other = predicate.arguments
        return _Equality(one, other, _EQUAL[predicate.name])
    return None


def _keys(
    joined: _Joined, part: _Input, pending: list[Scalar]
) -> list[tuple[Scalar, _Equality]]:
    """The pending predicates that are keys between the two, and how.

    A key that can fail is one only if there is no other: else it is judged after the join,
    on the rows that the others let through.
    """
    known = frozenset(joined.positions)
    found = []
    for predicate in pending:
        equality = _equality(predicate)
        oriented = equality.oriented(known, part.columns) if equality else None
        if oriented:
            found.append((predicate, oriented))
    safe = [pair for pair in found if not can_fail(pair[0])]
    return safe or found


def _join(joined: _Joined, part: _Input, pending: list[Scalar]) -> _Joined:
    found = _keys(joined, part, pending)
    for predicate, _ in found:
        pending.remove(predicate)
    left = _with_keys(joined, [equality.one for _, equality in found])
    right = _with_keys(_first(part), [equality.other for _, equality in found])
    keys = tuple(
        Key(left.keys[equality.one], right.keys[equality.other], equality.null_equal)
        for _, equality in found
    )
    width = len(columns(left.node))
    positions = {i: width + place for i, place in right.positions.items()}
    computed = {key: width + place for key, place in right.keys.items()}
    joined_node = Join(left.node, right.node, keys)
    return _Joined(joined_node, left.positions | positions, computed | left.keys)


def _with_keys(side: _Joined, keys: list[Scalar]) -> _Joined:
    """The side with a column for each key that is not one yet, behind its own.

    Of a float or an interval the key is its representative, and the column itself stays: it
    may be added to a date.
    """
    own = columns(side.node)
    outputs: list[Scalar] = [Ref(i, c.type, c.name) for i, c in enumerate(own)]
    names = [c.name for c in own]
    places = dict(side.keys)
    for key in keys:
        if key in places:
            continue
        moved = representative(side.moved(key))
        if moved not in outputs:
            outputs.append(moved)
            names.append("key")
        places[key] = outputs.index(moved)
    if len(outputs) == len(own):
        return replace(side, keys=places)
    return replace(side, node=Project(side.node, tuple(outputs), tuple(names)), keys=places)


def _cross_product(joined: _Joined, rest: list[_Input]) -> InvalidStatement:
    ours, theirs = _called(joined.node), _called(rest[0].node)
    return InvalidStatement(
        "CROSS JOIN is not supported in a materialized view",
        f"no condition equates a column of {theirs} with one of {ours}",
        "add a condition of the form a = b that connects them",
    )


def _called(node: Relational) -> str:
    names = [get.relation for get in gets(node)]
    return " and ".join(names) or "a constant"
