"""Chunks on a broker: written under fresh keys, read by offset, checked by key and CRC.

All bodies of one write go to one partition, chosen by the first key: their offsets are
consecutive, so a reader fetches them in one sweep.
"""

import threading
import time
import uuid
import zlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from streams.errors import Corrupt, Determinate
from streams.ids import Topic
from streams.kafka.client import clients
from streams.kafka.client.error_mapping import END_OF_PARTITION, GONE, OUT_OF_RANGE, read_fault
from streams.kafka.client.headers import headers_of
from streams.kafka.client.offsets import known
from streams.kafka.client.producer import Delivered, Outgoing, Sender
from streams.kafka.client.reconnecting_client import ReconnectingClient
from streams.kafka.log import (
    KEY_ERRORS,
    ChunkRecord,
    ChunkRef,
    ChunkWrite,
    Unanswered,
    described,
)
from streams.kafka.settings import ClientSettings

_Isolation = Literal["read_uncommitted", "read_committed"]
_MEANING: Mapping[str, clients.Setting] = {
    "enable.partition.eof": True,  # a partition that ends early lacks a chunk
}
_PACE: Mapping[str, clients.Setting] = {
    "fetch.wait.max.ms": 5,  # at the end of a partition a new assignment must not wait long
    "queued.min.messages": 1000,
    "queued.max.messages.kbytes": 16 << 10,  # per partition: reading on beyond what was asked
}
# a larger record is delivered all the same
_FEW_OF_EACH = {"fetch.message.max.bytes": 64 << 10}
_SWEEP = 8  # reading over this many unwanted records costs less than a seek
_AT_ONCE = 500
_POLL_S = 1.0
_AGAIN_S = 2.0
"""A fetch without any record for this long is restarted, with growing timeouts.

Once in a thousand rounds of `torture input` a consumer read nothing from its assignment for 30
s, although brokers answered; one cause was a reference to partition -1 (`_check_places`).
"""
_READERS = 4  # concurrent sweeps per isolation level
_COUNTED_S = 300.0  # how long a writer may miss new partitions of a topic
_NAMED = 4  # most topics that an error names


class PartitionCount(NamedTuple):
    """The number of partitions of a topic, and when it was read. Units: monotonic seconds."""

    partitions: int
    at: float


