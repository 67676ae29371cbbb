"""Which collections a clock makes due: asking costs nothing for those that are not.

A heap of (time, collection) beside a map of the times that hold. A new time is pushed and the
one before stays in the heap until it comes first or too many of them lie there; so all
operations cost O(log n), amortised, however many collections wait.
"""

import heapq
from dataclasses import dataclass, field

from streams.ids import CollectionId

SPARE = 32
"""So many entries that hold no more are never worth a cleaning."""


@dataclass(slots=True)
class Due:
    """Collections with the clock time at which each is due. Units: milliseconds."""

    _at_ms: dict[CollectionId, int] = field(default_factory=dict)
    _heap: list[tuple[int, CollectionId]] = field(default_factory=list)

    def set(self, collection: CollectionId, at_ms: int | None) -> None:
        """Remember when a collection is due from now on; None: no clock makes it due."""
        if at_ms is None:
            self._at_ms.pop(collection, None)
        elif self._at_ms.get(collection) != at_ms:
            self._at_ms[collection] = at_ms
            heapq.heappush(self._heap, (at_ms, collection))
            self._clean()

    def take(self, now_ms: int) -> list[CollectionId]:
        """Return, and forget, the collections that are due by now; the earliest first."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, collection = heapq.heappop(self._heap)
            if self._at_ms.get(collection) == at_ms:
                del self._at_ms[collection]
                due.append(collection)
        return due

    def _clean(self) -> None:
        if len(self._heap) > 2 * len(self._at_ms) + SPARE:
            self._heap = [(at_ms, collection) for collection, at_ms in self._at_ms.items()]
            heapq.heapify(self._heap)
