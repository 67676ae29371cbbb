"""A fair semaphore: a limited number of holders, served in order of arrival."""

import threading
from collections import deque
from collections.abc import Generator

BEAT_S = 1.0
"""Interval of the beats of a waiting caller."""

Beats = Generator[None, None, None]


class Turns:
    """The semaphore; the first to arrive is served first."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._left = most
        self._waiting: deque[threading.Event] = deque()

    def take(self) -> Beats:
        """Wait for a turn."""
        turn = threading.Event()
        with self._lock:
            if self._left:
                self._left -= 1
                return
            self._waiting.append(turn)
        try:
            while not turn.wait(BEAT_S):
                yield
        except GeneratorExit:
            with self._lock:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                    raise
            self.give()
            raise

    def give(self) -> None:
        """End a turn."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._left += 1
