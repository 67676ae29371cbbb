"""Retries while no broker answers: each call is repeated until a broker answers or time is up.

Only idempotent calls are retried: reads, chunks (under a fresh key each time, so a lost answer
leaves an orphan), tombstones, truncation, topics. Appends to a log are not: their sender reads
the log back to learn whether they counted (`streams.storage.client.submit`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from streams.errors import Indeterminate, SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.log import (
    ChunkRecord,
    ChunkRef,
    Chunks,
    ChunkWrite,
    Logs,
    Stored,
    Tail,
    Unanswered,
)
from streams.kafka.topics import OffsetRange, TopicInfo, Topics, TopicSpec

T = TypeVar("T")

SILENCE_MS = 180_000
"""How long a call is retried while no broker answers, in milliseconds."""

_IN_DOUBT: tuple[type[SlackwaterError], ...] = (Unanswered, Indeterminate)


def is_worth_waiting(tail: Tail) -> bool:
    """Whether no broker answers, and the silence is shorter than `SILENCE_MS`."""
    return 0 < tail.silent_ms() < SILENCE_MS


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """How long to retry a call, and the pause between two tries. Units: milliseconds."""

    limit_ms: int = SILENCE_MS
    pause_ms: int = 200

    def ask(
        self,
        call: Callable[[], T],
        again: tuple[type[SlackwaterError], ...] = (Unanswered,),
    ) -> T:
        """The result of the call, which is retried when it raises one of the errors in `again`.

        Errors: the call's own; the last one raised when `limit_ms` is over.
        """
        deadline = time.monotonic() + self.limit_ms / 1000
        while True:
            try:
                return call()
            except again:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(self.pause_ms / 1000)


@dataclass(frozen=True, slots=True)
class PatientLogs:
    """Logs whose reads are retried until a broker answers; appends are not."""

    inner: Logs
    patience: RetryLimits

    def append(self, records: Sequence[tuple[Topic, bytes]]) -> tuple[Offset, ...]:
        """As the inner log; not retried."""
        return self.inner.append(records)

    def append_each(
        self, records: Sequence[tuple[Topic, bytes]], stragglers_ms: int
    ) -> tuple[Stored, ...]:
        """As the inner log; not retried."""
        return self.inner.append_each(records, stragglers_ms)

    def bounds(self, topic: Topic) -> tuple[Offset, Offset]:
        """Return the bounds; retried."""
        return self.patience.ask(lambda: self.inner.bounds(topic))

    def bounds_all(self, topics: Sequence[Topic]) -> Mapping[Topic, tuple[Offset, Offset]]:
        """Return the bounds; retried."""
        return self.patience.ask(lambda: self.inner.bounds_all(topics))

    def is_bare(self, topic: Topic, start: Offset) -> bool:
        """As the inner log; retried."""
        return self.patience.ask(lambda: self.inner.is_bare(topic, start))

    def tail(self, starts: Mapping[Topic, Offset]) -> Tail:
        """Open a tail; retried. The tail itself waits for brokers."""
        return self.patience.ask(lambda: self.inner.tail(starts))

    def truncate(self, topic: Topic, before: Offset) -> None:
        """Delete; retried."""
        self.patience.ask(lambda: self.inner.truncate(topic, before))


@dataclass(frozen=True, slots=True)
class PatientChunks:
    """Chunks whose calls are retried until a broker answers."""

    inner: Chunks
    patience: RetryLimits

    def write(
        self, topic: Topic, bodies: Sequence[tuple[bytes, int]], headers: Mapping[str, bytes]
    ) -> tuple[ChunkRef, ...]:
        """Write bodies; retried also when it is not known whether they were written.

        Errors: Determinate, since no log links what a failed write leaves behind.
        """
        return self.write_all([ChunkWrite(topic, bodies, headers)])[0]

    def write_all(self, wanted: Sequence[ChunkWrite]) -> list[tuple[ChunkRef, ...]]:
        """As `write`, for many topics."""
        try:
            return self.patience.ask(lambda: self.inner.write_all(wanted), _IN_DOUBT)
        except Indeterminate as doubt:
            raise Unanswered(f"no chunk was linked: {doubt}") from doubt

    def fetch(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        """Return the bodies; retried."""
        return self.patience.ask(lambda: self.inner.fetch(topic, refs))

    def fetch_all(
        self, wanted: Mapping[Topic, Sequence[ChunkRef]]
    ) -> Mapping[Topic, list[bytes]]:
        """Return the bodies; retried."""
        return self.patience.ask(lambda: self.inner.fetch_all(wanted))

    def fetch_committed(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[ChunkRecord]:
        """Return the records; retried."""
        return self.patience.ask(lambda: self.inner.fetch_committed(topic, refs))

    def forget(self, topic: Topic, refs: Sequence[ChunkRef]) -> None:
        """Write tombstones; retried, since a second tombstone does no harm."""
        self.patience.ask(lambda: self.inner.forget(topic, refs), _IN_DOUBT)


@dataclass(frozen=True, slots=True)
class PatientTopics:
    """Topics whose calls are retried until a broker answers; all of them are idempotent."""

    inner: Topics
    patience: RetryLimits

    def create(self, specs: Sequence[TopicSpec]) -> None:
        """Create topics; retried."""
        self.patience.ask(lambda: self.inner.create(specs), _IN_DOUBT)

    def grow(self, topic: Topic, partitions: int) -> None:
        """Add partitions; retried."""
        self.patience.ask(lambda: self.inner.grow(topic, partitions), _IN_DOUBT)

    def delete(self, topics: Sequence[Topic]) -> None:
        """Delete; retried."""
        self.patience.ask(lambda: self.inner.delete(topics), _IN_DOUBT)

    def describe(self, topic: Topic) -> TopicInfo | None:
        """Describe a topic; retried."""
        return self.patience.ask(lambda: self.inner.describe(topic))

    def describe_all(self, topics: Sequence[Topic]) -> Mapping[Topic, TopicInfo]:
        """Describe topics; retried."""
        return self.patience.ask(lambda: self.inner.describe_all(topics))

    def names(self) -> frozenset[Topic]:
        """Return the names of all topics; retried."""
        return self.patience.ask(self.inner.names)

    def ends(self, topic: Topic) -> Mapping[int, OffsetRange]:
        """Return the readable range of each partition; retried."""
        return self.patience.ask(lambda: self.inner.ends(topic))

    def at_time(self, topic: Topic, ms: int) -> Mapping[int, Offset]:
        """Return the first offsets at a time or later; retried."""
        return self.patience.ask(lambda: self.inner.at_time(topic, ms))
