"""Fault injection: logs and chunks that fail before, after or instead of a write.

Reproduces what a network, a broker or the death of a process can do to a write. The wrappers
take one `Fault` of a plan for each write; tests give the plan, the soak command draws it from a
seed. A caller that follows rule 1 only sees that the write took longer.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto

from streams.errors import Determinate, Indeterminate
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
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.topics import Topics


class Fault(Enum):
    """The fault of one write."""

    NONE = auto()
    BEFORE = auto()
    """Nothing is written, and the caller gets Determinate."""
    AFTER = auto()
    """Written, but the answer is lost."""
    INSTEAD = auto()
    """Not written, and the caller gets Indeterminate. A log's record may appear later."""
    TWICE = auto()
    """Written twice, and the answer is lost: a retry whose first attempt succeeded."""
    PARTLY = auto()
    """The first record is written, the rest is not, and the caller gets Indeterminate."""


UNKNOWN = frozenset({Fault.AFTER, Fault.INSTEAD, Fault.TWICE, Fault.PARTLY})
"""The faults after which the caller does not know whether the write had an effect."""

Records = Sequence[tuple[Topic, bytes]]


class FaultyLogs:
    """Takes one fault of `plan` for each append; passes appends on after the plan's end.

    Appends that failed INSTEAD wait in `pending` until `surface` writes them: a late produce.
    While `silent` is set no call is answered. Appends to logs in `unwritable` are
    Indeterminate.
    """

    def __init__(self, inner: Logs, plan: Iterable[Fault] = ()) -> None:
        self.inner = inner
        self.pending: list[Records] = []
        self.silent = False
        self.unwritable: set[Topic] = set()
        self._plan: Iterator[Fault] = iter(plan)

    def plan(self, faults: Iterable[Fault]) -> None:
        """The faults of the next appends."""
        self._plan = iter(faults)

    def append(self, records: Records) -> tuple[Offset, ...]:
        """Append, or fail as planned."""
        fault = Fault.INSTEAD if self.silent else next(self._plan, Fault.NONE)
        if fault is Fault.BEFORE:
            raise Determinate("injected before the append")
        if fault is Fault.INSTEAD:
            self.pending.append(tuple(records))
            raise Indeterminate("injected instead of the append")
        if fault is Fault.PARTLY:
            self.inner.append(records[:1])
            raise Indeterminate("injected after a part of the append")
        offsets = self.inner.append(records)
        if fault is Fault.TWICE:
            self.inner.append(records)
        if fault is not Fault.NONE:
            raise Indeterminate("injected after the append")
        return offsets

    def append_each(self, records: Records, stragglers_ms: int) -> tuple[Stored, ...]:
        """Append, or fail as planned, with the same fault for all logs."""
        there = [record for record in records if record[0] not in self.unwritable]
        try:
            offsets = iter(self.append(there) if there else ())
        except (Determinate, Indeterminate) as failure:
            return (failure,) * len(records)
        doubt = Indeterminate(f"injected: not stored {stragglers_ms} ms after others")
        return tuple(
            doubt if topic in self.unwritable else next(offsets) for topic, _ in records
        )

    def surface(self, most: int | None = None) -> None:
        """Write up to `most` of the pending appends, the oldest first."""
        count = len(self.pending) if most is None else most
        surfaced, self.pending = self.pending[:count], self.pending[count:]
        for records in surfaced:
            self.inner.append(records)

    def bounds(self, topic: Topic) -> tuple[Offset, Offset]:
        """Return the bounds, unless silent."""
        if self.silent:
            raise Unanswered("injected silence")
        return self.inner.bounds(topic)

    def bounds_all(self, topics: Sequence[Topic]) -> Mapping[Topic, tuple[Offset, Offset]]:
        """Return the bounds, unless silent."""
        if self.silent:
            raise Unanswered("injected silence")
        return self.inner.bounds_all(topics)

    def is_bare(self, topic: Topic, start: Offset) -> bool:
        """Pass on."""
        return self.inner.is_bare(topic, start)

    def tail(self, starts: Mapping[Topic, Offset]) -> Tail:
        """Return the inner tail."""
        return self.inner.tail(starts)

    def truncate(self, topic: Topic, before: Offset) -> None:
        """Pass on."""
        self.inner.truncate(topic, before)


