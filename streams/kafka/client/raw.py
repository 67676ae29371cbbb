"""Reads users' topics: exact ranges of offsets, as columns.

The caller keeps positions; there is no group and no offset commit. The end of a topic is its
last stable offset (rule 30): records of an open transaction are not visible yet. A range may
hold fewer records than offsets (transaction markers, aborted records, compaction), so reading
stops by position, never by count.

The client returns one object per record; they are converted to Arrow columns here.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from streams.errors import Determinate, InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka.client import clients, offsets
from streams.kafka.client.error_mapping import (
    END_OF_PARTITION,
    OUT_OF_RANGE,
    UNANSWERED,
    read_fault,
)
from streams.kafka.client.renewal import Renewable
from streams.kafka.log import Truncated, Unanswered
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import OffsetRange
from streams.values import uncollected

RAW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
"""The schema of `fetch`: key and value of a record may be null."""

MORE_COLUMNS = {
    "timestamp": pa.int64(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
"""Columns of `fetch` that cost time, and come when they are asked for.

Units: the timestamp in milliseconds since 1970, null if a record has none.
"""

_AT_ONCE = 5_000  # large enough to amortise a call, small enough for the cache
_WAIT_S = 0.05

COMMITTED: Mapping[str, clients.Setting] = {
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
}
_PACE: Mapping[str, clients.Setting] = {
    "fetch.wait.max.ms": 10,  # at the end of a partition a new assignment must not wait long
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 32 << 10,
    "check.crcs": True,
}


class RawReader:
    """Reads raw topics. One thread; clients are created by the first call that needs them.

    A request for ends may take `answer_s`; whoever asks all the time wants to know soon that
    the broker that was asked is gone.
    """

    def __init__(
        self, settings: ClientSettings, answer_s: float = clients.ANSWER_TIMEOUT_S
    ) -> None:
        self._settings, self._answer_s = settings, answer_s
        self._admins: Renewable[AdminClient] = Renewable(
            lambda: clients.admin(settings), answer_s
        )
        self._consumer: Consumer | None = None
        self._at: tuple[Topic, int, int] | None = None  # what comes next without a seek

    def ends(self, topic: Topic) -> dict[int, OffsetRange]:
        """Return the readable range of each partition.

        Errors: Determinate, also if the topic does not exist.
        """
        with self._asked() as admin:
            return offsets.ends(admin, topic, self._answer_s)

    def highs(self, topic: Topic, partitions: Collection[int]) -> dict[int, Offset]:
        """Return the end of each of these partitions, with two requests. Errors: as `ends`."""
        with self._asked() as admin:
            return offsets.highs(admin, topic, partitions, self._answer_s)

    def topic_id(self, topic: Topic) -> str | None:
        """Return the broker's id of a topic; None if it does not exist. Errors: Determinate."""
        with self._asked() as admin:
            return offsets.topic_id(admin, topic, self._answer_s)

    @contextmanager
    def _asked(self) -> Iterator[AdminClient]:
        """Lend the client for requests; one that no broker answers is replaced."""
        try:
            yield self._admins.get()
        except Unanswered as error:
            self._admins.failed(error)
            raise

    def fetch(
        self,
        topic: Topic,
        partition: int,
        lo: Offset,
        hi: Offset,
        limit: int | None = None,
        *,
        more: Sequence[str] = (),
    ) -> pa.Table:
        """Return the committed records of `[lo, hi)`; `hi` is at most the end by `ends`.

        With a `limit`, the first records up to that number: the range read is then `[lo, last
        offset + 1)`. Columns as in `RAW_SCHEMA`, then `more` of `MORE_COLUMNS`, in offset
        order.

        Errors: Truncated if retention deleted `lo`; Determinate.
        """
        if hi < lo or (limit is not None and limit < 1):
            raise InvalidUsage(f"fetch of {topic}/{partition}: [{lo}, {hi}) with limit {limit}")
        columns = partial(_columns, partition=partition, more=more)
        batches = [columns(())]
        if lo < hi:
            try:
                with uncollected():
                    batches += map(columns, self._read(topic, partition, lo, hi, limit))
            except KafkaException as error:
                raise read_fault(f"fetch {topic}/{partition}", error) from error
        return pa.Table.from_batches(batches)

    def _read(
        self, topic: Topic, partition: int, lo: Offset, hi: Offset, limit: int | None
    ) -> Iterator[Sequence[Message]]:
        consumer = self._positioned(topic, partition, lo)
        left = hi - lo if limit is None else min(limit, hi - lo)
        position = int(lo)
        deadline = time.monotonic() + clients.ANSWER_TIMEOUT_S
        while position < hi and left > 0:
            messages = consumer.consume(min(left, _AT_ONCE), _WAIT_S)
            if messages:
                deadline = time.monotonic() + clients.ANSWER_TIMEOUT_S
                records = _records(messages, topic, partition, position)
                position = max(position, behind(messages[-1]))
                if position > hi:
                    records = [record for record in records if (record.offset() or 0) < hi]
                yield records
                left -= len(records)
            elif time.monotonic() > deadline:
                self.close()  # the consumer may have lost its brokers (`renewal`)
                raise Determinate(f"fetch {topic}/{partition}: no answer in time")
        self._rest(consumer, TopicPartition(topic, partition, position), hi)

    def _positioned(self, topic: Topic, partition: int, lo: Offset) -> Consumer:
        """The consumer, positioned at `lo`; if it is there already its prefetch is kept."""
        if self._consumer is None:
            self._consumer = clients.consumer(self._settings, COMMITTED, _PACE)
        if self._at != (topic, partition, lo):
            self._consumer.assign([TopicPartition(topic, partition, lo)])
        self._at = None
        return self._consumer

    def _rest(self, consumer: Consumer, at: TopicPartition, hi: Offset) -> None:
        """Prefetch while more is to come; pause at the end."""
        _, end = consumer.get_watermark_offsets(at, cached=True)
        if at.offset <= hi and at.offset < end:
            self._at = (Topic(at.topic), at.partition, at.offset)
        else:
            consumer.unassign()

    def close(self) -> None:
        """Release the consumer's connections; a later call has another."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
            self._at = None


def _records(
    messages: Sequence[Message], topic: Topic, partition: int, position: int
) -> Sequence[Message]:
    """The records among the messages. Errors: Truncated, Determinate for an error message."""
    errors = list(map(Message.error, messages))
    if not any(errors):
        return messages
    failed = [
        message for message, error in zip(messages, errors, strict=True) if error is not None
    ]
    for message in failed:
        check(message, topic, partition, position)
    return [message for message in messages if message.error() is None]


def behind(message: Message) -> int:
    """The position after a record, or the end of the partition if the event reports that.

    Markers and aborted records are skipped silently: only the end event shows it.
    """
    offset, error = message.offset() or 0, message.error()
    if error is None:
        return offset + 1
    return offset if error.code() == END_OF_PARTITION else 0


def check(message: Message, topic: Topic, partition: int, position: int) -> None:
    """Ignore events that do not end a read. Errors: Truncated, Determinate for all others."""
    error = message.error()
    assert error is not None
    if error.code() in OUT_OF_RANGE:
        raise Truncated(topic, position, f"partition {partition}: {error.str()}")
    # transient errors are retried; a damaged batch would be skipped silently
    if error.code() not in UNANSWERED | {END_OF_PARTITION}:
        raise read_fault(f"fetch {topic}/{partition}", error)


def _columns(records: Sequence[Message], partition: int, more: Sequence[str]) -> pa.RecordBatch:
    columns = [
        pa.array(list(map(Message.key, records)), pa.binary()),
        pa.array(list(map(Message.value, records)), pa.binary()),
        pa.array(np.full(len(records), partition, np.int32)),
        pa.array(list(map(Message.offset, records)), pa.int64()),
        *(_READ[name](records) for name in more),
    ]
    schema = pa.schema([*RAW_SCHEMA, *((name, MORE_COLUMNS[name]) for name in more)])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _timestamps(records: Sequence[Message]) -> pa.Array:
    times = [time_ms for _, time_ms in map(Message.timestamp, records)]
    values = np.array(times, np.int64)
    return pa.array(values, mask=values < 0)  # -1 stands for none


def _headers(records: Sequence[Message]) -> pa.Array:
    return pa.array(
        [headers or () for headers in map(Message.headers, records)], MORE_COLUMNS["headers"]
    )


_READ = {"timestamp": _timestamps, "headers": _headers}
