"""Deduplication of commands: the fold of the response topic. Pure.

Each response names the record of the command topic that it answers, and the command's id. Every
record is answered, and none begins that lies `SPAN` offsets beyond one that is not. So all
records more than `SPAN` before the newest answer are answered.

    a fresh id                  the command is executed
    a known id, same bytes      a copy: its outcome is in the topic already       REPEATED
    a known id, other bytes     a client error                                    MALFORMED
    no command at all                                                             MALFORMED

Ids are remembered for at least `REMEMBERED` records; an id that is used again after that names
a new command.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas import codec
from streams.errors import Corrupt
from streams.ids import CollectionId, Offset
from streams.storage.commands.wire import (
    AcquireCapabilities,
    Command,
    Create,
    Downgrade,
    Drop,
    Malformed,
    Outcome,
    Request,
    Stage,
    Status,
    SubscribeAt,
    UpdateAndDowngrade,
)

REMEMBERED = 1 << 16
"""Records for which a command's id is remembered."""

BLOCK = 1 << 12

SPAN = 1 << 12
"""How many offsets a waiting command may be overtaken by."""

NOTHING = Offset(0)


class AnsweredRecord(NamedTuple):
    """The record at `offset` was answered; `command` is empty if the record was no command.

    `origin` is the id of the topic that the record lies in.
    """

    command: str
    origin: str
    offset: Offset
    checksum: int


def read_answer(value: bytes) -> AnsweredRecord:
    """Return what a response answers. Errors: Corrupt."""
    name, record = codec.decode(value)
    if name != "command_response":
        raise Corrupt(f"expected a response to a command, actual a record of {name}")
    return AnsweredRecord(
        record["command"], record["origin"], record["offset"], record["checksum"]
    )


@dataclass(frozen=True, slots=True)
class Ledger:
    """The fold: records of topic `origin` before `position`, and `recent` ones, are answered.

    A command topic that was deleted and created again starts again at offset 0; the ids of the
    former one are remembered. If responses were deleted, all records before the first remaining
    one count as answered: `floor` is its offset.
    """

    origin: str
    floor: Offset = NOTHING
    end: Offset = NOTHING
    recent: frozenset[Offset] = frozenset()
    blocks: tuple[dict[str, int], ...] = ()
    newest: dict[str, int] = field(default_factory=dict)

    @property
    def position(self) -> Offset:
        """The offset before which every record was answered."""
        return Offset(max(self.floor, self.end - SPAN))

    def is_answered(self, offset: Offset) -> bool:
        """Whether the record at this offset was answered."""
        return offset < self.position or offset in self.recent

    def answered(self, answers: Iterable[AnsweredRecord]) -> "Ledger":
        """Return the ledger after more answers."""
        newest, blocks = dict(self.newest), self.blocks
        here: list[Offset] = []
        for answer in answers:
            if answer.origin == self.origin:
                here.append(answer.offset)
            if answer.command:
                newest[answer.command] = answer.checksum
            if len(newest) >= BLOCK:
                blocks, newest = (*blocks[-(REMEMBERED // BLOCK) :], newest), {}
        end = Offset(max([self.end, *(offset + 1 for offset in here)]))
        recent = frozenset(offset for offset in (*self.recent, *here) if offset >= end - SPAN)
        return Ledger(self.origin, self.floor, end, recent, blocks, newest)

    def is_overtaken(self, newest: AnsweredRecord) -> bool:
        """Whether another service has answered a record that is unanswered here."""
        return newest.origin == self.origin and not self.is_answered(newest.offset)

    def find(self, command: str) -> int | None:
        """Return the checksum of the command that was answered under this id."""
        for block in (self.newest, *reversed(self.blocks)):
            if command in block:
                return block[command]
        return None


@dataclass(frozen=True, slots=True)
class Report:
    """A record that is not executed, and the response to it, to command `id` if it is one."""

    offset: Offset
    checksum: int
    outcome: Outcome
    id: str = ""


Sorted = Request | Report


def sort(ledger: Ledger, records: Sequence[Request | Report]) -> list[Sorted]:
    """Classify records in their order: to execute, or to report."""
    fresh: dict[str, int] = {}
    done: list[Sorted] = []
    for record in records:
        if record.id:
            checksum = ledger.find(record.id)
            checksum = fresh.get(record.id) if checksum is None else checksum
            fresh.setdefault(record.id, record.checksum)
            done.append(record if checksum is None else duplicate_report(record, checksum))
        else:
            done.append(record)
    return done


def duplicate_report(request: Request | Report, checksum: int) -> Report:
    """Return the report for an id that was used before."""
    if checksum == request.checksum:
        outcome = Outcome(status=Status.REPEATED)
    else:
        outcome = Outcome(
            status=Status.MALFORMED,
            code="ReusedId",
            message=f"command id {request.id} was used for another command",
        )
    return Report(request.offset, request.checksum, outcome)


def malformed(offset: Offset, checksum: int, problem: Malformed) -> Report:
    """Return the report for a record that is no command."""
    outcome = Outcome(status=Status.MALFORMED, code="Malformed", message=str(problem))
    return Report(offset, checksum, outcome)


def subjects(command: Command) -> frozenset[CollectionId]:
    """Return the collections of a command."""
    match command:
        case Create() | AcquireCapabilities() | Drop():
            return frozenset({command.collection})
        case UpdateAndDowngrade(shares):
            return frozenset(share.capability.id for share in shares)
        case _:
            return frozenset({command.capability.id})


def decides(command: Command) -> bool:
    """Whether later commands may be refused because of this one, or this one by others."""
    match command:
        case Create() | Drop():
            return True
        case UpdateAndDowngrade(shares, checks_counts):
            return checks_counts or any(share.new_frontier.is_empty for share in shares)
        case Downgrade():
            return command.new_frontier.is_empty
        case _:
            return False


def may_wait(command: Command) -> bool:
    """Whether a command may wait, for brokers or for a computation, before it has an effect.

    Other commands may too, if they are refused or are about a group that is not followed yet:
    then they are set aside (`streams.storage.commands.executor`).
    """
    match command:
        case Create() | SubscribeAt() | Stage():
            return True
        case UpdateAndDowngrade(shares, checks_counts):
            return checks_counts or any(share.chunks for share in shares)
        case _:
            return False
