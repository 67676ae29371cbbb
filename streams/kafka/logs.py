"""Logs on a broker: single-partition topics, appended to in one flush, read by one tail."""

import contextlib
import threading
import time
from collections.abc import Collection, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from streams.errors import Determinate, Indeterminate, InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka import clients
from streams.kafka.faults import cause_of, read_fault
from streams.kafka.log import Tail
from streams.kafka.sender import Outgoing, Sender
from streams.kafka.settings import ClientSettings
from streams.kafka.tail import COMMITTED, MEANING, PACE, KafkaTail

_SETTLING_S = 0.02
_UNSETTLED = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})


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
            consumer = self._lookup()
            _require_logs(consumer, [topic])
            low, high = _watermarks(consumer, topic)
        return Offset(low), Offset(high)

    def _require(self, topics: Collection[Topic]) -> None:
        with self._lock:
            _require_logs(self._lookup(), topics)

    def _lookup(self) -> Consumer:
        """A consumer that reads nothing, only asks. The caller holds the lock."""
        if self._consumer is None:
            self._consumer = clients.consumer(self._settings, MEANING, PACE)
        return self._consumer

    def tail(self, starts: Mapping[Topic, Offset]) -> Tail:
        """Follow logs that exist."""
        return KafkaTail(self._settings, starts, self._require)

    def committed(self, topic: Topic, start: Offset) -> Tail:
        """Follow a topic that others write, without what they take back."""
        return KafkaTail(self._settings, {topic: start}, self._require, COMMITTED)

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
            unsettled = cause_of(error).code() in _UNSETTLED
            if not unsettled or time.monotonic() > deadline:
                raise read_fault(f"bounds of log {topic}", error) from error
            time.sleep(_SETTLING_S)


def _require_logs(consumer: Consumer, topics: Collection[Topic]) -> None:
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
