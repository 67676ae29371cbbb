"""Holds of reads in progress: rights with a lifetime, inside one coordinator.

The coordinator has one durable hold for all of its reads of a collection (`provisioning`). It
follows the catalog's, which the read policy moves, or a user who compacts up to some time; but
while a read at t is in progress it does not pass t. That is all a read needs, and a coordinator
that dies takes its reads with it.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from streams.ids import CollectionId, Timestamp
from streams.progress import EMPTY, Antichain, frontier


class Guard:
    """One read's right. Moves forward only."""

    __slots__ = ("collections", "time")

    def __init__(self, collections: frozenset[CollectionId], time: Timestamp) -> None:
        self.collections, self.time = collections, time

    def downgrade(self, time: Timestamp) -> None:
        """Give up the times below `time`."""
        self.time = max(self.time, time)


class Guards:
    """The reads in progress."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guards: set[Guard] = set()

    @contextmanager
    def reading(self, collections: Sequence[CollectionId], time: Timestamp) -> Iterator[Guard]:
        """Hold the collections at `time` until the block ends."""
        guard = Guard(frozenset(collections), time)
        with self._lock:
            self._guards.add(guard)
        try:
            yield guard
        finally:
            with self._lock:
                self._guards.discard(guard)

    def frontier(self, collection: CollectionId) -> Antichain:
        """The least time of a read in progress; empty without one."""
        with self._lock:
            times = [guard.time for guard in self._guards if collection in guard.collections]
        return frontier(min(times)) if times else EMPTY
