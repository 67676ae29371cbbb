"""Crash marks: records which commands were running when a service process died.

A command may kill the process that executes it: by a fault in native code, by exhausting
memory, by a bug. No handler runs then, and the next process reads the same command first. So
before records are taken, a mark stores the range of offsets that are taken and not answered. A
service that finds a mark knows that its predecessor died there: it takes the unanswered records
of the range one at a time, with nothing else running, and a record at which services died
`ENOUGH` times is not read again but answered as FAILED.

In normal operation a mark is sent while its records are executed, and adds no latency. If
records were waiting at the start, the mark is durable before they are read. Without marks (no
permission for the consumer group, for example) crashes are not counted; nothing else changes.
"""

import logging
import zlib
from collections.abc import Sequence
from typing import Protocol

from streams.errors import SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.client.positions import Mark
from streams.kafka.log import Entry
from streams.storage.commands.dedup import Report
from streams.storage.commands.wire import Outcome, Status, id_of

log = logging.getLogger(__name__)

ENOUGH = 2
"""Number of crashes after which a command is not executed again."""


class Marks(Protocol):
    """Stores one mark of a topic: `streams.kafka.client.positions` and its in-memory twin."""

    def load(self, topic: Topic) -> Mark | None:
        """Return the newest mark."""

    def save(self, topic: Topic, mark: Mark, *, is_waited_for: bool) -> None:
        """Replace the mark; durable on return if waited for."""


class SessionMarks:
    """The marks of one process, which is given the range of its first session."""

    def __init__(self, marks: Marks | None, topic: Topic) -> None:
        self._marks = marks
        self._topic = topic
        self._found: Mark | None = None
        self._backlog = Offset(0)
        self._begun: Mark | None = None

    def start(self, position: Offset, end: Offset) -> None:
        """Record that the process found the unanswered records in `[position, end)`."""
        self._backlog = end
        mark = self._load() if position < end else None
        if mark is not None and mark.hi > position and mark.starts:
            self._found = mark

    def is_suspect(self, offset: Offset) -> bool:
        """Whether a service died at the record at `offset`, perhaps because of it."""
        return self._ends(offset) > 0

    def begin(
        self, entries: Sequence[Entry], unanswered: Offset | None
    ) -> dict[Offset, Report]:
        """Mark that these records begin; return those not to be read, with their responses.

        `unanswered` is the first offset that began before and is not answered.
        """
        first, last = entries[0].offset, entries[-1].offset
        ends = self._ends(first)
        if ends:
            log.warning("services ended at a command", extra={"offset": first, "ends": ends})
        if ends >= ENOUGH:
            self._begun = None
            return {first: crash_report(entries[0], ends)}
        lo = first if unanswered is None else min(first, unanswered)
        self.go_on(lo, last)
        return {}

    def go_on(self, first: Offset, last: Offset) -> None:
        """Mark records that begin again after a release, unless they are marked."""
        begun = Mark(first, Offset(last + 1), self._ends(first) + 1)
        if self._begun is None or begun.hi > self._begun.hi:
            self._begun = begun
            self._save(begun, is_waited_for=first < self._backlog)

    def release(self) -> None:
        """Clear the blame: the service continues, or stops normally, whatever was running."""
        if self._begun is not None:
            lo, hi, starts = self._begun.lo, self._begun.hi, self._begun.starts
            self._save(Mark(lo, hi, starts - 1), is_waited_for=False)
            self._begun = None

    def _ends(self, offset: Offset) -> int:
        mark = self._found
        return mark.starts if mark is not None and mark.lo <= offset < mark.hi else 0

    def _load(self) -> Mark | None:
        try:
            return None if self._marks is None else self._marks.load(self._topic)
        except SlackwaterError as error:
            # crashes are not counted; nothing else depends on marks
            log.warning("cannot read the crash mark", extra={"cause": str(error)})
            return None

    def _save(self, mark: Mark, *, is_waited_for: bool) -> None:
        try:
            if self._marks is not None:
                self._marks.save(self._topic, mark, is_waited_for=is_waited_for)
        except SlackwaterError as error:  # as above
            log.warning("cannot write the crash mark", extra={"cause": str(error)})


def crash_report(entry: Entry, ends: int) -> Report:
    """Return the response to a record at which services died: its body is not decoded."""
    outcome = Outcome(
        status=Status.FAILED,
        code="Crashed",
        message=f"{ends} services ended while the command at offset {entry.offset} was"
        " carried out: it is not retried, and may have taken effect",
    )
    return Report(entry.offset, zlib.crc32(entry.value), outcome, id_of(entry.value))
