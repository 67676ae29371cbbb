"""When the leases and stages of a group end: a heap, so that a record looks only at those due.

A lease that is renewed keeps its entry, which is then early, and is corrected when it comes
first. What is gone keeps its entry too, until then, or until a half of all entries is of that
kind: then the heap is rebuilt. So a record costs O(log n) of the live leases, on average.
"""

from collections.abc import Callable, Iterable

from streams.ids import CapabilityId, CollectionId
from streams.storage.log.persistent_heap import Heap, heap_of, merged, pushed
from streams.values import value

LEAST = 64
"""So many entries are no reason to rebuild a heap."""

STAGE = "stage"


@value(frozen=True, slots=True)
class LeaseEnds:
    """Entries of names, each at or before the end of the lease that has the name."""

    heap: Heap = None
    entries: int = 0
    most: int = LEAST
    """With more entries the heap is rebuilt."""

    @property
    def next_ms(self) -> int | None:
        """A time before which nothing ends; None if nothing has a lease."""
        return None if self.heap is None else self.heap.time

    @property
    def is_full(self) -> bool:
        """Whether to rebuild it from what is live."""
        return self.entries > self.most

    def add(self, name: str, ends_ms: int) -> "LeaseEnds":
        """Enter a new lease, or one that may end earlier than before."""
        return LeaseEnds(pushed(self.heap, ends_ms, name), self.entries + 1, self.most)

    def due(
        self, clock_ms: int, end_of: Callable[[str], int | None]
    ) -> tuple[frozenset[str], "LeaseEnds"]:
        """Return the names whose leases have ended, and the heap without their entries.

        `end_of` returns the present end of a name's lease; None if it has none any more.
        """
        heap, entries, names = self.heap, self.entries, set[str]()
        while heap is not None and heap.time <= clock_ms:
            name, heap = heap.name, merged(heap.left, heap.right)
            entries -= 1
            ends_ms = end_of(name)
            if ends_ms is not None and ends_ms <= clock_ms:
                names.add(name)
            elif ends_ms is not None:
                heap, entries = pushed(heap, ends_ms, name), entries + 1
        return frozenset(names), LeaseEnds(heap, entries, self.most)


def lease_ends_of(ends_ms: Iterable[tuple[int, str]]) -> LeaseEnds:
    """Return the entries of these leases."""
    entries = list(ends_ms)
    return LeaseEnds(heap_of(entries), len(entries), 2 * len(entries) + LEAST)


def name_of_capability(collection: CollectionId, capability: CapabilityId) -> str:
    """Return the name of a capability's lease; ids may have any character."""
    return f"{len(collection)}:{collection}{capability}"


def name_of_stage(stage: str) -> str:
    """Return the name of a stage's lease."""
    return f"{STAGE}:{stage}"


def holder_of(name: str) -> tuple[CollectionId | None, str]:
    """Return the collection and the capability of a lease; no collection and the stage."""
    kind, _, rest = name.partition(":")
    if kind == STAGE:
        return None, rest
    return CollectionId(rest[: int(kind)]), rest[int(kind) :]
