"""Logs on a broker: single-partition topics, appended to with one flush, read by one tail."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it re-exports without saying so
    AdminClient,
    OffsetSpec,
)

from streams.errors import Determinate, Indeterminate, InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka.client import clients, offsets
from streams.kafka.client.error_mapping import (
    END_OF_PARTITION,
    GONE,
    UNSETTLED,
    cause_of,
    read_fault,
)
from streams.kafka.client.producer import Delivered, Outgoing, Sender, Sent
from streams.kafka.client.reconnecting_client import ReconnectingClient
from streams.kafka.client.tail import COMMITTED, MEANING, KafkaTail
from streams.kafka.client.watchdog import MetadataClient
from streams.kafka.log import Stored, Tail, Unanswered, all_stored
from streams.kafka.settings import ClientSettings

T = TypeVar("T")

_SETTLING_S, _SETTLING_MOST_S = 0.02, 0.5
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_MANY = 8  # number of logs from which on one request for all costs less


class KafkaLogs:
    """Many logs behind one producer and one consumer, each created when first needed."""

    def __init__(
        self, settings: ClientSettings, sender: Sender, admins: ReconnectingClient[AdminClient]
    ) -> None:
        self._settings = settings
        self._sender = sender
        self._admins = admins
        self._lock = threading.Lock()  # its holder may use the consumer
        self._consumer: ReconnectingClient[Consumer] = ReconnectingClient(
            lambda: clients.consumer(settings, MEANING, {})
        )
        self._metadata = MetadataClient(settings)

    def append(self, records: Sequence[tuple[Topic, bytes]]) -> tuple[Offset, ...]:
        """Append all values with one flush."""
        return all_stored(self._append(records, None))

    def append_each(
        self, records: Sequence[tuple[Topic, bytes]], stragglers_ms: int
    ) -> tuple[Stored, ...]:
        """Append all values with one flush; return the result for each."""
        return self._append(records, stragglers_ms / 1000)

    def _append(
        self, records: Sequence[tuple[Topic, bytes]], stragglers_s: float | None
    ) -> tuple[Stored, ...]:
        outgoing = [Outgoing(topic, value, partition=0) for topic, value in records]
        return tuple(
            _stored(result) for result in self._sender.send_each(outgoing, stragglers_s)
        )

    def bounds(self, topic: Topic) -> tuple[Offset, Offset]:
        """Return the first offset held and the next offset."""
        with self._lookup() as consumer:
            _require_logs(consumer, [topic])
            low, high = _watermarks(consumer, topic)
        return Offset(low), Offset(high)

    def bounds_all(self, topics: Sequence[Topic]) -> Mapping[Topic, tuple[Offset, Offset]]:
        """The bounds of many logs: metadata of all topics, then two requests per leader."""
        if len(topics) < _MANY:
            return {topic: self.bounds(topic) for topic in topics}
        self._require(topics)
        lows = self._offsets(topics, _EARLIEST)
        highs = self._offsets(topics, _LATEST)
        return {topic: (lows[topic], highs[topic]) for topic in topics}

    def _offsets(self, topics: Sequence[Topic], which: OffsetSpec) -> Mapping[Topic, Offset]:
        specs = {TopicPartition(topic, 0): which for topic in topics}

        def ask() -> Mapping[Topic, Offset]:
            answers = self._admins.get().list_offsets(
                specs, request_timeout=clients.ANSWER_TIMEOUT_S
            )
            return {
                Topic(place.topic): offsets.known(answer.result().offset)
                for place, answer in answers.items()
            }

        try:
            return _settled(ask, lambda: self._require(topics), f"bounds of {len(topics)} logs")
        except Unanswered as error:
            self._admins.failed(error)
            raise

    def _require(self, topics: Collection[Topic]) -> None:
        with self._lookup() as consumer:
            _require_logs(consumer, topics)

    @contextlib.contextmanager
    def _lookup(self) -> Iterator[Consumer]:
        """Lend the consumer for metadata requests."""
        with self._lock:
            try:
                yield self._consumer.get()
            except Unanswered as error:
                self._consumer.failed(error)
                raise

    def is_bare(self, topic: Topic, start: Offset) -> bool:
        """Whether a reader that begins at `start` reaches the end without a record."""
        meaning = {**MEANING, "enable.partition.eof": True}
        consumer = clients.consumer(self._settings, meaning, {"fetch.wait.max.ms": 5})
        try:
            consumer.assign([TopicPartition(topic, 0, start)])
            message = consumer.poll(clients.ANSWER_TIMEOUT_S)
            error = message.error() if message is not None else None
        finally:
            consumer.close()
        if message is None:
            raise Unanswered(f"read log {topic} from offset {start}: no answer")
        if error is not None and error.code() != END_OF_PARTITION:
            raise read_fault(f"read log {topic} from offset {start}", error)
        return error is not None

    def tail(self, starts: Mapping[Topic, Offset]) -> Tail:
        """Follow logs that exist."""
        return KafkaTail(self._settings, starts, self._require, self._metadata)

    def committed(self, topic: Topic, start: Offset) -> Tail:
        """Follow a topic that others write, without aborted records."""
        return KafkaTail(
            self._settings, {topic: start}, self._require, self._metadata, COMMITTED
        )

    def truncate(self, topic: Topic, before: Offset) -> None:
        """Delete records for good. Errors: Determinate beyond the log's end."""
        doing = f"truncate log {topic} below {before}"
        answers = self._admins.get().delete_records(
            [TopicPartition(topic, 0, before)], request_timeout=clients.ANSWER_TIMEOUT_S
        )
        for answer in answers.values():
            try:
                answer.result()
            except KafkaException as error:
                self._admins.failed(error)
                raise read_fault(doing, error) from error

    def close(self) -> None:
        """Release the connection."""
        with self._lock, contextlib.suppress(RuntimeError):
            consumer = self._consumer.drop()
            if consumer is not None:
                consumer.close()
        self._metadata.close()