class KafkaChunks:
    """Chunk bodies in compacted topics. Clients are created by the first call.

    A few readers run concurrently; a writer waits for no reader. Chunks count by an Append, not
    by a transaction, so they are read uncommitted.
    """

    def __init__(self, settings: ClientSettings, sender: Sender | None = None) -> None:
        self._settings = settings
        self._sender = sender or Sender(settings)
        self._readers: Mapping[_Isolation, _Reader] = {
            "read_uncommitted": _Reader(settings, "read_uncommitted"),
            "read_committed": _Reader(settings, "read_committed"),
        }

    def write(
        self, topic: Topic, bodies: Sequence[tuple[bytes, int]], headers: Mapping[str, bytes]
    ) -> tuple[ChunkRef, ...]:
        """Write bodies in a row; one that is confirmed without an offset is written again."""
        return self.write_all([ChunkWrite(topic, bodies, headers)])[0]

    def write_all(self, wanted: Sequence[ChunkWrite]) -> list[tuple[ChunkRef, ...]]:
        """Write the bodies of many topics with one flush."""
        count = self._readers["read_uncommitted"].count
        partitions = [uuid.uuid4().int % count(write.topic) for write in wanted]
        missing = [
            (n, i)
            for n, chunk_write in enumerate(wanted)
            for i in range(len(chunk_write.bodies))
        ]
        refs: dict[tuple[int, int], ChunkRef] = {}
        while missing:
            out = [
                _outgoing(
                    wanted[n].topic, partitions[n], *wanted[n].bodies[i], wanted[n].headers
                )
                for n, i in missing
            ]
            sent = self._sender.send(out)
            for (n, i), record, delivered in zip(missing, out, sent, strict=True):
                ref = _ref(record, delivered, wanted[n].bodies[i][1])
                if ref is not None:
                    refs[n, i] = ref
            missing = [place for place in missing if place not in refs]
        return [
            tuple(refs[n, i] for i in range(len(chunk_write.bodies)))
            for n, chunk_write in enumerate(wanted)
        ]

    def fetch(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        """Fetch bodies by reference, from all partitions at once."""
        return [body for body, _ in self._fetch("read_uncommitted", topic, refs)]

    def fetch_committed(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[ChunkRecord]:
        """Fetch bodies with their headers, below the last stable offset."""
        return self._fetch("read_committed", topic, refs)

    def _fetch(
        self, isolation: _Isolation, topic: Topic, refs: Sequence[ChunkRef]
    ) -> list[ChunkRecord]:
        if not refs:
            return []
        records = self._readers[isolation].sweep(topic, refs)
        return [records[topic, ref.partition, ref.offset] for ref in refs]

    def fetch_all(
        self, wanted: Mapping[Topic, Sequence[ChunkRef]]
    ) -> Mapping[Topic, list[bytes]]:
        """Fetch bodies of many topics in one sweep, with a consumer that prefetches little."""
        meaning = {**_MEANING, "isolation.level": "read_uncommitted"}
        consumer = clients.consumer(self._settings, meaning, {**_PACE, **_FEW_OF_EACH})
        try:
            for topic, refs in wanted.items():
                _check_places(topic, refs)
            _require(consumer, wanted)
            messages = _Sweep(consumer, wanted).run()
        finally:
            consumer.close()
        return {
            topic: [messages[topic, ref.partition, ref.offset].body for ref in refs]
            for topic, refs in wanted.items()
        }

    def forget(self, topic: Topic, refs: Sequence[ChunkRef]) -> None:
        """Write a tombstone for each chunk; places where no record can be are ignored.

        The client treats a negative partition as any, and would delete other chunks.
        """
        there = [ref for ref in refs if _is_place(ref)]
        last = max((ref.partition for ref in there), default=-1)
        count = self._readers["read_uncommitted"].count_beyond(topic, last) if there else 0
        self._sender.send(
            [
                Outgoing(topic, None, ref.key.encode(errors=KEY_ERRORS), ref.partition)
                for ref in there
                if ref.partition < count
            ]
        )

    def close(self) -> None:
        """Release the connections."""
        for reader in self._readers.values():
            reader.close()
        self._sender.close()


@dataclass(frozen=True, slots=True)
class _Client:
    """A consumer, and the number of partitions of each topic it knows."""

    consumer: Consumer
    partitions: dict[Topic, int] = field(default_factory=dict)


class _Reader:
    """A few consumers, each for one sweep at a time. Partition lookups wait for none.

    A consumer whose sweep failed is discarded: it may be the cause.
    """

    def __init__(self, settings: ClientSettings, isolation: _Isolation) -> None:
        self._settings = settings
        self._isolation = isolation
        self._meaning = {**_MEANING, "isolation.level": isolation}
        self._turns = threading.Semaphore(_READERS)
        self._lock = threading.Lock()  # guards what follows
        self._free: list[_Client] = []
        self._metadata: ReconnectingClient[Consumer] = ReconnectingClient(self._made)
        self._partitions: dict[Topic, PartitionCount] = {}

    def sweep(
        self, topic: Topic, refs: Sequence[ChunkRef]
    ) -> dict[tuple[Topic, int, int], ChunkRecord]:
        """Return the records of a topic by partition and offset. Errors: as `Chunks.fetch`."""
        # a consumer would wait for a topic or partition that does not exist
        _check_places(topic, refs)
        last = max(refs, key=_place)
        with self._lent() as client:
            if client.partitions.get(topic, 0) <= last.partition:
                client.partitions[topic] = self._look_up(topic, client.consumer)
            if client.partitions[topic] <= last.partition:
                raise _missing(topic, last, "there is no such partition")
            if self._isolation == "read_committed":
                _check_stable(client.consumer, topic, refs)
            return _Sweep(client.consumer, {topic: refs}).run()

    @contextmanager
    def _lent(self) -> Iterator[_Client]:
        with self._turns:
            with self._lock:
                client = self._free.pop() if self._free else None
            client = client or _Client(self._made())
            try:
                yield client
            except Unanswered:
                client.consumer.close()
                raise
            except BaseException:
                self._give_back(client)
                raise
            self._give_back(client)

    def _give_back(self, client: _Client) -> None:
        with self._lock:
            self._free.append(client)

    def _made(self) -> Consumer:
        return clients.consumer(self._settings, self._meaning, _PACE)

    def count(self, topic: Topic) -> int:
        """The number of partitions of the topic; it may have grown in the last few minutes."""
        partitions = self._partitions.get(topic)
        if partitions is None or time.monotonic() - partitions.at > _COUNTED_S:
            return self._refreshed(topic)
        return partitions.partitions

    def count_beyond(self, topic: Topic, partition: int) -> int:
        """Like `count`, looked up again if this partition is not among the known ones."""
        count = self.count(topic)
        return count if partition < count else self._refreshed(topic)

    def _refreshed(self, topic: Topic) -> int:
        """Like `_look_up`, by a consumer for metadata requests, which any thread may use."""
        try:
            return self._look_up(topic, self._metadata.get())
        except Unanswered as error:
            self._metadata.failed(error)
            raise

    def _look_up(self, topic: Topic, consumer: Consumer) -> int:
        """Look up the partitions. Errors: Determinate, also if the topic does not exist."""
        try:
            metadata = consumer.list_topics(topic, timeout=clients.ANSWER_TIMEOUT_S)
        except KafkaException as error:
            raise read_fault(f"look up {topic}", error) from error
        count = len(metadata.topics[topic].partitions) if topic in metadata.topics else 0
        if count == 0:
            raise Determinate(f"topic {topic} does not exist")
        self._partitions[topic] = PartitionCount(count, time.monotonic())
        return count

    def close(self) -> None:
        """Release the connections once no sweep is running."""
        with ExitStack() as stack:
            for _ in range(_READERS):
                stack.enter_context(self._turns)
            with self._lock:
                consumers = [client.consumer for client in self._free]
                for consumer in (*consumers, *filter(None, [self._metadata.drop()])):
                    consumer.close()
                self._free = []


def _outgoing(
    topic: Topic, partition: int, body: bytes, rows: int, headers: Mapping[str, bytes]
) -> Outgoing:
    together = tuple(described(headers, body, rows).items())
    return Outgoing(topic, body, uuid.uuid4().hex.encode(), partition, together)


def _ref(record: Outgoing, delivered: Delivered, rows: int) -> ChunkRef | None:
    if delivered.offset is None or record.key is None or record.value is None:
        return None
    checksum, size = zlib.crc32(record.value), len(record.value)
    key = record.key.decode()
    return ChunkRef(delivered.partition, delivered.offset, key, checksum, rows, size)


class _Sweep:
    """One fetch: forward through the wanted offsets of each partition, seeking over gaps.

    Invariant: each partition's queue holds its remaining offsets in order; a partition without
    any is no longer assigned.
    """

    def __init__(self, consumer: Consumer, wanted: Mapping[Topic, Iterable[ChunkRef]]) -> None:
        self._consumer = consumer
        self._topics = ", ".join(wanted) if len(wanted) < _NAMED else f"{len(wanted)} topics"
        self._wanted: dict[tuple[Topic, int], deque[ChunkRef]] = {}
        for topic, refs in wanted.items():
            for ref in sorted(set(refs), key=_place):
                self._wanted.setdefault((topic, ref.partition), deque()).append(ref)
        self._found: dict[tuple[Topic, int, int], ChunkRecord] = {}

    def run(self) -> dict[tuple[Topic, int, int], ChunkRecord]:
        try:
            self._begin()
            self._read()
        except KafkaException as error:
            raise read_fault(f"fetch chunks of {self._topics}", error) from error
        finally:
            self._consumer.unassign()
        return self._found

    def _begin(self) -> None:
        self._consumer.assign(
            [
                TopicPartition(topic, partition, queue[0].offset)
                for (topic, partition), queue in self._wanted.items()
            ]
        )

    def _read(self) -> None:
        heard, again_s = time.monotonic(), _AGAIN_S
        while self._wanted:
            first = self._consumer.poll(_POLL_S)
            silent_s = time.monotonic() - heard
            if first is not None:
                for message in [first, *self._consumer.consume(_AT_ONCE, 0)]:
                    self._take(message)
                heard, again_s = time.monotonic(), _AGAIN_S
            elif silent_s > clients.ANSWER_TIMEOUT_S:
                raise Unanswered(f"fetch chunks of {self._topics}: no answer in time")
            elif silent_s > again_s:
                self._begin()
                again_s *= 3

    def _take(self, message: Message) -> None:
        partition = message.partition()
        place = Topic(message.topic() or ""), -1 if partition is None else partition
        queue = self._wanted.get(place)
        if queue is None:  # a finished partition, or an event of the whole client
            return
        wanted, error, offset = queue[0], message.error(), message.offset() or 0
        if error is not None:
            if error.code() in GONE | OUT_OF_RANGE | {END_OF_PARTITION}:
                raise _missing(place[0], wanted, error.str())
            raise read_fault(f"fetch chunks of {place[0]}", error)
        if offset > wanted.offset:
            raise _missing(place[0], wanted, f"the next record is at {offset}")
        if offset == wanted.offset:
            body = checked(place[0], wanted, message)
            headers = headers_of(message)
            if headers is None:
                raise Corrupt(f"chunk {_name(place[0], wanted)}: a header's name is not UTF-8")
            self._found[*place, offset] = ChunkRecord(body, headers)
            queue.popleft()
            self._move_on(place, offset, queue)

    def _move_on(self, place: tuple[Topic, int], offset: int, queue: deque[ChunkRef]) -> None:
        if not queue:
            del self._wanted[place]
            self._consumer.incremental_unassign([TopicPartition(*place)])
        elif queue[0].offset > offset + _SWEEP:
            self._consumer.seek(TopicPartition(*place, queue[0].offset))


def _check_stable(consumer: Consumer, topic: Topic, refs: Sequence[ChunkRef]) -> None:
    """Errors: Corrupt for a chunk at or beyond the last stable offset: it is not delivered."""
    for last in {ref.partition: ref for ref in sorted(refs, key=_place)}.values():
        place = TopicPartition(topic, last.partition)
        try:
            _, high = consumer.get_watermark_offsets(place, timeout=clients.ANSWER_TIMEOUT_S)
            end = known(high)
        except KafkaException as error:
            raise read_fault(f"look up the end of {topic}", error) from error
        if last.offset >= end:
            raise _missing(topic, last, f"the committed records end at {end}")


def _check_places(topic: Topic, refs: Iterable[ChunkRef]) -> None:
    """Errors: Corrupt for a place where no record can be; a log may name any place.

    The client gives negative numbers a special meaning, and delivers nothing.
    """
    for ref in refs:
        if not _is_place(ref):
            raise _missing(topic, ref, "there is no such place")


def _is_place(ref: ChunkRef) -> bool:
    return ref.partition >= 0 and ref.offset >= 0


def _missing(topic: Topic, wanted: ChunkRef, why: str) -> Corrupt:
    return Corrupt(f"chunk {_name(topic, wanted)} is missing: {why}")


def _require(consumer: Consumer, topics: Collection[Topic]) -> None:
    """Errors: Determinate for a topic that does not exist; a consumer would wait for it."""
    try:
        there = consumer.list_topics(timeout=clients.ANSWER_TIMEOUT_S).topics
    except KafkaException as error:
        raise read_fault("look up data topics", error) from error
    for topic in topics:
        if topic not in there:
            raise Determinate(f"topic {topic} does not exist")


def _place(ref: ChunkRef) -> tuple[int, int]:
    return ref.partition, ref.offset


def _name(topic: Topic, ref: ChunkRef) -> str:
    return f"{topic}/{ref.partition}@{ref.offset}"


def checked(topic: Topic, ref: ChunkRef, message: Message) -> bytes:
    """Return the body of a record that must be the given chunk. Errors: Corrupt."""
    if message.key() != ref.key.encode():
        raise Corrupt(
            f"chunk {_name(topic, ref)}: expected key {ref.key}, actual {message.key()!r}"
        )
    body = message.value()
    if body is None:
        raise Corrupt(f"chunk {_name(topic, ref)} is a tombstone")
    if (checksum := zlib.crc32(body)) != ref.checksum:
        raise Corrupt(
            f"chunk {_name(topic, ref)}: "
            f"expected checksum {ref.checksum:08x}, actual {checksum:08x}"
        )
    return body
