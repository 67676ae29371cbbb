"""Detects a consumer that reads nothing although its logs have more.

A consumer that loses its brokers for good (`renewal`) mostly reports that; in some orders of
events it does not. So the ends of logs are compared with what was read: a log that stands
before its end for long, while brokers answer, has a consumer that has to be replaced.
"""

import time
from collections.abc import Collection, Mapping
from typing import Protocol

from streams.ids import Topic

_LOOK_EVERY_S = 10.0  # interval of checks; half of what a reader of its own records waits
_LOOK_AGAIN_S = 3.0  # the same while a log stands
_LOOK_SHARE = 100  # slow requests are repeated less often, by this factor
_PATIENCE_S, _PATIENCE_MOST_S = 10.0, 600.0


class Standing:
    """Tells which logs stand before their ends for too long. Pure.

    Each answer that names any starts the time again and doubles the patience, until all logs
    move: a consumer that is only slow is not replaced for ever.
    """

    def __init__(self) -> None:
        self._since: dict[Topic, tuple[int, float]] = {}
        self._patience_s = _PATIENCE_S

    def __bool__(self) -> bool:
        return bool(self._since)

    def forget(self) -> None:
        """Start again: no broker answers, so no client can read."""
        self._since.clear()

    def judge(
        self, places: Mapping[Topic, int], ends: Mapping[Topic, int], now: float
    ) -> frozenset[Topic]:
        """Return the logs that have stood too long, of those read up to `places`.

        Units: `now` in monotonic seconds.
        """
        before, self._since = self._since, {}
        for topic, place in places.items():
            if ends.get(topic, 0) > place:
                earlier = before.get(topic)
                is_still = earlier is not None and earlier[0] == place
                self._since[topic] = earlier if earlier and is_still else (place, now)
        stood = {topic: now - since for topic, (_, since) in self._since.items()}
        if not any(stood.values()):
            self._patience_s = _PATIENCE_S
        late = frozenset(topic for topic, s in stood.items() if s >= self._patience_s)
        if late:
            self._since = {topic: (place, now) for topic, (place, _) in self._since.items()}
            self._patience_s = min(2 * self._patience_s, _PATIENCE_MOST_S)
        return late


class Ends(Protocol):
    """Whoever knows the ends of logs."""

    def ends(self, topics: Collection[Topic]) -> Mapping[Topic, int] | None:
        """Return the ends that brokers know; None if none answers in time."""


class UnreadLogs:
    """Checks from time to time whether the logs of a tail are read; one thread."""

    def __init__(self, metadata: Ends) -> None:
        self._metadata = metadata
        self._standing = Standing()
        self._look_at = time.monotonic() + _LOOK_EVERY_S

    def silence(self) -> None:
        """No broker answers: nothing can be read, and a check is due once one does."""
        self._standing.forget()
        self._look_at = 0.0

    def look(self, places: Mapping[Topic, int]) -> frozenset[Topic]:
        """Return the logs that stand before their ends for too long, if a check is due."""
        began = time.monotonic()
        if not places or began < self._look_at:
            return frozenset()
        ends = self._metadata.ends(places)
        now = time.monotonic()
        if ends is None:
            self._standing.forget()
            late = frozenset[Topic]()
        else:
            late = self._standing.judge(places, ends, now)
        pause_s = _LOOK_AGAIN_S if self._standing else _LOOK_EVERY_S
        self._look_at = now + max(pause_s, (now - began) * _LOOK_SHARE)
        return late
