"""Extracts the equal columns of a join from predicates over both rows.

A *row of both* is what predicates are written over: the columns of all sides one after the
other. A side of a join holds some of these columns, under positions of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from streams.plan.analyses.equality import representative
from streams.plan.analyses.fallible import can_fail
from streams.plan.ir import Join, Key, Project, Relational, columns
from streams.plan.scalar import Equality, Ref, Scalar, equality, remap


@dataclass(frozen=True, slots=True)
class Side:
    """A side of a join, and where it holds each column of the row of both.

    `keys` are expressions over the row of both that have a column here.
    """

    node: Relational
    positions: dict[int, int]
    keys: dict[Scalar, int] = field(default_factory=dict)

    def moved(self, scalar: Scalar) -> Scalar:
        """An expression over the row of both as one over `node`."""
        return remap(scalar, self.positions)


def side(node: Relational, start: int) -> Side:
    """A side whose columns begin at `start` in the row of both."""
    return Side(node, {start + i: i for i in range(len(columns(node)))})


def equalities(
    predicates: Sequence[Scalar], places: frozenset[int], new: frozenset[int]
) -> list[tuple[Scalar, Equality]]:
    """The predicates that are keys between known columns and new ones, and how.

    A key that can fail is one only if there is no other: else it is judged after the join,
    on the rows that the others let through.
    """
    pairs: list[tuple[Scalar, Equality]] = []
    for predicate in predicates:
        equated = equality(predicate)
        oriented = equated.oriented(places, new) if equated else None
        if oriented:
            pairs.append((predicate, oriented))
    safe = [pair for pair in pairs if not can_fail(pair[0])]
    return safe or pairs


def with_keys(of: Side, keys: Sequence[Scalar]) -> Side:
    """The side with a column for each key that is not one yet, behind its own.

    Of a float or an interval the key is its representative, and the column itself stays: it
    may be added to a date.
    """
    own = columns(of.node)
    outputs: list[Scalar] = [Ref(i, c.type, c.name) for i, c in enumerate(own)]
    names = [c.name for c in own]
    places = dict(of.keys)
    for key in keys:
        if key in places:
            continue
        moved = representative(of.moved(key))
        if moved not in outputs:
            outputs.append(moved)
            names.append("key")
        places[key] = outputs.index(moved)
    if len(outputs) == len(own):
        return replace(of, keys=places)
    return replace(of, node=Project(of.node, tuple(outputs), tuple(names)), keys=places)


def with_key_columns(
    left: Side, right: Side, equated: Sequence[Equality]
) -> tuple[Side, Side, tuple[Key, ...]]:
    """Both sides with a column for each key, and which of these are equal."""
    left = with_keys(left, [equality.one for equality in equated])
    right = with_keys(right, [equality.other for equality in equated])
    keys = tuple(Key(left.keys[e.one], right.keys[e.other], e.null_equal) for e in equated)
    return left, right, keys


def join_sides(
    left: Side, right: Side, keys: tuple[Key, ...], residual: Sequence[Scalar] = ()
) -> Side:
    """The join of the sides; residual predicates are over the row of both."""
    width = len(columns(left.node))
    positions = left.positions | {i: width + place for i, place in right.positions.items()}
    computed = {key: width + place for key, place in right.keys.items()} | left.keys
    judged = tuple(remap(predicate, positions) for predicate in residual)
    return Side(Join(left.node, right.node, keys, judged), positions, computed)
