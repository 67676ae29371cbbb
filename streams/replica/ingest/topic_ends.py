"""Polls the end offsets of the raw topics of all sources, in one thread.

Invariant: `ends` returns the broker's last answer for a topic. A topic whose last request
failed is left out, so that decisions never use old ends; a deleted topic has no id. The id is
requested after the ends whenever these have moved: the ends of a re-created topic never appear
under the id of the former one. Each change is announced by a call of `ring`.

Most polls ask for the ends alone. Which partitions there are and where they begin is asked for
every `SURVEY_S`. Topics that are due, or nearly, are asked about together: however many they
are, a poll of all takes five requests to the broker, and one of the ends two. Those in trouble
are asked about by themselves, behind the others, and for a fifth of the time at most: of a
broker that is gone each answer takes seconds, for which the others wait.

The thread polls every `pause_s`; a quiet topic is polled less and less often, down to every
`LONGEST_S`, and often again when anything moves, because bursts seldom come alone.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import pyarrow as pa

from streams.compute.reclocking import Ends
from streams.compute.stalls import TopicReport
from streams.errors import Determinate
from streams.ids import Offset, Topic
from streams.kafka.topics import Answers
from streams.replica.ingest.sizes import MeanSize, sampled

log = logging.getLogger(__name__)

T = TypeVar("T")
C = TypeVar("C", bound=Collection[Topic])

SHORTEST_S = 0.02
SURVEY_S = 1.0
LONGEST_S = 0.2
GROWTH = 1.25
TROUBLED_PAUSES = 4.0
"""Topics in trouble rest so many times as long as it took to ask about them."""
UNLED_S = 30.0
"""How long the last answer counts while the partitions of a topic have no leader."""


def elapsed_ms() -> int:
    """Return milliseconds of the monotonic clock; only their differences mean something."""
    return time.monotonic_ns() // 1_000_000


class EndsReader(Protocol):
    """Returns the ends of topics (`streams.kafka.client.raw`). Used by one thread alone.

    Each topic has its own answer or error; none while its partitions have no leader.
    Errors: Determinate when no broker answers for any.
    """

    def ends_of_all(
        self, topics: Collection[Topic]
    ) -> Answers[Mapping[int, tuple[Offset, Offset]]]:
        """Return the first offset held and the last stable offset of each partition."""

    def highs_of_all(
        self, places: Mapping[Topic, Collection[int]]
    ) -> Answers[Mapping[int, Offset]]:
        """Return the last stable offsets of these partitions."""

    def ids_of_all(self, topics: Collection[Topic]) -> Answers[str | None]:
        """Return the broker's ids of topics; None for one that does not exist."""

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
    unled_s: float | None = None
    """Since when its partitions have no leader, in monotonic seconds."""
    sized: MeanSize = field(default_factory=MeanSize)

    def fresh(self, now_s: float) -> TopicReport | None:
        """The last report if only the ends have to be asked for; else None."""
        is_surveyed = now_s < self.surveyed_s + SURVEY_S
        return self.report if is_surveyed and self.report and self.report.ends else None

    def unled(self, now_s: float) -> tuple[TopicReport | None, str]:
        """The last answer for some time; then none, and why."""
        if self.unled_s is None:
            self.unled_s = now_s
        waited_s = now_s - self.unled_s
        if waited_s < UNLED_S:
            return self.report, ""
        return None, f"its partitions have had no leader for {UNLED_S:.0f} s"


