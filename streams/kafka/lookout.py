"""Notices what a consumer does not report: deleted topics, and brokers that do not answer.

Questions go by a client of their own: on one connection answers come in the order of the
questions, so behind a fetch that waits for seconds. Which topics there are is asked rarely, for
the answer has all of a cluster; whether anybody answers is asked often, by one topic.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException

from streams.ids import Topic
from streams.kafka import clients
from streams.kafka.faults import GONE
from streams.kafka.settings import ClientSettings

_LOOK_EVERY_S = 3.0  # how often it is asked whether anybody answers
_LOOK_AT_ALL_EVERY_S = 20.0  # how often it is asked which topics there are
_LOOK_SHARE = 100  # a look whose answer takes long comes so much more rarely
_LOOK_AT_MOST_S = 20.0  # yet before who waits for an answer gives up, not knowing of a silence
_LOOK_TIMEOUT_S = 1.0

Answers = Mapping[str, KafkaError | None]
"""Topics that brokers tell of, and what is wrong with each."""


class Asker:
    """Asks brokers which topics there are; many tails share one. It never makes a topic."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()  # whoever holds it may use the client
        self._consumer: Consumer | None = None

    def topics(self, topic: Topic | None = None) -> Answers | None:
        """This topic, or all there are; None when nobody answers in time."""
        if not self._lock.acquire(timeout=_LOOK_TIMEOUT_S):
            return None  # somebody else waits for an answer as well
        try:
            if self._consumer is None:
                self._consumer = clients.consumer(self._settings, {}, {})
            found = self._consumer.list_topics(topic, timeout=_LOOK_TIMEOUT_S).topics
        except KafkaException:
            return None
        finally:
            self._lock.release()
        return {name: each.error for name, each in found.items()}

    def close(self) -> None:
        """Release the connection."""
        with self._lock, contextlib.suppress(RuntimeError):
            if self._consumer is not None:
                self._consumer.close()


class Lookout:
    """Looks from time to time; one thread.

    `note` is told what a broker says of a topic that seems to be gone, and may not be.
    """

    def __init__(self, asker: Asker, note: Callable[[Topic, KafkaError], None]) -> None:
        self._asker, self._note = asker, note
        now = time.monotonic()
        self._look_at = now + _LOOK_EVERY_S
        self._look_at_all_at = now + _LOOK_AT_ALL_EVERY_S
        self._unseen: frozenset[Topic] = frozenset()
        self._silent_since: float | None = None

    def suspect(self, topic: Topic) -> None:
        """A broker does not know this topic; it may be there all the same: look soon."""
        self._unseen |= {topic}

    @property
    def is_due(self) -> bool:
        """Whether it is time for a look."""
        return time.monotonic() >= self._look_at

    def look(self, followed: frozenset[Topic]) -> list[Topic]:
        """Those of the topics that are gone.

        One answer may be of a broker that lags, and does not tell of topics that we have no
        right to: what is missing twice is gone if asked for by its name it is, too.
        """
        began = time.monotonic()
        one, before = next(iter(followed), None), self._unseen
        at_all = bool(before) or (len(followed) > 1 and began >= self._look_at_all_at)
        there = self._asker.topics() if at_all or one is None else self._named(one)
        gone: list[Topic] = []
        if there is None:
            self._silent_since = self._silent_since or began
        else:
            self._silent_since = None
            asked = followed if at_all else followed & {one}
            unseen = frozenset(each for each in asked if _is_gone(there, each))
            gone = [topic for topic in unseen & before if self._is_gone_by_name(topic)]
            self._unseen = unseen
        self._plan(began, at_all=at_all)
        return gone

    def _is_gone_by_name(self, topic: Topic) -> bool:
        there = self._named(topic)
        return there is not None and _is_gone(there, topic)

    def _named(self, topic: Topic) -> Answers | None:
        """What is said of this one topic; what is wrong with it is noted."""
        there = self._asker.topics(topic)
        error = None if there is None else there.get(topic)
        if error is not None:
            self._note(topic, error)
        return there

    def _plan(self, began: float, *, at_all: bool) -> None:
        """When to look again, after the look that began then.

        One that nobody answered took as long as it waits: the end of a silence is not to go
        unnoticed for a hundred times that.
        """
        now = time.monotonic()
        took = 0.0 if self._silent_since is not None else now - began
        self._look_at = now + max(_LOOK_EVERY_S, min(took * _LOOK_SHARE, _LOOK_AT_MOST_S))
        if at_all:
            self._look_at_all_at = now + max(_LOOK_AT_ALL_EVERY_S, took * _LOOK_SHARE)

    def silent_ms(self) -> int:
        """For how long no look was answered."""
        since = self._silent_since
        return 0 if since is None else int((time.monotonic() - since) * 1000) + 1


def _is_gone(there: Answers, topic: Topic) -> bool:
    """Whether brokers do not tell of a topic, or say that there is none."""
    if topic not in there:
        return True
    error = there[topic]
    return error is not None and error.code() in GONE
