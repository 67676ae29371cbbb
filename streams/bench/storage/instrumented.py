"""Logs and chunk stores that count their traffic.

What storage does is measured from outside, at the two ports that it has to Kafka, so that what
is measured is what runs everywhere.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streams.ids import Offset, Topic
from streams.kafka.log import ChunkRecord, ChunkRef, Chunks, ChunkWrite, Logs, Stored, Tail


@dataclass(slots=True)
class WatchedLogs:
    """Logs. `append_ms` has what each append took."""

    inner: Logs
    append_ms: list[float] = field(default_factory=list)

    def append(self, records: Sequence[tuple[Topic, bytes]]) -> tuple[Offset, ...]:
        """Timed."""
        began = time.perf_counter()
        offsets = self.inner.append(records)
        self.append_ms.append((time.perf_counter() - began) * 1000)
        return offsets

    def append_each(
        self, records: Sequence[tuple[Topic, bytes]], stragglers_ms: int
    ) -> tuple[Stored, ...]:
        """Timed."""
        began = time.perf_counter()
        stored = self.inner.append_each(records, stragglers_ms)
        self.append_ms.append((time.perf_counter() - began) * 1000)
        return stored

    def bounds(self, topic: Topic) -> tuple[Offset, Offset]:
        """As it is."""
        return self.inner.bounds(topic)

    def bounds_all(self, topics: Sequence[Topic]) -> Mapping[Topic, tuple[Offset, Offset]]:
        """As it is."""
        return self.inner.bounds_all(topics)

    def is_bare(self, topic: Topic, start: Offset) -> bool:
        """As it is."""
        return self.inner.is_bare(topic, start)

    def tail(self, starts: Mapping[Topic, Offset]) -> Tail:
        """As it is."""
        return self.inner.tail(starts)

    def truncate(self, topic: Topic, before: Offset) -> None:
        """As it is."""
        self.inner.truncate(topic, before)


@dataclass(slots=True)
class WatchedChunks:
    """Chunks. `write_ms` has what each write took.

    Units: `stored` are the bytes that were written and not forgotten, `most` the greatest that
    it ever was, `written` all bytes that were written.
    """

    inner: Chunks
    write_ms: list[float] = field(default_factory=list)
    stored: int = 0
    most: int = 0
    written: int = 0

    def write(
        self, topic: Topic, bodies: Sequence[tuple[bytes, int]], headers: Mapping[str, bytes]
    ) -> tuple[ChunkRef, ...]:
        """Timed and counted."""
        return self.write_all([ChunkWrite(topic, bodies, headers)])[0]

    def write_all(self, wanted: Sequence[ChunkWrite]) -> list[tuple[ChunkRef, ...]]:
        """Timed and counted."""
        began = time.perf_counter()
        written = self.inner.write_all(wanted)
        self.write_ms.append((time.perf_counter() - began) * 1000)
        size = sum(ref.size for refs in written for ref in refs)
        self.stored, self.written = self.stored + size, self.written + size
        self.most = max(self.most, self.stored)
        return written

    def fetch(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        """As it is."""
        return self.inner.fetch(topic, refs)

    def fetch_all(
        self, wanted: Mapping[Topic, Sequence[ChunkRef]]
    ) -> Mapping[Topic, list[bytes]]:
        """As it is."""
        return self.inner.fetch_all(wanted)

    def fetch_committed(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[ChunkRecord]:
        """As it is."""
        return self.inner.fetch_committed(topic, refs)

    def forget(self, topic: Topic, refs: Sequence[ChunkRef]) -> None:
        """Counted."""
        self.inner.forget(topic, refs)
        self.stored -= sum(ref.size for ref in refs)
