"""Polls the end offsets of the raw topics of all sources, in one thread.

Invariant: `ends` returns the broker's last answer for a topic. A topic whose last request
failed is left out, so that decisions never use old ends; a deleted topic has no id. The id is
requested after the ends whenever these have moved: the ends of a re-created topic never appear
under the id of the former one. The bell is rung when anything has moved.

Most polls ask for the ends alone. Which partitions there are and where they begin is asked for
every `SURVEY_S`: a poll of all takes five requests to the broker, and one of the ends two.

The thread polls every `pause_s`; a quiet topic is polled less and less often, down to every
`LONGEST_S`, and often again when anything moves, because bursts seldom come alone.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from streams.compute.reclocking import Ends
from streams.compute.stalls import TopicReport
from streams.errors import Determinate
from streams.ids import Offset, Topic
from streams.replica.ingest.sizes import MeanSize, sampled

log = logging.getLogger(__name__)

SHORTEST_S = 0.02
SURVEY_S = 1.0
LONGEST_S = 0.2
GROWTH = 1.25


def elapsed_ms() -> int:
    """Return milliseconds of the monotonic clock; only their differences mean something."""
    return time.monotonic_ns() // 1_000_000


class EndsReader(Protocol):
    """Returns the ends of topics (`streams.kafka.client.raw`). Used by one thread alone."""

    def ends(self, topic: Topic) -> Mapping[int, tuple[Offset, Offset]]:
        """Return the first offset held and the last stable offset of each partition.

        Errors: Determinate, also if the topic does not exist.
        """

    def highs(self, topic: Topic, partitions: Collection[int]) -> Mapping[int, Offset]:
        """Return the last stable offsets of these partitions. Errors: as `ends`."""

    def fetch(
        self, topic: Topic, partition: int, lo: Offset, hi: Offset, limit: int | None = None
    ) -> pa.Table:
        """Return the first records of a range of offsets. Errors: Determinate, Truncated."""

    def rest(self) -> None:
        """Fetch nothing until the next call."""

    def close(self) -> None:
        """Release the connection."""


@dataclass(slots=True)
class _Watched:
    """A topic: its last answer, when to ask again, and the last failure, if any."""

    report: TopicReport | None = None
    surveyed_s: float = float("-inf")
    pause_s: float = SHORTEST_S
    due_s: float = 0.0
    trouble: str = ""
    sized: MeanSize = field(default_factory=MeanSize)


class TopicEndsPoller:
    """Polls the ends of topics until closed; calls `ring` when one has moved.

    `identify` returns the broker's id of a topic, None if it does not exist.
    """

    def __init__(
        self,
        reader: EndsReader,
        identify: Callable[[Topic], str | None],
        ring: Callable[[], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._reader, self._identify, self._ring = reader, identify, ring
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._topics: dict[Topic, _Watched] = {}
        self._stop = threading.Event()
        self._nudge = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def add(self, topic: Topic) -> None:
        """Follow a topic; no effect if it is followed already."""
        with self._lock:
            self._topics.setdefault(topic, _Watched())
        self._nudge.set()

    def remove(self, topic: Topic) -> None:
        """Stop following a topic."""
        with self._lock:
            self._topics.pop(topic, None)

    def ends(self) -> Mapping[Topic, TopicReport]:
        """Return the answers for the followed topics whose last request succeeded."""
        with self._lock:
            return {
                topic: watched.report
                for topic, watched in self._topics.items()
                if watched.report is not None
            }

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
                due = [topic for topic, watched in self._topics.items() if watched.due_s <= now]
            moved = [self._ask(topic) for topic in due]
            if any(moved):
                self._ring()
            self._nudge.wait(self._pause())
            self._nudge.clear()

    def _pause(self) -> float:
        with self._lock:
            next_s = min((topic.due_s for topic in self._topics.values()), default=float("inf"))
        return min(LONGEST_S, max(0.001, next_s - time.monotonic()))

    def _ask(self, topic: Topic) -> bool:
        """Poll a topic; return whether anything about it has moved."""
        with self._lock:
            watched = self._topics.get(topic)
        if watched is None:
            return False
        observation, trouble = self._reported(topic, watched)
        if observation is not None:
            observation = self._measured(topic, watched, observation)
        if trouble and trouble != watched.trouble:
            log.warning("topic cannot be followed", extra={"topic": topic, "reason": trouble})
        with self._lock:
            moved = observation != watched.report
            watched.report, watched.trouble = observation, trouble
            watched.pause_s = SHORTEST_S if moved else min(LONGEST_S, watched.pause_s * GROWTH)
            watched.due_s = time.monotonic() + watched.pause_s
        return moved

    def _reported(self, topic: Topic, watched: _Watched) -> tuple[TopicReport | None, str]:
        """Return the broker's answer, or why there is none."""
        asked_ms, asked_elapsed_ms, now_s = self._now_ms(), elapsed_ms(), time.monotonic()
        before = watched.report if now_s < watched.surveyed_s + SURVEY_S else None
        try:
            ends = self._asked(topic, before)
        except Determinate as error:
            return self._gone(topic), str(error)
        if before is not None and before.ends == ends:
            again = replace(before, asked_ms=asked_ms, asked_elapsed_ms=asked_elapsed_ms)
            return replace(again, repeats=before.repeats + 1), ""
        try:
            report = TopicReport(
                self._identify(topic),
                ends,
                asked_ms=asked_ms,
                asked_elapsed_ms=asked_elapsed_ms,
            )
        except Determinate as error:
            return None, str(error)
        if before is None:
            watched.surveyed_s = now_s
        elif report.id != before.id:  # which may have other partitions
            watched.surveyed_s = float("-inf")
            return self._reported(topic, watched)
        return _after(watched.report, report), ""

    def _asked(self, topic: Topic, before: TopicReport | None) -> Mapping[int, Ends]:
        """Return the ends; without an answer of before, of all partitions that there are."""
        if before is None or not before.ends:
            ranges = self._reader.ends(topic)
            return {partition: Ends(*ranges[partition]) for partition in ranges}
        highs = self._reader.highs(topic, before.ends)
        return {
            partition: Ends(before.ends[partition].low, highs[partition])
            for partition in before.ends
        }

    def _measured(
        self, topic: Topic, watched: _Watched, observation: TopicReport
    ) -> TopicReport:
        """The answer with the mean size of a message."""
        now_s = time.monotonic()
        if watched.report is not None and watched.report.id != observation.id:
            watched.sized = MeanSize()
        if watched.sized.is_due(observation.ends, now_s):
            watched.sized = sampled(self._reader, topic, watched.sized, observation.ends, now_s)
        return replace(observation, message_bytes=watched.sized.mean)

    def _gone(self, topic: Topic) -> TopicReport | None:
        """Return the answer for a topic without ends: that it does not exist, if so."""
        try:
            return TopicReport(None, {}) if self._identify(topic) is None else None
        except Determinate:
            return None


def _after(before: TopicReport | None, observation: TopicReport) -> TopicReport:
    """Return the answer, combined with the one before."""
    if before is None or before.id != observation.id:
        return observation
    lost = {
        partition: ends.high
        for partition, ends in observation.ends.items()
        if ends.high < before.ends.get(partition, ends).high
    }
    shrunk = dict(before.shrunk)
    for partition, end in lost.items():
        shrunk[partition] = min(end, shrunk.get(partition, end))
    same = before.ends == observation.ends
    return replace(
        observation,
        shrunk=shrunk,
        losses=before.losses + bool(lost),
        repeats=before.repeats + 1 if same else 0,
    )
