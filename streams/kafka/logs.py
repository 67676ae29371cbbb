"""Logs on a broker: single-partition topics, appended to in one flush, followed by one reader.

Readers are `read_uncommitted`: the order of offsets alone decides (rule 1), and nobody's
abandoned transaction may hold up a log.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from streams.errors import Corrupt, Determinate, Indeterminate, InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka import clients
from streams.kafka.faults import OUT_OF_RANGE, read_fault
from streams.kafka.log import Entry, Tail, Truncated
from streams.kafka.sender import Outgoing, Sender
from streams.kafka.settings import ClientSettings

log = logging.getLogger(__name__)

_AT_ONCE = 10_000  # entries handed out by one poll

_LOOK_EVERY_S = 3.0  # how often followed topics are looked up
_LOOK_TIMEOUT_S = 1.0

_SETTLING_S = 0.02
_UNSETTLED = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})

_MEANING: Mapping[str, clients.Setting] = {"isolation.level": "read_uncommitted"}
_PACE: Mapping[str, clients.Setting] = {
    "fetch.wait.max.ms": 50,
    "fetch.message.max.bytes": 1 << 20,
}


class KafkaTail:
    """Follows many logs with one connection. `poll` belongs to one thread."""

    def __init__(self, settings: ClientSettings, starts: Mapping[Topic, Offset]) -> None:
        self._consumer = clients.consumer(settings, _MEANING, _PACE)
        self._lock = threading.Lock()  # guards _next
        self._next: dict[Topic, int] = {}
        self._failures: deque[Determinate] = deque()
        self._look_at = time.monotonic() + _LOOK_EVERY_S
        self._unseen: frozenset[Topic] = frozenset()
        if starts:
            _require_logs(self._consumer, starts)
            self._next.update(starts)
            self._consumer.incremental_assign(_positions(starts))

    def add(self, topic: Topic, start: Offset) -> None:
        """Follow one more log; it has to exist."""
        with self._lock:
            if topic in self._next:
                raise InvalidUsage(f"log {topic} is already followed")
            self._next[topic] = start
        try:
            _require_logs(self._consumer, [topic])
            self._consumer.incremental_assign(_positions({topic: start}))
        except Exception:
            with self._lock:
                del self._next[topic]
            raise

    def remove(self, topic: Topic) -> None:
        """Follow one log less; passed over when it is not followed."""
        with self._lock:
            if self._next.pop(topic, None) is None:
                return
        self._consumer.incremental_unassign([TopicPartition(topic, 0)])

    def poll(self, wait_ms: int) -> tuple[Entry, ...]:
        """What has come; the first entry ends the wait. A failure waits for its own poll."""
        entries: tuple[Entry, ...] = ()
        self._look()
        if not self._failures:
            first = self._consumer.poll(wait_ms / 1000)
            if first is not None:
                entries = self._entries([first, *self._consumer.consume(_AT_ONCE, 0)])
        if self._failures and not entries:
            raise self._failures.popleft()
        return entries

    def _entries(self, messages: Sequence[Message]) -> tuple[Entry, ...]:
        entries = []
        with self._lock:
            for message in messages:
                topic, offset = Topic(message.topic() or ""), message.offset() or 0
                error = message.error()
                if error is not None:
                    self._note(topic, error)
                elif offset >= self._next.get(topic, offset + 1):
                    self._next[topic] = offset + 1
                    entries.append(_entry(topic, offset, message))
        return tuple(entries)

    def _note(self, topic: Topic, error: KafkaError) -> None:
        """Keep what cannot heal for the next poll; the client itself sees to the rest."""
        if topic in self._next and (error.code() in OUT_OF_RANGE or not error.retriable()):
            self._lose(topic, error.str())
        elif error.fatal():
            self._failures.append(read_fault("follow logs", error))
        else:
            log.warning("log reader is waiting", extra={"topic": topic, "cause": error.str()})

    def _lose(self, topic: Topic, reason: str) -> None:
        self._failures.append(Truncated(topic, self._next.pop(topic), reason))
        self._consumer.incremental_unassign([TopicPartition(topic, 0)])

    def _look(self) -> None:
        """Notice deleted topics, which the client waits for without a word.

        One lookup may have asked a broker that lags; what is missing twice is gone.
        """
        if time.monotonic() < self._look_at:
            return
        try:
            there = self._consumer.list_topics(timeout=_LOOK_TIMEOUT_S).topics.keys()
        except KafkaException:
            there = self._next.keys()  # nobody answers: nothing is known
        with self._lock:
            unseen = frozenset(self._next.keys() - there)
            for topic in unseen & self._unseen:
                self._lose(topic, "the topic is gone")
            self._unseen = unseen
        self._look_at = time.monotonic() + _LOOK_EVERY_S

    def close(self) -> None:
        """Release the connection."""
        self._consumer.close()


def _positions(starts: Mapping[Topic, Offset]) -> list[TopicPartition]:
    return [TopicPartition(topic, 0, start) for topic, start in starts.items()]


def _entry(topic: Topic, offset: int, message: Message) -> Entry:
    kind, at_ms = message.timestamp()
    if kind != TIMESTAMP_LOG_APPEND_TIME:
        raise Corrupt(
            f"log {topic} at offset {offset}: expected the broker's append time, "
            "found the writer's (message.timestamp.type must be LogAppendTime)"
        )
    return Entry(topic, Offset(offset), at_ms, message.value() or b"")


def _require_logs(consumer: Consumer, topics: Sequence[Topic] | Mapping[Topic, Offset]) -> None:
    """Errors: Determinate for a topic that does not exist, InvalidUsage for one of many."""
    try:
        one = next(iter(topics)) if len(topics) == 1 else None
        found = consumer.list_topics(one, timeout=clients.ANSWER_TIMEOUT_S).topics
    except KafkaException as error:
        raise read_fault("look up logs", error) from error
    for topic in topics:
        info = found.get(topic)
        if info is None or info.error is not None:
            raise Determinate(f"topic {topic} does not exist")
        if len(info.partitions) != 1:
            raise InvalidUsage(
                f"log {topic}: expected 1 partition, found {len(info.partitions)}"
            )


class KafkaLogs:
    """Many logs behind one producer and one consumer, each made when first needed."""

    def __init__(self, settings: ClientSettings, sender: Sender, admin: AdminClient) -> None:
        self._settings = settings
        self._sender = sender
        self._admin = admin
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None

    def append(self, records: Sequence[tuple[Topic, bytes]]) -> tuple[Offset, ...]:
        """Store all values in one flush."""
        sent = self._sender.send(
            [Outgoing(topic, value, partition=0) for topic, value in records]
        )
        if any(each.offset is None for each in sent):
            raise Indeterminate("append: stored, but the broker did not say where")
        return tuple(each.offset for each in sent if each.offset is not None)

    def bounds(self, topic: Topic) -> tuple[Offset, Offset]:
        """First offset held, next offset given."""
        with self._lock:
            if self._consumer is None:
                self._consumer = clients.consumer(self._settings, _MEANING, _PACE)
            _require_logs(self._consumer, [topic])
            low, high = _watermarks(self._consumer, topic)
        return Offset(low), Offset(high)

    def tail(self, starts: Mapping[Topic, Offset]) -> Tail:
        """Follow logs that exist."""
        return KafkaTail(self._settings, starts)

    def truncate(self, topic: Topic, before: Offset) -> None:
        """Delete records for good. Errors: Determinate beyond the log's end."""
        doing = f"truncate log {topic} below {before}"
        answers = self._admin.delete_records(
            [TopicPartition(topic, 0, before)], request_timeout=clients.ANSWER_TIMEOUT_S
        )
        for answer in answers.values():
            try:
                answer.result()
            except KafkaException as error:
                raise read_fault(doing, error) from error

    def close(self) -> None:
        """Release the connection."""
        with self._lock, contextlib.suppress(RuntimeError):
            if self._consumer is not None:
                self._consumer.close()


def _watermarks(consumer: Consumer, topic: Topic) -> tuple[int, int]:
    """The bounds of a log. A topic made a moment ago has a leader that does not know it yet."""
    deadline = time.monotonic() + clients.ANSWER_TIMEOUT_S
    while True:
        try:
            return consumer.get_watermark_offsets(
                TopicPartition(topic, 0), timeout=clients.ANSWER_TIMEOUT_S
            )
        except KafkaException as error:
            unsettled = error.args[0].code() in _UNSETTLED
            if not unsettled or time.monotonic() > deadline:
                raise read_fault(f"bounds of log {topic}", error) from error
            time.sleep(_SETTLING_S)
