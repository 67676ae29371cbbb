"""Detects what a consumer does not report: deleted topics, and brokers that do not answer.

Requests go through a separate client: on one connection responses come in the order of the
requests, so behind a fetch that waits for seconds. The list of topics is requested rarely,
because the response has all topics of a cluster; liveness is checked often, with one topic.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from streams.ids import Topic
from streams.kafka.client import clients
from streams.kafka.client.error_mapping import GONE
from streams.kafka.client.reconnecting_client import ReconnectingClient
from streams.kafka.settings import ClientSettings

_LOOK_EVERY_S = 3.0  # interval of liveness checks
_LOOK_AT_ALL_EVERY_S = 20.0  # interval of topic listings
_LOOK_SHARE = 100  # slow requests are repeated less often, by this factor
_LOOK_AT_MOST_S = 20.0  # but before a waiting caller gives up without knowing of the outage
_LOOK_TIMEOUT_S = 1.0
_ENDS_TIMEOUT_S = 3.0  # of many logs, where metadata has just come
_CONNECTED_S = 10.0  # a client that is older has had the time to connect

Answers = Mapping[str, KafkaError | None]
"""Topics that brokers report, with the error of each, if any."""


class MetadataClient:
    """Requests the topics from brokers; shared by many tails. It never creates a topic."""

    def __init__(self, settings: ClientSettings) -> None:
        self._lock = threading.Lock()  # its holder may use the client
        self._consumer: ReconnectingClient[Consumer] = ReconnectingClient(
            lambda: clients.consumer(settings, {}, {}), _CONNECTED_S
        )

    def topics(self, topic: Topic | None = None) -> Answers | None:
        """Return this topic, or all topics; None if no broker answers in time."""
        if not self._lock.acquire(timeout=_LOOK_TIMEOUT_S):
            return None  # another thread waits for an answer as well
        try:
            topics = self._consumer.get().list_topics(topic, timeout=_LOOK_TIMEOUT_S).topics
        except KafkaException as error:
            self._consumer.failed(error)
            return None
        finally:
            self._lock.release()
        return {name: topic.error for name, topic in topics.items()}

    def ends(self, topics: Collection[Topic]) -> Mapping[Topic, int] | None:
        """Return the ends of logs, of those that brokers know; None without an answer in time.

        An end is the last stable offset (rule 30).
        """
        # in place of a time
        places = [TopicPartition(topic, 0, OFFSET_END) for topic in topics]
        if not self._lock.acquire(timeout=_LOOK_TIMEOUT_S):
            return None
        try:
            answers = self._consumer.get().offsets_for_times(places, timeout=_ENDS_TIMEOUT_S)
        except KafkaException:
            return None
        finally:
            self._lock.release()
        return {Topic(place.topic): place.offset for place in answers if place.error is None}

    def close(self) -> None:
        """Release the connection."""
        with self._lock, contextlib.suppress(RuntimeError):
            consumer = self._consumer.drop()
            if consumer is not None:
                consumer.close()


class TopicWatchdog:
    """Checks topics and brokers from time to time; one thread.

    `note` is called with a broker's error for a topic that seems to be gone, and may not be.
    """

    def __init__(
        self, metadata: MetadataClient, note: Callable[[Topic, KafkaError], None]
    ) -> None:
        self._metadata, self._note = metadata, note
        now = time.monotonic()
        self._look_at = now + _LOOK_EVERY_S
        self._look_at_all_at = now + _LOOK_AT_ALL_EVERY_S
        self._unseen: frozenset[Topic] = frozenset()
        self._silent_since: float | None = None

    def suspect(self, topic: Topic) -> None:
        """Check soon: a broker does not know this topic, which may still exist."""
        self._unseen |= {topic}

    @property
    def is_due(self) -> bool:
        """Whether a check is due."""
        return time.monotonic() >= self._look_at

    def look(self, followed: frozenset[Topic]) -> list[Topic]:
        """Return the topics that are gone.

        A broker may lag, and does not list topics without permission: a topic that is missing
        twice is gone if a request by its name confirms it.
        """
        began = time.monotonic()
        topic, before = next(iter(followed), None), self._unseen
        at_all = bool(before) or (len(followed) > 1 and began >= self._look_at_all_at)
        there = self._metadata.topics() if at_all or topic is None else self._named(topic)
        gone: list[Topic] = []
        if there is None:
            self._silent_since = self._silent_since or began
        else:
            self._silent_since = None
            topics = followed if at_all else followed & {topic}
            unseen = frozenset(topic for topic in topics if _is_gone(there, topic))
            gone = [topic for topic in unseen & before if self._is_gone_by_name(topic)]
            self._unseen = unseen
        self._plan(began, at_all=at_all)
        return gone

    def _is_gone_by_name(self, topic: Topic) -> bool:
        there = self._named(topic)
        return there is not None and _is_gone(there, topic)

    def _named(self, topic: Topic) -> Answers | None:
        """Return the broker's answer for one topic; an error of the topic is noted."""
        there = self._metadata.topics(topic)
        error = None if there is None else there.get(topic)
        if error is not None:
            self._note(topic, error)
        return there

    def _plan(self, began: float, *, at_all: bool) -> None:
        """Schedule the next check after one that began at the given time.

        An unanswered check counts only its own duration, so that the end of an outage is
        noticed soon.
        """
        now = time.monotonic()
        took = 0.0 if self._silent_since is not None else now - began
        self._look_at = now + max(_LOOK_EVERY_S, min(took * _LOOK_SHARE, _LOOK_AT_MOST_S))
        if at_all:
            self._look_at_all_at = now + max(_LOOK_AT_ALL_EVERY_S, took * _LOOK_SHARE)

    def silent_ms(self) -> int:
        """Return for how long no check was answered."""
        since = self._silent_since
        return 0 if since is None else int((time.monotonic() - since) * 1000) + 1


def _is_gone(there: Answers, topic: Topic) -> bool:
    """Whether brokers do not list the topic, or report that it does not exist."""
    if topic not in there:
        return True
    error = there[topic]
    return error is not None and error.code() in GONE