class FaultyChunks:
    """The same for chunk writes. A write that fails AFTER leaves orphans behind."""

    def __init__(self, inner: Chunks, plan: Iterable[Fault] = ()) -> None:
        self.inner = inner
        self.silent = False
        self.unwritable: set[Topic] = set()
        self._plan: Iterator[Fault] = iter(plan)

    def plan(self, faults: Iterable[Fault]) -> None:
        """The faults of the next writes."""
        self._plan = iter(faults)

    def write(
        self, topic: Topic, bodies: Sequence[tuple[bytes, int]], headers: Mapping[str, bytes]
    ) -> tuple[ChunkRef, ...]:
        """Write, or fail as planned."""
        is_stuck = self.silent or topic in self.unwritable
        fault = Fault.INSTEAD if is_stuck else next(self._plan, Fault.NONE)
        if fault is Fault.BEFORE:
            raise Determinate("injected before the write")
        if fault is Fault.INSTEAD:
            raise Indeterminate("injected instead of the write")
        refs = self.inner.write(topic, bodies[:1] if fault is Fault.PARTLY else bodies, headers)
        if fault is not Fault.NONE:
            raise Indeterminate("injected after the write")
        return refs

    def write_all(self, wanted: Sequence[ChunkWrite]) -> list[tuple[ChunkRef, ...]]:
        """Like `write`, one after the other: each may fail."""
        return [self.write(*write) for write in wanted]

    def fetch(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        """Return the bodies, unless silent."""
        if self.silent:
            raise Unanswered("injected silence")
        return self.inner.fetch(topic, refs)

    def fetch_all(
        self, wanted: Mapping[Topic, Sequence[ChunkRef]]
    ) -> Mapping[Topic, list[bytes]]:
        """Return the bodies, unless silent."""
        if self.silent:
            raise Unanswered("injected silence")
        return self.inner.fetch_all(wanted)

    def fetch_committed(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[ChunkRecord]:
        """Return the records, unless silent."""
        if self.silent:
            raise Unanswered("injected silence")
        return self.inner.fetch_committed(topic, refs)

    def forget(self, topic: Topic, refs: Sequence[ChunkRef]) -> None:
        """Pass on."""
        self.inner.forget(topic, refs)


class FaultyBroker:
    """One client's access to a broker in memory that several clients share.

    `between` is called before and after each call: there other clients may take their turn, or
    the caller may die.
    """

    def __init__(self, inner: MemoryBroker, between: Callable[[], None] = lambda: None) -> None:
        self.logs = FaultyLogs(_CutLogs(inner.logs, between))
        self.chunks = FaultyChunks(_CutChunks(inner.chunks, between))
        self.topics: Topics = inner.topics


class _CutLogs:
    """Logs with a stop before and after each call. Tails are not wrapped: they only read."""

    def __init__(self, inner: Logs, between: Callable[[], None]) -> None:
        self._inner, self._between = inner, between

    def append(self, records: Records) -> tuple[Offset, ...]:
        self._between()
        offsets = self._inner.append(records)
        self._between()
        return offsets

    def append_each(self, records: Records, stragglers_ms: int) -> tuple[Stored, ...]:
        self._between()
        stored = self._inner.append_each(records, stragglers_ms)
        self._between()
        return stored

    def bounds(self, topic: Topic) -> tuple[Offset, Offset]:
        self._between()
        return self._inner.bounds(topic)

    def bounds_all(self, topics: Sequence[Topic]) -> Mapping[Topic, tuple[Offset, Offset]]:
        self._between()
        return self._inner.bounds_all(topics)

    def is_bare(self, topic: Topic, start: Offset) -> bool:
        return self._inner.is_bare(topic, start)

    def tail(self, starts: Mapping[Topic, Offset]) -> Tail:
        return self._inner.tail(starts)

    def truncate(self, topic: Topic, before: Offset) -> None:
        self._between()
        self._inner.truncate(topic, before)


class _CutChunks:
    """Chunks with a stop before and after each call."""

    def __init__(self, inner: Chunks, between: Callable[[], None]) -> None:
        self._inner, self._between = inner, between

    def write(
        self, topic: Topic, bodies: Sequence[tuple[bytes, int]], headers: Mapping[str, bytes]
    ) -> tuple[ChunkRef, ...]:
        self._between()
        refs = self._inner.write(topic, bodies, headers)
        self._between()
        return refs

    def write_all(self, wanted: Sequence[ChunkWrite]) -> list[tuple[ChunkRef, ...]]:
        """Like `write`, one after the other: each may fail."""
        return [self.write(*write) for write in wanted]

    def fetch(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        self._between()
        return self._inner.fetch(topic, refs)

    def fetch_all(
        self, wanted: Mapping[Topic, Sequence[ChunkRef]]
    ) -> Mapping[Topic, list[bytes]]:
        self._between()
        return self._inner.fetch_all(wanted)

    def fetch_committed(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[ChunkRecord]:
        self._between()
        return self._inner.fetch_committed(topic, refs)

    def forget(self, topic: Topic, refs: Sequence[ChunkRef]) -> None:
        self._between()
        self._inner.forget(topic, refs)
