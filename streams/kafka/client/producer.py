"""An idempotent producer that sends lists of records and returns their offsets.

Invariant: when `send` returns, every record is stored on as many brokers as the topic asks
for; when it raises, the error says whether any may be.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.errors import Determinate, Indeterminate
from streams.ids import Offset, Topic
from streams.kafka.client import clients
from streams.kafka.client.error_mapping import LATE, UNKNOWN_PARTITION, cause_of, write_fault
from streams.kafka.settings import ClientSettings

ANY_PARTITION = -1
Headers = tuple[tuple[str, bytes], ...]
_FULL_QUEUE_WAIT_S = 0.05
_POLL_S = 0.1

MANY = 16
"""Records that are handed over to the client together."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to store."""

    topic: Topic
    value: bytes | None
    key: bytes | None = None
    partition: int = ANY_PARTITION
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Delivered:
    """The place of a stored record. If the broker confirms without a place, offset is None."""

    partition: int
    offset: Offset | None


Sent = Delivered | Determinate | Indeterminate
"""The result for one record."""


@dataclass(slots=True)
class WriteCounts:
    """What this process has written to brokers: calls, their time, and records by result."""

    calls: int = 0
    seconds: float = 0.0
    stored: int = 0
    failed: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, seconds: float, stored: int, failed: int) -> None:
        """Count a call, from its first record to its last report."""
        with self._lock:
            self.calls += 1
            self.seconds += seconds
            self.stored += stored
            self.failed += failed


WRITES = WriteCounts()
"""Of all senders of this process."""


class Sender:
    """Sends lists of records; calls from several threads run concurrently.

    The client is created by the first `send`, and again after a fatal error or when no broker
    took a record in time (`streams.kafka.client.reconnecting_client`). One of the waiting
    threads dispatches the delivery reports of all; a thread that waits for a partition that
    cannot be written delays no other.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()  # guards _client
        self._client: _Client | None = None
        self._reported = threading.Condition()

    def send(self, records: Sequence[Outgoing]) -> list[Delivered]:
        """Store all records, in the order given for each partition.

        Errors: Determinate if none was stored, else Indeterminate; the first failure is the
        cause.
        """
        results = self.send_each(records)
        sent = [result for result in results if isinstance(result, Delivered)]
        if len(sent) < len(results):
            raise _failure(results)
        return sent

    def send_each(
        self, records: Sequence[Outgoing], stragglers_s: float | None = None
    ) -> list[Sent]:
        """Like `send`, with a result for each record.

        Records without a report `stragglers_s` after the first stored one are in doubt.
        """
        if not records:
            return []
        batch = _Batch(len(records), stragglers_s)
        reports = [_Report(batch) for _ in records]
        client, began = self._current(), time.monotonic()
        _hand_over(client.producer, records, reports)
        while not batch.is_over():
            self._hand_out(client, batch)
        stored = sum(report.delivered is not None for report in reports)
        WRITES.add(time.monotonic() - began, stored, len(records) - stored)
        if any(report.error and _is_lost(report.error) for report in reports):
            self._drop(client)
        return [
            report.result(f"write to {record.topic}")
            for record, report in zip(records, reports, strict=True)
        ]

    def _hand_out(self, client: "_Client", batch: "_Batch") -> None:
        """Dispatch reports until the batch is done, or wait for the thread that does."""
        if not client.polling.acquire(blocking=False):
            with self._reported:
                if not batch.is_over() and client.polling.locked():
                    self._reported.wait(_POLL_S)
            return
        try:
            while not batch.is_over():
                if client.producer.poll(_POLL_S):
                    self._wake()
        finally:
            client.polling.release()
            self._wake()

    def _wake(self) -> None:
        with self._reported:
            self._reported.notify_all()

    def _current(self) -> "_Client":
        with self._lock:
            if self._client is None:
                self._client = _Client(clients.producer(self._settings, {}, {}))
            return self._client

    def _drop(self, client: "_Client") -> None:
        with self._lock:
            if self._client is client:
                self._client = None

    def close(self) -> None:
        """Release the connection."""
        with self._lock:
            self._client = None


@dataclass(frozen=True, slots=True, eq=False)
class _Client:
    """A producer; the thread that holds `polling` dispatches its reports."""

    producer: Producer
    polling: threading.Lock = field(default_factory=threading.Lock)


def _is_lost(error: KafkaError) -> bool:
    """Whether the client may never write again: it failed, or reached no broker in time."""
    return error.fatal() or error.code() in LATE


class _Batch:
    """The number of records of a call without a report."""

    __slots__ = ("_deadline", "_missing", "_stragglers_s")

    def __init__(self, missing: int, stragglers_s: float | None) -> None:
        self._missing, self._stragglers_s = missing, stragglers_s
        self._deadline: float | None = None

    def reported(self, *, is_stored: bool) -> None:
        """Count one more report."""
        self._missing -= 1
        if is_stored and self._deadline is None and self._stragglers_s is not None:
            self._deadline = time.monotonic() + self._stragglers_s

    def is_over(self) -> bool:
        """Whether nothing is awaited any more."""
        if not self._missing:
            return True
        return self._deadline is not None and time.monotonic() > self._deadline


class _Report:
    """The result for one record, set by the client's delivery report."""

    __slots__ = ("_batch", "delivered", "error")

    def __init__(self, batch: _Batch) -> None:
        self._batch = batch
        self.error: KafkaError | None = None
        self.delivered: Delivered | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed(error)
            return
        offset = message.offset()
        stored_at = Offset(offset) if offset is not None and offset >= 0 else None
        self.delivered = Delivered(message.partition() or 0, stored_at)
        self._batch.reported(is_stored=True)

    def failed(self, error: KafkaError) -> None:
        """Record a failure: the record was not stored, or may not be."""
        self.error = error
        self._batch.reported(is_stored=False)

    def result(self, doing: str) -> Sent:
        """Return the result, as far as it is known now."""
        if self.delivered is not None:
            return self.delivered
        if self.error is not None:
            return write_fault(doing, self.error)
        return Indeterminate(f"{doing}: not confirmed long after others were")


