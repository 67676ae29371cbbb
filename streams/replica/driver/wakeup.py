"""A wakeup signal: threads with possible work wait for it, changes of state trigger it.

It has its own lock and only a count as state, so that any thread may ring it, also the one that
folds the logs.
"""

import threading


class Wakeup:
    """A counter of rings; a waiter that remembers the count misses none."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.count = 0

    def ring(self) -> None:
        """Wake all waiters."""
        with self._condition:
            self.count += 1
            self._condition.notify_all()

    def wait(self, heard: int, timeout_ms: float) -> int:
        """Return the count once it is beyond `heard` or the timeout is over."""
        with self._condition:
            self._condition.wait_for(lambda: self.count > heard, timeout_ms / 1000)
            return self.count
