"""The ends of the raw topics of all sources, asked for again and again by one thread.

Invariant: `ends` gives for a topic only what the broker said of it while it was the topic last
asked about: a topic that is gone, or that cannot be asked about, is left out, so that nothing
is decided upon old ends. Whoever waits for news is rung when an end has moved.

The thread asks every `pause_s`; a topic that stays quiet is asked less and less often, down to
every `LONGEST_S`, and at once again when anything moves: a burst seldom comes alone.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from streams.compute.reclocking import Ends
from streams.errors import Determinate
from streams.ids import Offset, Topic

log = logging.getLogger(__name__)

SHORTEST_S = 0.02
LONGEST_S = 0.2
GROWTH = 1.25


class EndsReader(Protocol):
    """Knows the ends of topics: `streams.kafka.raw.RawReader`. Used by one thread alone."""

    def ends(self, topic: Topic) -> Mapping[int, tuple[Offset, Offset]]:
        """The first offset held and the last stable offset of each partition.

        Errors: Determinate, also when there is no such topic.
        """

    def close(self) -> None:
        """Release the connection."""


@dataclass(slots=True)
class _Watched:
    """A topic: its ends as last told, when to ask again, and why that failed, if it did."""

    ends: Mapping[int, Ends] | None = None
    pause_s: float = SHORTEST_S
    due_s: float = 0.0
    trouble: str = ""


class Watch:
    """Follows the ends of topics until it is closed; `ring` is called when one has moved."""

    def __init__(self, reader: EndsReader, ring: Callable[[], None]) -> None:
        self._reader, self._ring = reader, ring
        self._lock = threading.Lock()
        self._topics: dict[Topic, _Watched] = {}
        self._stop = threading.Event()
        self._nudge = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def add(self, topic: Topic) -> None:
        """Follow a topic; nothing changes when it is followed already."""
        with self._lock:
            self._topics.setdefault(topic, _Watched())
        self._nudge.set()

    def remove(self, topic: Topic) -> None:
        """Follow a topic no more."""
        with self._lock:
            self._topics.pop(topic, None)

    def ends(self) -> Mapping[Topic, Mapping[int, Ends]]:
        """The ends of all topics that are followed and could be asked about."""
        with self._lock:
            return {
                topic: each.ends
                for topic, each in self._topics.items()
                if each.ends is not None
            }

    def troubles(self) -> Mapping[Topic, str]:
        """Why a topic cannot be asked about."""
        with self._lock:
            return {t: each.trouble for t, each in self._topics.items() if each.trouble}

    def close(self) -> None:
        """Stop the thread and release the connection."""
        self._stop.set()
        self._nudge.set()
        self._thread.join()
        self._reader.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            now = time.monotonic()
            with self._lock:
                due = [topic for topic, each in self._topics.items() if each.due_s <= now]
            moved = [self._ask(topic) for topic in due]
            if any(moved):
                self._ring()
            self._nudge.wait(self._pause())
            self._nudge.clear()

    def _pause(self) -> float:
        with self._lock:
            next_s = min((each.due_s for each in self._topics.values()), default=float("inf"))
        return min(LONGEST_S, max(0.001, next_s - time.monotonic()))

    def _ask(self, topic: Topic) -> bool:
        """Whether the ends of the topic have moved."""
        found: dict[int, Ends] | None = None
        trouble = ""
        try:
            told = self._reader.ends(topic)
            found = {partition: Ends(*told[partition]) for partition in told}
        except Determinate as error:
            trouble = str(error)
        with self._lock:
            watched = self._topics.get(topic)
            if watched is None:
                return False
            moved = found != watched.ends
            if trouble and trouble != watched.trouble:
                log.warning("topic cannot be followed", extra={"topic": topic, "why": trouble})
            watched.ends, watched.trouble = found, trouble
            watched.pause_s = SHORTEST_S if moved else min(LONGEST_S, watched.pause_s * GROWTH)
            watched.due_s = time.monotonic() + watched.pause_s
            return moved
