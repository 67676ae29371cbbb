"""Faults on demand: a Logs and a Chunks that fail before, after and instead of answering."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto

from streams.errors import Determinate, Indeterminate
from streams.ids import Offset, Topic
from streams.kafka.log import ChunkRef, Chunks, ChunkWrite, Logs, Tail


class Fault(Enum):
    NONE = auto()
    BEFORE = auto()  # nothing is written, and the caller is told so
    AFTER = auto()  # written, but the answer is lost
    INSTEAD = auto()  # not written, and the caller cannot know; may surface later


class FaultyLogs:
    """Takes one fault of `plan` for each append; passes on what comes after the plan's end.

    Appends that failed INSTEAD wait in `pending` until `surface` writes them: a produce that
    shows up late.
    """

    def __init__(self, inner: Logs, plan: Iterable[Fault] = ()) -> None:
        self.inner = inner
        self.pending: list[Sequence[tuple[Topic, bytes]]] = []
        self._plan: Iterator[Fault] = iter(plan)

    def append(self, records: Sequence[tuple[Topic, bytes]]) -> tuple[Offset, ...]:
        fault = next(self._plan, Fault.NONE)
        if fault is Fault.BEFORE:
            raise Determinate("injected before the append")
        if fault is Fault.INSTEAD:
            self.pending.append(tuple(records))
            raise Indeterminate("injected instead of the append")
        offsets = self.inner.append(records)
        if fault is Fault.AFTER:
            raise Indeterminate("injected after the append")
        return offsets

    def surface(self) -> None:
        pending, self.pending = self.pending, []
        for records in pending:
            self.inner.append(records)

    def bounds(self, topic: Topic) -> tuple[Offset, Offset]:
        return self.inner.bounds(topic)

    def tail(self, starts: Mapping[Topic, Offset]) -> Tail:
        return self.inner.tail(starts)

    def truncate(self, topic: Topic, before: Offset) -> None:
        self.inner.truncate(topic, before)


class FaultyChunks:
    """The same for chunk writes. A write that fails AFTER leaves orphans behind."""

    def __init__(self, inner: Chunks, plan: Iterable[Fault] = ()) -> None:
        self.inner = inner
        self._plan: Iterator[Fault] = iter(plan)

    def write(
        self, topic: Topic, bodies: Sequence[tuple[bytes, int]], headers: Mapping[str, bytes]
    ) -> tuple[ChunkRef, ...]:
        fault = next(self._plan, Fault.NONE)
        if fault is Fault.BEFORE:
            raise Determinate("injected before the write")
        if fault is Fault.INSTEAD:
            raise Indeterminate("injected instead of the write")
        refs = self.inner.write(topic, bodies, headers)
        if fault is Fault.AFTER:
            raise Indeterminate("injected after the write")
        return refs

    def write_all(self, wanted: Sequence[ChunkWrite]) -> list[tuple[ChunkRef, ...]]:
        return [self.write(*each) for each in wanted]

    def fetch(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        return self.inner.fetch(topic, refs)

    def forget(self, topic: Topic, refs: Sequence[ChunkRef]) -> None:
        self.inner.forget(topic, refs)
