"""A persistent min-heap of named times. Pure.

A leftist heap: both operations cost O(log n) and share all but as many nodes with the heap
before. Times of names only grow, so an outdated entry is still a lower bound: it is corrected
when it comes first, and moving a time costs nothing.

Source: C. Okasaki, Purely Functional Data Structures, 3.1.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """A heap: its least entry, and the rest in two subheaps; `right` is the shallower one."""

    rank: int
    time: int
    name: str
    left: "Heap"
    right: "Heap"


Heap = Node | None


def merged(one: Heap, other: Heap) -> Heap:
    """Return the heap with the entries of both."""
    if one is None or other is None:
        return one or other
    if other.time < one.time:
        one, other = other, one
    left, right = one.left, merged(one.right, other)
    if rank_of(left) < rank_of(right):
        left, right = right, left
    return Node(rank_of(right) + 1, one.time, one.name, left, right)


def rank_of(heap: Heap) -> int:
    """Return the length of the shortest path to a leaf."""
    return 0 if heap is None else heap.rank


def pushed(heap: Heap, time: int, name: str) -> Heap:
    """Return the heap with one more entry."""
    return merged(heap, Node(1, time, name, None, None))


def heap_of(entries: Iterable[tuple[int, str]]) -> Heap:
    """Return a heap of all entries."""
    heap: Heap = None
    for time, name in entries:
        heap = pushed(heap, time, name)
    return heap


def current(heap: Heap, time_of: Callable[[str], int | None]) -> Heap:
    """Return the heap with its first entry up to date.

    `time_of` returns the present time of a name, not before that of its entry; None if the name
    is gone.
    """
    while heap is not None:
        now = time_of(heap.name)
        if now == heap.time:
            return heap
        rest = merged(heap.left, heap.right)
        heap = rest if now is None else pushed(rest, now, heap.name)
    return None
