"""Reads users' topics: exact ranges of offsets, as columns.

The caller keeps positions; there is no group and no offset commit. The end of a topic is its
last stable offset (rule 30): records of an open transaction are not visible yet. A range may
hold fewer records than offsets (transaction markers, aborted records, compaction), so reading
stops by position, never by count.

The client returns one object per record; they are converted to Arrow columns here.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from streams.errors import Determinate, InvalidUsage, SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.client import clients, offsets
from streams.kafka.client.error_mapping import read_fault
from streams.kafka.client.headers import headers_of
from streams.kafka.client.ranges_reading import RangesReading, rounds
from streams.kafka.client.reconnecting_client import ReconnectingClient
from streams.kafka.log import Unanswered
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import Answers, OffsetRange
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

Units: the timestamp in milliseconds since 1970, null if a record has none. The headers are null
where a name is not UTF-8.
"""

_AT_ONCE = 5_000  # large enough to amortise a call, small enough for the cache
_WAIT_S = 0.05
_LOOK_UP_S = 1.0

T = TypeVar("T")

COMMITTED: Mapping[str, clients.Setting] = {
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
}
READS_ALL: Mapping[str, clients.Setting] = {
    "fetch.wait.max.ms": 10,  # at the end of a partition a new assignment must not wait long
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 32 << 10,
    "check.crcs": True,
}
READS_FEW: Mapping[str, clients.Setting] = {
    **READS_ALL,
    "queued.max.messages.kbytes": 64,
    "fetch.message.max.bytes": 64 << 10,  # a larger record is delivered all the same
}
"""For one who reads a few records here and there: what is read ahead is thrown away."""


