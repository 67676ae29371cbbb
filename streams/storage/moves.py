"""Which logs a tail follows: asked for by any thread, carried out by the one that polls."""

import threading
from collections.abc import Callable, Mapping
from itertools import groupby

from streams.errors import SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.log import Tail, Unanswered

Refused = Callable[[Topic, SlackwaterError], None]
"""Is told of a log that cannot be followed, and why."""


class Moves:
    """Logs to follow and to leave, in the order in which that was asked for."""

    def __init__(self, tail: Tail, lock: threading.RLock, refused: Refused) -> None:
        self._tail, self._lock, self._refused = tail, lock, refused
        self._asked: list[tuple[Topic, Offset | None]] = []

    def follow(self, log: Topic, start: Offset) -> None:
        """Follow a log from an offset on; the caller holds the lock."""
        self._asked.append((log, start))

    def leave(self, log: Topic) -> None:
        """Follow a log no more; the caller holds the lock."""
        self._asked.append((log, None))

    def make(self) -> None:
        """Do what was asked for; only the thread that polls may call this."""
        with self._lock:
            asked, self._asked = self._asked, []
        for is_end, run in groupby(asked, key=_is_end):
            if is_end:
                for topic, _ in run:
                    self._tail.remove(topic)
            else:
                self._add({topic: start for topic, start in run if start is not None})

    def _add(self, starts: Mapping[Topic, Offset]) -> None:
        """Follow logs, all at once; when that fails one by one, to learn which one it was."""
        try:
            self._tail.add(starts)
        except Unanswered:
            with self._lock:
                self._asked[:0] = starts.items()
        except SlackwaterError as failure:
            for topic, start in starts.items():
                if len(starts) == 1:
                    self._refused(topic, failure)
                else:
                    self._add({topic: start})


def _is_end(move: tuple[Topic, Offset | None]) -> bool:
    """Whether a log is to be left."""
    return move[1] is None
