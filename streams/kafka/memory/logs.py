"""In-memory logs, chunks and topics: the strict implementation, for tests and in-process use.

What a broker may do late, this does at once: a forgotten chunk is gone. What a broker refuses,
this refuses with the same error (`tests/contract`).
"""

import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence

from streams.errors import (
    Corrupt,
    Determinate,
    InvalidUsage,
    SlackwaterError,
)
from streams.ids import Offset, Topic
from streams.kafka.log import (
    KEY_ERRORS,
    ChunkRecord,
    ChunkRef,
    ChunkWrite,
    Entry,
    Stored,
    Tail,
    Truncated,
    all_stored,
    described,
)
from streams.kafka.memory.store import Store
from streams.kafka.topics import Topics


class MemoryTail:
    """Follows logs of a `Store`."""

    def __init__(self, store: Store, starts: Mapping[Topic, Offset]) -> None:
        self._store = store
        self._next: dict[Topic, int] = {}
        self._ids: dict[Topic, str] = {}
        self.add(starts)

    def add(self, starts: Mapping[Topic, Offset]) -> None:
        """Follow more logs; they have to exist."""
        with self._store.changed:
            for topic in starts:
                if topic in self._next:
                    raise InvalidUsage(f"log {topic} is already followed")
                self._store.log(topic)
            self._ids.update({topic: self._store.topic(topic).id for topic in starts})
            self._next.update(starts)

    def remove(self, topic: Topic) -> None:
        """Stop following a log; ignored if it is not followed."""
        with self._store.changed:
            self._next.pop(topic, None)

    def poll(self, wait_ms: int) -> tuple[Entry, ...]:
        """Return everything appended since the last poll; wait only if there is nothing."""
        with self._store.changed:
            entries = self._take()
            if not entries and wait_ms > 0:
                self._store.changed.wait(wait_ms / 1000)
                entries = self._take()
            return entries

    def _take(self) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        for topic, position in list(self._next.items()):
            if failure := self._failure(topic, position):
                if entries:
                    break  # return what was read before; the next poll raises
                self.remove(topic)
                raise failure
            records = self._store.log(topic).since(position)
            entries.extend(
                Entry(
                    topic,
                    record.offset,
                    record.at_ms,
                    record.value or b"",
                    record.is_append_time,
                )
                for record in records
            )
            if records:
                self._next[topic] = records[-1].offset + 1
        return tuple(entries)

    def _failure(self, topic: Topic, position: int) -> SlackwaterError | None:
        if reason := self._lost(topic, position):
            return Truncated(topic, position, reason)
        return None

    def _lost(self, topic: Topic, position: int) -> str:
        info = self._store.describe(topic)
        if info is None or info.id != self._ids[topic]:
            return "the topic was deleted"
        log = self._store.log(topic)
        if position < log.low:
            return f"it was truncated below offset {log.low}"
        if position > log.end:
            return f"it ends at offset {log.end}"
        return ""

    def silent_ms(self) -> int:
        """Return 0: memory always answers."""
        return 0

    def close(self) -> None:
        """Stop following."""
        self._next.clear()


class MemoryLogs:
    """Single-partition topics of a `Store`; append times are `now_ms`."""

    def __init__(self, now_ms: Callable[[], int], store: Store | None = None) -> None:
        self._now_ms = now_ms
        self.store = store or Store()

    def append(self, records: Sequence[tuple[Topic, bytes]]) -> tuple[Offset, ...]:
        """Append what can be appended; raise if that is not all, as a broker would."""
        return all_stored(self.append_each(records))

    def append_each(
        self, records: Sequence[tuple[Topic, bytes]], _stragglers_ms: int = 0, /
    ) -> tuple[Stored, ...]:
        """Append what can be appended; return the result for each."""
        with self.store.changed:
            results = tuple(self._append(topic, value) for topic, value in records)
            self.store.changed.notify_all()
        return results

    def _append(self, topic: Topic, value: bytes) -> Stored:
        try:
            self.store.check(topic, None, value)
            log = self.store.log(topic)
        except Determinate as error:
            return error
        return log.append(self._now_ms(), None, value, {})

    def bounds(self, topic: Topic) -> tuple[Offset, Offset]:
        """Return the first offset held and the next offset."""
        with self.store.changed:
            log = self.store.log(topic)
            return Offset(log.low), Offset(log.end)

    def bounds_all(self, topics: Sequence[Topic]) -> Mapping[Topic, tuple[Offset, Offset]]:
        """Bounds of many logs."""
        return {topic: self.bounds(topic) for topic in topics}

    def is_bare(self, topic: Topic, start: Offset) -> bool:
        """Whether there is nothing from `start` on."""
        with self.store.changed:
            return not self.store.log(topic).since(start)

    def tail(self, starts: Mapping[Topic, Offset]) -> Tail:
        """Follow logs that exist."""
        return MemoryTail(self.store, starts)

    def truncate(self, topic: Topic, before: Offset) -> None:
        """Delete records for good. Errors: Determinate beyond the log's end."""
        with self.store.changed:
            log = self.store.log(topic)
            if before > log.end:
                raise Determinate(
                    f"log {topic} cannot be truncated below {before}: it ends at {log.end}"
                )
            log.truncate(before)
            self.store.changed.notify_all()


