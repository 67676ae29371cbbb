"""Mutual exclusion by name: holders of disjoint names do not wait for each other."""

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager


class NamedLocks:
    """Locked names, shared by many threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken: set[str] = set()

    @contextmanager
    def of(self, names: Collection[str]) -> Iterator[None]:
        """Lock all of the names at once, as soon as all are free."""
        wanted = frozenset(names)
        with self._changed:
            self._changed.wait_for(lambda: not wanted & self._taken)
            self._taken |= wanted
        try:
            yield
        finally:
            with self._changed:
                self._taken -= wanted
                self._changed.notify_all()