def _stored(sent: Sent) -> Stored:
    if not isinstance(sent, Delivered):
        return sent
    if sent.offset is None:
        return Indeterminate("append: stored, but the broker did not say where")
    return sent.offset


def _watermarks(consumer: Consumer, topic: Topic) -> tuple[int, int]:
    place = TopicPartition(topic, 0)

    def ask() -> tuple[int, int]:
        low, high = consumer.get_watermark_offsets(place, timeout=clients.ANSWER_TIMEOUT_S)
        return offsets.known(low), offsets.known(high)

    return _settled(ask, lambda: _require_logs(consumer, [topic]), f"bounds of log {topic}")


def _settled(ask: Callable[[], T], require: Callable[[], None], doing: str) -> T:
    """Return the answers. The leader of a new topic may not know it yet.

    An unknown partition is also reported while the client has no metadata, as after an outage:
    `require` asks the brokers, and raises if it does not exist.
    """
    deadline, pause_s = time.monotonic() + clients.ANSWER_TIMEOUT_S, _SETTLING_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            code = cause_of(error).code()
            if code in GONE:
                require()
            elif code not in UNSETTLED:
                raise read_fault(doing, error) from error
            if time.monotonic() > deadline:
                raise Unanswered(f"{doing}: {cause_of(error).str()}") from error
            time.sleep(pause_s)
            # the leader is busy, so ask less often
            pause_s = min(2 * pause_s, _SETTLING_MOST_S)


def _require_logs(consumer: Consumer, topics: Collection[Topic]) -> None:
    """Errors: Determinate for a topic that does not exist, InvalidUsage for more partitions."""
    try:
        only_topic = next(iter(topics)) if len(topics) == 1 else None
        metadata = consumer.list_topics(only_topic, timeout=clients.ANSWER_TIMEOUT_S).topics
    except KafkaException as error:
        raise read_fault("look up logs", error) from error
    for topic in topics:
        info = metadata.get(topic)
        if info is None or info.error is not None:
            raise Determinate(f"topic {topic} does not exist")
        if len(info.partitions) != 1:
            raise InvalidUsage(
                f"log {topic}: expected 1 partition, actual {len(info.partitions)}"
            )