class MemoryChunks:
    """Chunk bodies in compacted topics of a `Store`."""

    def __init__(
        self, store: Store | None = None, fresh: Callable[[], uuid.UUID] = uuid.uuid4
    ) -> None:
        self.store = store or Store()
        self._fresh = fresh

    def write(
        self, topic: Topic, bodies: Sequence[tuple[bytes, int]], headers: Mapping[str, bytes]
    ) -> tuple[ChunkRef, ...]:
        """Append the bodies in a row to one partition."""
        with self.store.changed:
            number = self._fresh().int % len(self.store.topic(topic).partitions)
            partition = self.store.partition(topic, number)
            refs = []
            for body, rows in bodies:
                key = self._fresh().hex
                self.store.check(topic, key.encode(), body)
                offset = partition.append(0, key.encode(), body, described(headers, body, rows))
                refs.append(ChunkRef(number, offset, key, zlib.crc32(body), rows, len(body)))
            return tuple(refs)

    def write_all(self, wanted: Sequence[ChunkWrite]) -> list[tuple[ChunkRef, ...]]:
        """Append the bodies of each."""
        return [self.write(*write) for write in wanted]

    def fetch(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        """Return bodies by reference, checked as on a broker."""
        with self.store.changed:
            return [self._fetch(topic, ref).body for ref in refs]

    def fetch_committed(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[ChunkRecord]:
        """Like `fetch`, with headers: in memory every transaction is committed at once."""
        with self.store.changed:
            return [self._fetch(topic, ref) for ref in refs]

    def _fetch(self, topic: Topic, ref: ChunkRef) -> ChunkRecord:
        if ref.partition >= len(self.store.topic(topic).partitions):
            raise Corrupt(f"chunk {topic}/{ref.partition}@{ref.offset} is missing")
        records = self.store.partition(topic, ref.partition).since(ref.offset, ref.offset + 1)
        place = f"{topic}/{ref.partition}@{ref.offset}"
        if not records:
            raise Corrupt(f"chunk {place} is missing")
        record = records[0]
        if record.key != ref.key.encode():
            raise Corrupt(f"chunk {place}: expected key {ref.key}, actual {record.key!r}")
        if record.value is None:
            raise Corrupt(f"chunk {place} is a tombstone")
        if (checksum := zlib.crc32(record.value)) != ref.checksum:
            raise Corrupt(
                f"chunk {place}: expected checksum {ref.checksum:08x}, actual {checksum:08x}"
            )
        return ChunkRecord(record.value, record.headers)

    def fetch_all(
        self, wanted: Mapping[Topic, Sequence[ChunkRef]]
    ) -> Mapping[Topic, list[bytes]]:
        """Bodies of many topics."""
        return {topic: self.fetch(topic, refs) for topic, refs in wanted.items()}

    def forget(self, topic: Topic, refs: Sequence[ChunkRef]) -> None:
        """Write tombstones and compact the topic at once."""
        with self.store.changed:
            count = len(self.store.topic(topic).partitions)
            for ref in refs:
                if not 0 <= ref.partition < count or ref.offset < 0:
                    continue
                key = ref.key.encode(errors=KEY_ERRORS)
                self.store.partition(topic, ref.partition).append(0, key, None, {})
            for partition in self.store.topic(topic).partitions if refs else ():
                partition.compact()


class MemoryBroker:
    """A whole broker in memory: logs, chunks and topics over one store.

    With a seeded `fresh` it is deterministic.
    """

    def __init__(
        self, now_ms: Callable[[], int], fresh: Callable[[], uuid.UUID] = uuid.uuid4
    ) -> None:
        self.store = Store(fresh)
        self.logs = MemoryLogs(now_ms, self.store)
        self.chunks = MemoryChunks(self.store, fresh)
        self.topics: Topics = self.store

    def close(self) -> None:
        """Do nothing: there are no connections."""