class TopicEndsPoller:
    """Polls the ends of topics until closed; calls `ring` when one has moved."""

    def __init__(
        self, reader: EndsReader, ring: Callable[[], None], now_ms: Callable[[], int]
    ) -> None:
        self._reader, self._ring = reader, ring
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
            try:
                self._poll_due()
            except Exception:
                log.exception("topics cannot be followed for the moment")
                self._forget()
                self._stop.wait(LONGEST_S)
            self._nudge.wait(self._pause())
            self._nudge.clear()

    def _poll_due(self) -> None:
        due = self._due(time.monotonic())
        sound = {t: watched for t, watched in due.items() if not watched.trouble}
        troubled = {t: watched for t, watched in due.items() if watched.trouble}
        for together in (sound, troubled):
            if together and self._ask(together):
                self._ring()

    def _forget(self) -> None:
        """Return no answer of before: it would stand for what the brokers say now."""
        with self._lock:
            for watched in self._topics.values():
                watched.report = None
        self._ring()

    def _due(self, now_s: float) -> dict[Topic, _Watched]:
        """The topics to ask about now: if one is due, those too that will be before long."""
        with self._lock:
            if all(watched.due_s > now_s for watched in self._topics.values()):
                return {}
            return {
                topic: watched
                for topic, watched in self._topics.items()
                if watched.due_s <= now_s + watched.pause_s / 2
            }

    def _pause(self) -> float:
        with self._lock:
            next_s = min((topic.due_s for topic in self._topics.values()), default=float("inf"))
        return min(LONGEST_S, max(0.001, next_s - time.monotonic()))

    def _ask(self, due: Mapping[Topic, _Watched]) -> bool:
        """Poll topics together; return whether anything about them has moved."""
        now_s = time.monotonic()
        fresh = {t: report for t in due if (report := due[t].fresh(now_s)) is not None}
        poll = _Poll(self._now_ms(), elapsed_ms(), now_s, fresh)
        poll.surveyed(_of_all(self._reader.ends_of_all, due.keys() - fresh.keys()))
        places = {topic: report.ends for topic, report in fresh.items()}
        poll.polled(_of_all(self._reader.highs_of_all, places))
        ids = _of_all(self._reader.ids_of_all, poll.moved)
        has_moved = False
        for topic, watched in due.items():
            report, trouble = poll.reported(topic, watched, ids)
            has_moved |= self._note(topic, watched, report, trouble, poll.now_s)
        return has_moved

    def _note(
        self,
        topic: Topic,
        watched: _Watched,
        report: TopicReport | None,
        trouble: str,
        asked_s: float,
    ) -> bool:
        """Note what was answered for a topic; return whether anything has moved."""
        if report is not None:
            report = self._measured(topic, watched, report)
        if trouble and trouble != watched.trouble:
            log.warning("topic cannot be followed", extra={"topic": topic, "reason": trouble})
        now_s = time.monotonic()
        with self._lock:
            moved = report != watched.report
            watched.report, watched.trouble = report, trouble
            watched.pause_s = SHORTEST_S if moved else min(LONGEST_S, watched.pause_s * GROWTH)
            watched.due_s = now_s + watched.pause_s
            if trouble:
                watched.due_s += TROUBLED_PAUSES * (now_s - asked_s)
        return moved

    def _measured(
        self, topic: Topic, watched: _Watched, observation: TopicReport
    ) -> TopicReport:
        """The answer with the mean size of a message."""
        now_s = time.monotonic()
        if watched.report is not None and watched.report.id != observation.id:
            watched.sized = MeanSize()
        try:
            if watched.sized.is_due(observation.ends, now_s):
                watched.sized = sampled(
                    self._reader, topic, watched.sized, observation.ends, now_s
                )
        except Exception:  # of what others wrote to this topic: it costs no other its answer
            log.warning("sizes of messages not known", extra={"topic": topic}, exc_info=True)
        return replace(observation, message_bytes=watched.sized.mean)


def _of_all(ask: Callable[[C], Answers[T]], topics: C) -> Answers[T]:
    """Ask about topics; if no broker answers, the error is the answer of each."""
    try:
        return ask(topics) if topics else {}
    except Determinate as error:
        return dict.fromkeys(topics, error)


@dataclass(slots=True)
class _Poll:
    """One poll of topics, dated from before the question, and the answers.

    Of topics with a `fresh` report only the ends are asked for. `moved` are the topics whose id
    is asked for next: those with other ends than before, without a fresh report, or in error.
    """

    asked_ms: int
    asked_elapsed_ms: int
    now_s: float
    fresh: Mapping[Topic, TopicReport]
    ends: dict[Topic, Mapping[int, Ends] | Determinate] = field(default_factory=dict)
    moved: set[Topic] = field(default_factory=set)

    def surveyed(self, answers: Answers[Mapping[int, tuple[Offset, Offset]]]) -> None:
        """Take in the ranges of topics without a fresh report."""
        for topic, answer in answers.items():
            if isinstance(answer, Determinate):
                self.ends[topic] = answer
            else:
                self.ends[topic] = {part: Ends(*answer[part]) for part in answer}
        self.moved.update(answers)

    def polled(self, answers: Answers[Mapping[int, Offset]]) -> None:
        """Take in the ends of topics with a fresh report."""
        for topic, answer in answers.items():
            before = self.fresh[topic].ends
            if isinstance(answer, Determinate):
                self.ends[topic] = answer
            else:
                self.ends[topic] = {
                    part: Ends(before[part].low, answer[part]) for part in before
                }
            if self.ends[topic] != before:
                self.moved.add(topic)

    def reported(
        self, topic: Topic, watched: _Watched, ids: Answers[str | None]
    ) -> tuple[TopicReport | None, str]:
        """What is reported of a topic now, and why nothing is."""
        ends, before = self.ends.get(topic), self.fresh.get(topic)
        if ends is None or (topic in self.moved and topic not in ids):
            return watched.unled(self.now_s)
        watched.unled_s = None
        id_ = ids.get(topic)
        if isinstance(ends, Determinate):
            return TopicReport(None, {}) if id_ is None else None, str(ends)
        if topic not in self.moved:
            assert before is not None, "its ends are those that were known"
            again = self._dated(before)
            return replace(again, repeats=before.repeats + 1), ""
        if isinstance(id_, Determinate):
            return None, str(id_)
        if before is None:
            watched.surveyed_s = self.now_s
        elif id_ != before.id:  # which may have other partitions: all is asked for at once
            watched.surveyed_s, watched.sized = float("-inf"), MeanSize()
            return None, ""
        return _after(watched.report, self._dated(TopicReport(id_, ends))), ""

    def _dated(self, report: TopicReport) -> TopicReport:
        return replace(report, asked_ms=self.asked_ms, asked_elapsed_ms=self.asked_elapsed_ms)


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
