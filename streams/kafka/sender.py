"""One idempotent producer: records go out together and come back as offsets.

Invariant: when `send` returns, every record is stored on as many brokers as the topic asks
for; when it raises, the error says whether any may be.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.errors import Determinate, Indeterminate
from streams.ids import Offset, Topic
from streams.kafka import clients
from streams.kafka.faults import cause_of, write_fault
from streams.kafka.settings import ClientSettings

ANY_PARTITION = -1
Headers = tuple[tuple[str, bytes], ...]
_FULL_QUEUE_WAIT_S = 0.05


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to be stored."""

    topic: Topic
    value: bytes | None
    key: bytes | None = None
    partition: int = ANY_PARTITION
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Delivered:
    """Where a record was stored. The broker may confirm without saying where: offset None."""

    partition: int
    offset: Offset | None


class Sender:
    """Sends lists of records; calls from several threads take turns.

    The client behind it is made by the first `send` and made anew after a fatal error.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._producer: Producer | None = None

    def send(self, records: Sequence[Outgoing]) -> list[Delivered]:
        """Store all records, in the order given for each partition.

        Errors: Determinate when none was stored, else Indeterminate; the first failure is the
        cause.
        """
        if not records:
            return []
        with self._lock:
            reports = [_Report() for _ in records]
            producer = self._client()
            for record, report in zip(records, reports, strict=True):
                _produce(producer, record, report)
            producer.flush()
            if any(report.error and report.error.fatal() for report in reports):
                self._producer = None
        _raise_failures(records, reports)
        return [report.delivered() for report in reports]

    def _client(self) -> Producer:
        if self._producer is None:
            self._producer = clients.producer(self._settings, {}, {})
        return self._producer

    def close(self) -> None:
        """Release the connection."""
        with self._lock:
            self._producer = None


class _Report:
    """What became of one record; filled in by the client's delivery report."""

    __slots__ = ("error", "offset", "partition")

    def __init__(self) -> None:
        self.error: KafkaError | None = None
        self.partition: int | None = None
        self.offset: int | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.error = error
        self.partition, self.offset = message.partition(), message.offset()

    def delivered(self) -> Delivered:
        known = self.offset is not None and self.offset >= 0
        return Delivered(self.partition or 0, Offset(self.offset or 0) if known else None)


def header_list(headers: Headers) -> list[tuple[str, str | bytes | None]] | None:
    """Headers as the client wants them."""
    return [(name, value) for name, value in headers] or None


def _produce(producer: Producer, record: Outgoing, report: _Report) -> None:
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
            report.error = cause_of(error)
            return
        else:
            return


def _raise_failures(records: Sequence[Outgoing], reports: Sequence[_Report]) -> None:
    failed = [
        write_fault(f"write to {record.topic}", report.error)
        for record, report in zip(records, reports, strict=True)
        if report.error is not None
    ]
    if not failed:
        return
    stored = len(records) - len(failed)
    certain = stored == 0 and all(isinstance(fault, Determinate) for fault in failed)
    text = str(failed[0]) if stored == 0 else f"{stored} of {len(records)} stored: {failed[0]}"
    raise (Determinate(text) if certain else Indeterminate(text)) from failed[0]