def header_list(headers: Headers) -> list[tuple[str, str | bytes | None]] | None:
    """Return headers in the form of the client."""
    return [(name, value) for name, value in headers] or None


def _hand_over(
    producer: Producer, records: Sequence[Outgoing], reports: Sequence[_Report]
) -> None:
    """Give records to the client, in the order of each partition.

    Many records without headers are one call a partition: the client sends whatever it has, so
    those that come one by one go out in dozens of requests, and readers fetch as often.
    """
    sent = list(zip(records, reports, strict=True))
    if len(records) < MANY or any(record.headers for record in records):
        for record, report in sent:
            _produce(producer, record, report)
        return
    by_place = defaultdict[tuple[Topic, int], list[tuple[Outgoing, _Report]]](list)
    for record, report in sent:
        by_place[record.topic, record.partition].append((record, report))
    for (topic, partition), places in by_place.items():
        messages = [
            {"value": record.value, "key": record.key, "callback": report}
            for record, report in places
        ]
        producer.produce_batch(topic, messages, partition)
        for message, (record, report) in zip(messages, places, strict=True):
            if message.get("_error") is not None:  # it was not taken: what follows says why
                _produce(producer, record, report)


def _produce(producer: Producer, record: Outgoing, report: _Report) -> None:
    is_in_doubt = True  # whether the partition is there, if the client does not know it
    while True:
        try:
            producer.produce(
                record.topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=report,
                headers=header_list(record.headers),
            )
        except BufferError:
            producer.poll(_FULL_QUEUE_WAIT_S)
        except KafkaException as error:
            if not is_in_doubt or not _has_grown(producer, record, cause_of(error)):
                report.failed(cause_of(error))
                return
            is_in_doubt = False
        else:
            return


def _has_grown(producer: Producer, record: Outgoing, cause: KafkaError) -> bool:
    """Whether the topic has grown since the client's last metadata; asking refreshes it."""
    if cause.code() != UNKNOWN_PARTITION:
        return False
    try:
        topics = producer.list_topics(record.topic, timeout=clients.ANSWER_TIMEOUT_S).topics
    except KafkaException:
        return False
    return record.topic in topics and record.partition in topics[record.topic].partitions


def _failure(results: Sequence[Sent]) -> Determinate | Indeterminate:
    """Return the error for records of which some were not stored."""
    failed = [result for result in results if not isinstance(result, Delivered)]
    stored = len(results) - len(failed)
    certain = stored == 0 and all(isinstance(error, Determinate) for error in failed)
    text = str(failed[0]) if stored == 0 else f"{stored} of {len(results)} stored: {failed[0]}"
    return Determinate(text) if certain else Indeterminate(text)
