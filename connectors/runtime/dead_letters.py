"""Isolates the documents that an endpoint refuses, and sends them to a dead-letter topic.

A refused transaction is written in steps, each of which is committed with its progress in the
checkpoint:

    1. the bindings without dead letters, up to the transaction's end
    2. rows of the other bindings, by number: a refused range is bisected, an accepted range is
       never written again
    3. a row that is refused alone is a dead letter. It is first written to the topic; then a
       step skips it and records its key (`connectors.runtime.dead_letter_keys`)

Each refused attempt costs a session; one bad row of n is found in about log2 n attempts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from connectors.connector import Refused
from connectors.runtime.checkpoints import CHECKPOINT
from connectors.runtime.dead_letter_keys import LeftOut
from connectors.runtime.session import Step, TaskSession, encoded
from connectors.runtime.task import Materialization
from connectors.runtime.transactions import Part, Transaction, Written
from connectors.transport.errors import causes, is_known
from streams.errors import InvalidUsage, SlackwaterError

TRIES = 5
"""Failures of a connector that does not say of what, until they count as a refusal."""


class TooManyRefused(InvalidUsage):
    """More documents are refused than may be left out; the text says why the last one is."""


class DeadLetterWriter(Protocol):
    """The destination of dead letters."""

    def write(self, topic: str, key: bytes, value: bytes) -> None:
        """Return once a letter is the last of its key; one that is already is not repeated.

        Errors: Determinate, Indeterminate.
        """


@dataclass(slots=True)
class Bisection:
    """Finds refused rows by halving. Pure. Rows before `written`, of `total`, are decided."""

    total: int
    written: int = 0
    window: int | None = None
    """One of this many rows after `written` is refused; None: not known."""

    @property
    def size(self) -> int:
        """The number of rows to try next."""
        if self.window is None:
            return self.total - self.written
        return (self.window + 1) // 2

    def accepted(self) -> None:
        """They were taken."""
        size = self.size
        self.written += size
        if self.window is not None:
            self.window = self.window - size or None

    def refused(self) -> bool:
        """They were not; return whether a single row is found, which is left out then."""
        if self.size > 1:
            self.window = self.size
            return False
        self.written += 1
        self.window = None
        return True


@dataclass(frozen=True, slots=True)
class RowRange:
    """Some rows of a part, by number from `begin` to before `end`."""

    part: Written
    begin: int
    end: int

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.end - self.begin

    def pieces(self) -> Iterator[Part]:
        """Implements `Part.pieces`."""
        first = 0
        for piece in self.part.pieces():
            begin, end = max(self.begin - first, 0), min(self.end - first, piece.count)
            if begin < end:
                yield piece.between(begin, end)
            first += piece.count


class Refusals:
    """The refusals that a runner remembers from session to session. Single-threaded."""

    def __init__(
        self,
        task: Materialization,
        letters: DeadLetterWriter | None,
        crash: Callable[[str], None],
    ) -> None:
        self._task, self._letters, self._crash = task, letters, crash
        self._topics = {
            number: binding.dead_letters
            for number, binding in enumerate(task.bindings)
            if binding.dead_letters is not None
        }
        if self._topics and letters is None:
            raise InvalidUsage("dead_letters: there are no brokers to write them to")
        self._is_met = False
        self._search: Bisection | None = None
        self._left_out: list[LeftOut] = []
        self._step: tuple[Transaction, int] | None = None
        """The transaction that is written in steps, and where the step begins."""
        self._failures = 0
        self._told: dict[str, str] = {}
        self.is_handled = False
        """Whether the last failure was a refusal, so that the next session starts at once."""
        self.letters: dict[str, int] = {}
        """The number of letters written, by the binding's place."""

    def is_careful(self, session: TaskSession) -> bool:
        """Whether the next transaction is written in steps."""
        return self._is_met or session.written is not None

    def steps(self, session: TaskSession, transaction: Transaction) -> Iterator[Step]:
        """The steps of a transaction; each is taken once the one before is committed."""
        places = list(session.optional) or sorted(
            session.places[number]
            for number in self._topics
            if transaction.parts[number] is not None
        )
        numbers = [session.places.index(place) for place in places]
        self._step = None
        if not numbers:
            yield Step(transaction)
            return
        if session.written is None:
            self._search, self._left_out = None, []
            required = [
                None if number in numbers else part
                for number, part in enumerate(transaction.parts)
            ]
            session.optional = places
            yield Step(at(session, transaction, required, numbers), transaction, 0)
        search = self._resumed(session, rows_of(transaction, numbers))
        while True:
            begin, end = search.written, search.written + search.size
            self._step = transaction, begin
            parts = ranges(transaction, numbers, begin, end)
            left_out = tuple(self._left_out)
            if end == search.total:
                final = replace(transaction, parts=tuple(parts))
                yield Step(final, left_out=left_out)
                break
            step = at(session, transaction, parts, numbers)
            yield Step(step, transaction, end, left_out)
            search.accepted()
            self._left_out, self._failures = [], 0
        self._is_met, self._search, self._left_out, self._step = False, None, [], None

    def _resumed(self, session: TaskSession, total: int) -> Bisection:
        """The remembered search, if the endpoint is still at its checkpoint.

        Errors: InvalidUsage if that says that more is decided than there is.
        """
        written = session.written or 0
        if written > total:
            raise InvalidUsage(
                f"{CHECKPOINT}: transaction on its way: expected at most {total} rows decided,"
                f" actual {written}"
            )
        left_out = [row for row in self._left_out if row.row >= written]
        decided = written + len(left_out)
        if self._search is None or self._search.written != decided:
            self._search, left_out = Bisection(total, written), []
        self._left_out = left_out
        return self._search

    def failed(
        self, error: SlackwaterError, session: TaskSession, transaction: Transaction
    ) -> None:
        """A transaction or a step of it was not committed.

        Errors: TooManyRefused; Determinate, Indeterminate if a letter cannot be written.
        """
        if self._search is None or self._step is None:
            numbers = [
                number for number in self._topics if transaction.parts[number] is not None
            ]
            can_help = bool(numbers) and not self._is_met
            self.is_handled = can_help and self._is_refusal(error, is_alone=True)
            self._is_met = self._is_met or self.is_handled
            return
        size = self._search.size
        if not size or not self._is_refusal(error, is_alone=size == 1):
            return
        if self._search.refused():
            self._leave_out(error, session, *self._step)
        self.is_handled = True

    def _is_refusal(self, error: SlackwaterError, *, is_alone: bool) -> bool:
        if any(isinstance(cause, Refused) for cause in causes(error)):
            return True
        if is_known(error):
            return False
        self._failures += 1
        if is_alone and self._failures < TRIES:
            return False
        self._failures = 0
        return True

    def _leave_out(
        self, error: SlackwaterError, session: TaskSession, transaction: Transaction, row: int
    ) -> None:
        numbers = [session.places.index(place) for place in session.optional]
        parts = ranges(transaction, numbers, row, row + 1)
        number, piece = next(
            (number, piece)
            for number, part in enumerate(parts)
            for piece in (part.pieces() if part is not None else ())
        )
        most, topic = self._task.limits.dead_letters, self._topics.get(number)
        written = sum(self.letters.values())
        if topic is None or max(written, len(session.dead) + len(self._left_out)) >= most:
            reason = "no dead letters" if topic is None else f"{most} are left out already"
            raise TooManyRefused(f"{session.places[number]}: {reason}: {error}") from error
        self._crash("before-letter")
        self._write(topic, session.places[number], *session.letter(number, piece, str(error)))
        self._crash("after-letter")
        patched = session.dead.patched(number, piece)
        exists = bool(patched.count and patched.exists[0])
        key = int(session.dead.hashes(number, piece)[0])
        self._left_out.append(LeftOut(row=row, binding=number, key=key, exists=exists))

    def stalled(self, session: TaskSession, stalls: Mapping[str, str]) -> None:
        """Log bindings that stand still, once for each reason.

        Errors: as `DeadLetterWriter`.
        """
        for number, topic in self._topics.items():
            place = session.places[number]
            self.letters.setdefault(place, 0)
            reason = stalls.get(place, "")
            if self._told.get(place, "") != reason:
                if reason:
                    key = {"task": self._task.task, "place": place}
                    value = {**key, "op": "stall", "error": reason}
                    self._write(topic, place, encoded(key), encoded(value))
                self._told[place] = reason

    def _write(self, topic: str, place: str, key: bytes, value: bytes) -> None:
        assert self._letters is not None, "it was checked"
        self._letters.write(topic, key, value)
        self.letters[place] = self.letters.get(place, 0) + 1


def at(
    session: TaskSession,
    transaction: Transaction,
    parts: Sequence[Written | None],
    numbers: Sequence[int],
) -> Transaction:
    """Some parts of a transaction; the numbered bindings stay where they are."""
    positions = [
        before if number in numbers else after
        for number, (before, after) in enumerate(
            zip(session.committed, transaction.positions, strict=True)
        )
    ]
    return replace(transaction, parts=tuple(parts), positions=tuple(positions))


def rows_of(transaction: Transaction, numbers: Sequence[int]) -> int:
    """The number of rows that the numbered bindings write."""
    parts = (transaction.parts[number] for number in numbers)
    return sum(part.count for part in parts if part is not None)


def ranges(
    transaction: Transaction, numbers: Sequence[int], begin: int, end: int
) -> list[Written | None]:
    """For each binding, its part of a range of the numbered bindings' rows."""
    parts: list[Written | None] = [None] * len(transaction.parts)
    first = 0
    for number in numbers:
        part = transaction.parts[number]
        count = part.count if part is not None else 0
        low, high = max(begin - first, 0), min(end - first, count)
        if part is not None and low < high:
            parts[number] = RowRange(part, low, high)
        first += count
    return parts