class RawReader:
    """Reads raw topics. One thread; clients are created by the first call that needs them.

    A request for ends may take `answer_s`; whoever asks all the time wants to know soon that
    the broker that was asked is gone. `pace` says how far ahead records are read.
    """

    def __init__(
        self,
        settings: ClientSettings,
        answer_s: float = clients.ANSWER_TIMEOUT_S,
        pace: Mapping[str, clients.Setting] = READS_ALL,
    ) -> None:
        self._settings, self._answer_s, self._pace = settings, answer_s, pace
        self._admins: ReconnectingClient[AdminClient] = ReconnectingClient(
            lambda: clients.admin(settings), answer_s
        )
        self._consumer: Consumer | None = None
        self._at: tuple[Topic, Mapping[int, int]] | None = (
            None  # what comes next without a seek
        )
        self._looked_up: set[Topic] = set()

    def ends(self, topic: Topic) -> dict[int, OffsetRange]:
        """Return the readable range of each partition.

        Errors: Determinate, also if the topic does not exist.
        """
        with self._asked() as admin:
            return offsets.ends(admin, topic, self._answer_s)

    def ends_of_all(self, topics: Collection[Topic]) -> Answers[dict[int, OffsetRange]]:
        """Return the readable range of each partition, or the error, of each topic.

        Errors: Unanswered when no broker answers for any of them.
        """
        with self._asked() as admin:
            return _heard(offsets.ends_of_all(admin, topics, self._answer_s), topics)

    def highs_of_all(
        self, places: Mapping[Topic, Collection[int]]
    ) -> Answers[dict[int, Offset]]:
        """Return the ends of these partitions of topics. Errors: as `ends_of_all`."""
        with self._asked() as admin:
            return _heard(offsets.highs_of_all(admin, places, self._answer_s), places)

    def ids_of_all(self, topics: Collection[Topic]) -> Answers[str | None]:
        """Return the broker's ids of topics; None for one that does not exist.

        Errors: as `ends_of_all`.
        """
        with self._asked() as admin:
            return _heard(offsets.ids_of_all(admin, topics, self._answer_s), topics)

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
        if limit is not None and limit < 1:
            raise InvalidUsage(f"fetch of {topic}/{partition}: [{lo}, {hi}) with limit {limit}")
        return self._fetched(topic, [(partition, lo, hi)], limit, more)

    def fetch_ranges(
        self,
        topic: Topic,
        ranges: Sequence[tuple[int, Offset, Offset]],
        *,
        more: Sequence[str] = (),
    ) -> pa.Table:
        """Return the committed records of each range `(partition, lo, hi)`, in this order.

        Partitions are read together: one assignment costs as much for many as for one. Errors
        and shape as those of `fetch`.
        """
        return self._fetched(topic, ranges, None, more)

    def _fetched(
        self,
        topic: Topic,
        ranges: Sequence[tuple[int, Offset, Offset]],
        limit: int | None,
        more: Sequence[str],
    ) -> pa.Table:
        batches: list[list[pa.RecordBatch]] = [[_columns((), 0, more)] for _ in ranges]
        for together in rounds(topic, ranges):
            wanted = {ranges[number][0]: ranges[number][1:] for number in together}
            numbers = {ranges[number][0]: number for number in together}
            reading = RangesReading(topic, wanted)
            try:
                with uncollected():
                    for partition, records in self._read(reading, limit):
                        columns = _columns(records, partition, more)
                        batches[numbers[partition]].append(columns)
            except KafkaException as error:
                self.rest()
                raise read_fault(f"fetch {reading}", error) from error
            except SlackwaterError:
                self.rest()
                raise
        in_order = [batch for of_range in batches for batch in of_range]
        return pa.Table.from_batches(in_order, schema=_schema(more))

    def _read(
        self, reading: RangesReading, limit: int | None
    ) -> Iterator[tuple[int, Sequence[Message]]]:
        consumer = self._positioned(reading)
        left = reading.length if limit is None else min(limit, reading.length)
        deadline = time.monotonic() + clients.ANSWER_TIMEOUT_S
        while not reading.is_complete and left > 0:
            messages = consumer.consume(min(left, _AT_ONCE), _WAIT_S)
            if messages:
                deadline = time.monotonic() + clients.ANSWER_TIMEOUT_S
                for partition, records in reading.take(messages):
                    yield partition, records
                    left -= len(records)
                self._stop(consumer, reading)
            elif time.monotonic() > deadline:
                self.close()  # the consumer may have lost its brokers (`renewal`)
                raise Determinate(f"fetch {reading}: no answer in time")
        self._finish(consumer, reading)

    def _positioned(self, reading: RangesReading) -> Consumer:
        """The consumer at the begin of a reading; if it is there, its prefetch is kept."""
        if self._consumer is None:
            self._consumer = clients.consumer(self._settings, COMMITTED, self._pace)
        if self._at != (reading.topic, reading.positions):
            self._look_up(self._consumer, reading.topic)
            self._consumer.assign([*map(reading.place, reading.positions)])
        self._at = None
        return self._consumer

    def _look_up(self, consumer: Consumer, topic: Topic) -> None:
        """Find out about a topic: once connected, a consumer itself looks once a second."""
        if self._looked_up and topic not in self._looked_up:
            with suppress(KafkaException):
                consumer.list_topics(topic, timeout=_LOOK_UP_S)
        self._looked_up.add(topic)

    def _stop(self, consumer: Consumer, reading: RangesReading) -> None:
        """Fetch no more of partitions that are read before the others and have more records."""
        if reading.is_complete:
            return
        ended = [
            partition
            for partition in reading.ended()
            if _end(consumer, reading.place(partition)) > reading.positions[partition]
        ]
        if ended:
            consumer.incremental_unassign([*map(reading.place, ended)])
            reading.stopped.update(ended)

    def _finish(self, consumer: Consumer, reading: RangesReading) -> None:
        """Prefetch while more is to come; rest at the end."""
        places = [*map(reading.place, reading.positions)]
        has_more = any(place.offset < _end(consumer, place) for place in places)
        if has_more and not reading.stopped and not reading.has_surplus:
            self._at = reading.topic, dict(reading.positions)
        else:
            self.rest()

    def rest(self) -> None:
        """Fetch nothing until the next call; what was read ahead is dropped.

        For a reader that goes on elsewhere: a consumer at the end of a partition asks for more
        a hundred times a second.
        """
        self._at = None
        if self._consumer is not None:
            self._consumer.unassign()

    def close(self) -> None:
        """Release the consumer's connections; a later call has another."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
            self._at = None
            self._looked_up.clear()


def _heard(answers: Answers[T], topics: Collection[Topic]) -> Answers[T]:
    """Return the answers. Errors: Unanswered when that is the one of each topic."""
    silent = [answer for answer in answers.values() if isinstance(answer, Unanswered)]
    if silent and len(silent) == len(topics):
        raise silent[0]
    return answers


def _end(consumer: Consumer, place: TopicPartition) -> int:
    """The end of a partition as it was in the last answer of the broker."""
    _, end = consumer.get_watermark_offsets(place, cached=True)
    return int(end)


def _columns(records: Sequence[Message], partition: int, more: Sequence[str]) -> pa.RecordBatch:
    columns = [
        pa.array(list(map(Message.key, records)), pa.binary()),
        pa.array(list(map(Message.value, records)), pa.binary()),
        pa.array(np.full(len(records), partition, np.int32)),
        pa.array(list(map(Message.offset, records)), pa.int64()),
        *(_READ[name](records) for name in more),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_schema(more))


def _schema(more: Sequence[str]) -> pa.Schema:
    return pa.schema([*RAW_SCHEMA, *((name, MORE_COLUMNS[name]) for name in more)])


def _timestamps(records: Sequence[Message]) -> pa.Array:
    times = [time_ms for _, time_ms in map(Message.timestamp, records)]
    values = np.array(times, np.int64)
    return pa.array(values, mask=values < 0)  # -1 stands for none


def _headers(records: Sequence[Message]) -> pa.Array:
    return pa.array(list(map(headers_of, records)), MORE_COLUMNS["headers"])


_READ = {"timestamp": _timestamps, "headers": _headers}
