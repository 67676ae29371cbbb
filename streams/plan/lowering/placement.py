"""Placement of rows: the level of a node, and the columns by which its rows are partitioned."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from streams.plan import ir
from streams.plan.scalar import Ref, Scalar

Slots = tuple[frozenset[int], ...]
"""The hashed columns, in order; each as the set of columns that hold its value."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The level a node runs on, and how its rows are spread there (None: anyhow)."""

    level: int
    slots: Slots | None = None


def by_just(placement: Placement, keys: tuple[int, ...]) -> Placement:
    """The placement of an operator that must be hashed by exactly these keys, in this order."""
    slots = placement.slots or ()
    fits = placement.level > 0 and len(slots) == len(keys)
    if fits and all(key in slot for key, slot in zip(keys, slots, strict=True)):
        return placement
    return Placement(placement.level + 1, tuple(frozenset({key}) for key in keys))


def projected(placement: Placement, outputs: Sequence[Scalar]) -> Placement:
    """The placement of a projection's rows."""
    columns = [output.index if isinstance(output, Ref) else None for output in outputs]
    return replace(placement, slots=after_projection(placement.slots, columns))


def after_projection(slots: Slots | None, outputs: Sequence[int | None]) -> Slots | None:
    """The partitioning after a projection; None if a hashed column is dropped.

    `outputs` has the column of the input that each output is, None if it is computed.
    """
    if slots is None:
        return None
    moved = tuple(
        frozenset(place for place, column in enumerate(outputs) if column in slot)
        for slot in slots
    )
    return moved if all(moved) else None


def in_common(placements: Sequence[Placement]) -> Slots | None:
    """The partitioning of a union: that of all inputs, if they agree."""
    first = placements[0]
    if any(p.level != first.level or p.slots is None for p in placements):
        return None
    spreads = [p.slots for p in placements if p.slots is not None]
    if len({len(slots) for slots in spreads}) != 1:
        return None
    merged = tuple(frozenset.intersection(*group) for group in zip(*spreads, strict=True))
    return merged if all(merged) else None


def same_pairs(
    left: Slots | None, right: Slots | None, keys: tuple[ir.Key, ...]
) -> tuple[ir.Key, ...] | None:
    """The keys, if both sides are hashed by the same pairs of them in the same order."""
    if left is None or right is None or len(left) != len(right):
        return None
    pairs = [
        next((key for key in keys if key.left in left_slot and key.right in right_slot), None)
        for left_slot, right_slot in zip(left, right, strict=True)
    ]
    return None if None in pairs else keys


def as_hashed(
    slots: Slots | None, keys: tuple[ir.Key, ...], side: str
) -> tuple[ir.Key, ...] | None:
    """The keys in the order in which this side is hashed, if it is hashed by just them."""
    if slots is None or len(slots) != len(keys):
        return None
    rest, order = list(keys), []
    for slot in slots:
        key = next((k for k in rest if (k.left if side == "left" else k.right) in slot), None)
        if key is None:
            return None
        rest.remove(key)
        order.append(key)
    return tuple(order)


def of_both(slots: Slots, keys: Iterable[tuple[int, int]], width: int) -> Slots:
    """The slots of a join's rows: a key's right column has the value of its left one.

    `keys` are pairs of a left and a right column, and the left side has `width` columns.
    """
    pairs = list(keys)
    return tuple(
        slot | frozenset(width + right for left, right in pairs if left in slot)
        for slot in slots
    )
