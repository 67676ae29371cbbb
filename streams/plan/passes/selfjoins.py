"""Read a collection once where a product joins it with itself on its key.

Equal keys mean the same row, so the second read of the collection adds only its filters.
Generated queries often have such joins. Only keys that an operator enforces count
(`plan.analyses.keys`). Expressions that can fail are not changed: the rows on which they are
evaluated must stay the same. Relies on `flatten`: a read is a Get, or a Filter of one. Leaves
behind: no two reads in a Product that are equated by a key.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from streams.plan.analyses.fallible import can_fail
from streams.plan.ir import (
    Filter,
    Get,
    Product,
    Project,
    Relational,
    children,
    columns,
    with_children,
)
from streams.plan.scalar import Call, Form, Ref, Scalar, equality, remap


def selfjoins(node: Relational) -> Relational:
    """Merge such readings in every product of the tree."""
    node = with_children(node, tuple(selfjoins(child) for child in children(node)))
    return _once(node) if isinstance(node, Product) else node


@dataclass(frozen=True, slots=True)
class _Reading:
    """An input of the product that reads a collection, and where its columns begin."""

    place: int
    start: int
    get: Get
    predicates: tuple[Scalar, ...]


def _once(node: Product) -> Relational:
    readings = list(_readings(node))
    for number, first in enumerate(readings):
        for second in readings[number + 1 :]:
            keys = _equated(first, second, node.predicates)
            if keys is not None:
                return _merged(node, first, second, keys)
    return node


def _readings(node: Product) -> Iterator[_Reading]:
    start = 0
    for place, part in enumerate(node.inputs):
        source, predicates = part, tuple[Scalar, ...]()
        if isinstance(part, Filter):
            source, predicates = part.input, part.predicates
        if isinstance(source, Get) and not any(map(can_fail, predicates)):
            yield _Reading(place, start, source, predicates)
        start += len(columns(part))


def _equated(
    first: _Reading, second: _Reading, predicates: tuple[Scalar, ...]
) -> dict[Scalar, Ref] | None:
    """The predicates that equate a key of the readings, with the column of the key."""
    if first.get != second.get:
        return None
    pairs = dict(_pairs(first, second, predicates))
    for key in first.get.keys:
        refs = {predicate: ref for predicate, ref in pairs.items() if ref.index in key}
        if {ref.index for ref in refs.values()} == set(key):
            return refs
    return None


def _pairs(
    first: _Reading, second: _Reading, predicates: tuple[Scalar, ...]
) -> Iterator[tuple[Scalar, Ref]]:
    """The predicates that equate a column with itself, and this column of the collection."""
    for place, own in enumerate(first.get.columns):
        first_ref = Ref(first.start + place, own.type, own.name)
        other = Ref(second.start + place, own.type, own.name)
        for predicate in predicates:
            equated = equality(predicate)
            if equated is not None and {equated.one, equated.other} == {first_ref, other}:
                yield predicate, Ref(place, own.type, own.name)


def _merged(
    node: Product, first: _Reading, second: _Reading, keys: dict[Scalar, Ref]
) -> Relational:
    width = len(columns(second.get))
    end = second.start + width
    total = sum(len(columns(part)) for part in node.inputs)
    moved = {column: column if column < end else column - width for column in range(total)}
    moved |= {second.start + place: first.start + place for place in range(width)}
    there = tuple(
        Call(Form.IS_NOT_NULL, Form.IS_NOT_NULL.value, (ref,), "BOOLEAN")
        for predicate, ref in keys.items()
        if (equated := equality(predicate)) is not None and not equated.null_equal
    )
    scalars = tuple(dict.fromkeys(first.predicates + second.predicates + there))
    inputs = list(node.inputs)
    inputs[first.place] = Filter(first.get, scalars) if scalars else first.get
    del inputs[second.place]
    rest = tuple(
        remap(predicate, moved) for predicate in node.predicates if predicate not in keys
    )
    own = columns(node)
    outputs = tuple(Ref(moved[i], column.type, column.name) for i, column in enumerate(own))
    names = tuple(column.name for column in own)
    return Project(_once(Product(tuple(inputs), rest)), outputs, names)
