"""Which commands ended a service: marks that outlive the process.

A command may end the process in which it is carried out: by a fault in native code, by all
memory, by a defect. No handler runs then, and whoever comes next reads the same command first.
So before records are taken, a mark says from where to where some are taken and not answered. A
service that finds one knows that its predecessor ended there: those of these records that are
not answered it takes one at a time, nothing else being under way, and a record at which
services ended `ENOUGH` times is not read again, but answered as FAILED.

In normal running a mark is sent while its records are carried out, and adds nothing to latency.
Where records were waiting at the start it is durable before they are read, so it is not lost
each time. Without marks (no right to a consumer group, say) no end is counted, that is all.
"""

import logging
import zlib
from collections.abc import Sequence
from typing import Protocol

from streams.errors import SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.log import Entry
from streams.kafka.positions import Mark
from streams.storage.commands.ledger import Report
from streams.storage.commands.wire import Outcome, Status, id_of

log = logging.getLogger(__name__)

ENOUGH = 2
"""At so many ends of a service a command is not begun again."""


class Marks(Protocol):
    """Keeps one mark of a topic; `streams.kafka.positions` and its twin in memory."""

    def load(self, topic: Topic) -> Mark | None:
        """The newest mark."""

    def save(self, topic: Topic, mark: Mark, *, is_waited_for: bool) -> None:
        """Replace the mark; durable on return if it is waited for."""


class Careful:
    """The marks of one process. It is told where its first session begins."""

    def __init__(self, marks: Marks | None, topic: Topic) -> None:
        self._marks = marks
        self._topic = topic
        self._found: Mark | None = None
        self._backlog = Offset(0)
        self._begun: Mark | None = None

    def start(self, position: Offset, end: Offset) -> None:
        """The process finds all records unanswered that are, in `[position, end)`."""
        self._backlog = end
        found = self._load() if position < end else None
        if found is not None and found.hi > position and found.starts:
            self._found = found

    def is_suspect(self, offset: Offset) -> bool:
        """Whether a service ended at the record at `offset`, perhaps because of it."""
        return self._ends(offset) > 0

    def begin(
        self, entries: Sequence[Entry], unanswered: Offset | None
    ) -> dict[Offset, Report]:
        """Mark that these are begun; which of them are not to be read, and what is said.

        `unanswered` is the first of those that were begun before and are not answered.
        """
        first, last = entries[0].offset, entries[-1].offset
        ends = self._ends(first)
        if ends:
            log.warning("services ended at a command", extra={"offset": first, "ends": ends})
        if ends >= ENOUGH:
            self._begun = None
            return {first: crashed(entries[0], ends)}
        lo = first if unanswered is None else min(first, unanswered)
        self.go_on(lo, last)
        return {}

    def go_on(self, first: Offset, last: Offset) -> None:
        """Mark what is begun again after a release; passed over when it is marked already."""
        begun = Mark(first, Offset(last + 1), self._ends(first) + 1)
        if self._begun is None or begun.hi > self._begun.hi:
            self._begun = begun
            self._save(begun, is_waited_for=first < self._backlog)

    def release(self) -> None:
        """The service goes on, or ends by itself, and the commands begun are not the cause."""
        if self._begun is not None:
            lo, hi, starts = self._begun.lo, self._begun.hi, self._begun.starts
            self._save(Mark(lo, hi, starts - 1), is_waited_for=False)
            self._begun = None

    def _ends(self, offset: Offset) -> int:
        found = self._found
        return found.starts if found is not None and found.lo <= offset < found.hi else 0

    def _load(self) -> Mark | None:
        try:
            return None if self._marks is None else self._marks.load(self._topic)
        except SlackwaterError as error:  # ends are not counted, and nothing else hangs on it
            log.warning("no mark of commands is read", extra={"cause": str(error)})
            return None

    def _save(self, mark: Mark, *, is_waited_for: bool) -> None:
        try:
            if self._marks is not None:
                self._marks.save(self._topic, mark, is_waited_for=is_waited_for)
        except SlackwaterError as error:  # as above
            log.warning("no mark of commands is kept", extra={"cause": str(error)})


def crashed(entry: Entry, ends: int) -> Report:
    """What is said of a record at which services ended: its body is not looked at."""
    outcome = Outcome(
        status=Status.FAILED,
        code="Crashed",
        message=f"{ends} services ended while the command at offset {entry.offset} was"
        " carried out: it is not tried again, and may have had its effect",
    )
    return Report(entry.offset, zlib.crc32(entry.value), outcome, id_of(entry.value))
