"""Assignments of logs to a tail: requested by any thread, executed by the polling thread."""

import threading
from collections.abc import Callable, Mapping
from itertools import groupby

from streams.errors import SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.log import Tail, Unanswered

Refused = Callable[[Topic, SlackwaterError], None]
"""Called with a log that cannot be followed, and the reason."""


class AssignmentRequests:
    """Logs to follow and to leave, in the order of the requests."""

    def __init__(self, tail: Tail, lock: threading.RLock, refused: Refused) -> None:
        self._tail, self._lock, self._refused = tail, lock, refused
        self._asked: list[tuple[Topic, Offset | None]] = []

    def follow(self, log: Topic, start: Offset) -> None:
        """Request to follow a log from an offset on; the caller holds the lock."""
        self._asked.append((log, start))

    def leave(self, log: Topic) -> None:
        """Request to leave a log; the caller holds the lock."""
        self._asked.append((log, None))

    def make(self) -> None:
        """Execute the requests; only the polling thread may call this."""
        with self._lock:
            requests, self._asked = self._asked, []
        for is_end, run in groupby(requests, key=_is_end):
            if is_end:
                for topic, _ in run:
                    self._tail.remove(topic)
            else:
                self._add({topic: start for topic, start in run if start is not None})

    def _add(self, starts: Mapping[Topic, Offset]) -> None:
        """Follow logs together; if that fails one by one, to find the one at fault."""
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
    """Whether the request is to leave a log."""
    return move[1] is None
