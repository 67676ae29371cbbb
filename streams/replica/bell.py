"""A bell: whoever may have something to do waits for it, whoever changed something rings it.

It has a lock of its own and carries no state but a count, so that it may be rung from
anywhere, also from where the logs are folded.
"""

import threading


class Bell:
    """Rings are counted; a waiter that remembers the count misses none."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.count = 0

    def ring(self) -> None:
        """Wake everybody who waits."""
        with self._condition:
            self.count += 1
            self._condition.notify_all()

    def wait(self, heard: int, timeout_ms: float) -> int:
        """The count, once it is past `heard` or the time is up."""
        with self._condition:
            self._condition.wait_for(lambda: self.count > heard, timeout_ms / 1000)
            return self.count
