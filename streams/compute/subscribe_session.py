"""A replica's subscribes as a pure state machine: commands and frontiers in, deliveries out.

    Subscribe --> WAITING --complete beyond `next`, and not too far ahead--> READING
                     ^                                                          |
                     +---- delivered up to `next`, or interrupted for a pause --+
    CancelSubscribe, an error, the last interval, interrupted too often --> ended

An iteration begins without any. What was on the topic before this replica started is passed
over: the controller sends it again. A Subscribe that is open already, or an acknowledgement,
moves `next` forward: what another replica delivered need not be read. One that has ended begins
again only behind where it ended; one that was interrupted, where it was.

Times are seconds of a monotonic clock.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from streams.compute.peek_session import TargetBounds
from streams.compute.protocol import Command, CreateTimely, InitializationComplete
from streams.compute.subscribes import (
    AcknowledgeSubscribe,
    CancelSubscribe,
    DroppedAt,
    Subscribe,
    SubscribeBatch,
    SubscribeError,
    SubscribeInterrupted,
    SubscribeOutcome,
    SubscribeResponse,
)
from streams.ids import Timestamp
from streams.progress import END, Antichain, end_of
from streams.storage.log.persistent_map import Map

MOST_SENT = 1000
"""Responses to a subscribe that are not acknowledged, however small they are."""

MOST_ATTEMPTS = 6
"""Number of attempts in a row to read the same; then the controller hears of it."""

FIRST_PAUSE_S = 0.25
"""The pause before the second attempt; each later one is twice as long."""


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """Action: read from `lower` on, and tell `finished`.

    With `is_snapshot` the contents at `lower` are wanted. About `allowance` bytes may be
    delivered.
    """

    nonce: str
    subscribe: Subscribe
    lower: Timestamp
    is_snapshot: bool
    allowance: int


@dataclass(frozen=True, slots=True)
class AnswerSubscribe:
    """Action: write this response to the iteration."""

    nonce: str
    response: SubscribeResponse


SubscribeAction = ReadChanges | AnswerSubscribe


@dataclass(frozen=True, slots=True)
class Delivering:
    """A subscribe that is open: all before `next` was delivered, here or by another replica.

    `sent` has the upper and the bytes of what was not acknowledged yet. `failures` counts the
    reads from `next` on that were interrupted; the next one begins at `retry_at`.
    """

    subscribe: Subscribe
    next: Timestamp
    sent: tuple[tuple[Timestamp, int], ...] = ()
    is_reading: bool = False
    failures: int = 0
    retry_at: float = 0.0

    @property
    def is_snapshot(self) -> bool:
        """Whether the contents at the as_of are what comes next."""
        return self.subscribe.snapshot and self.next == self.subscribe.as_of

    @property
    def unacknowledged(self) -> int:
        """Return the bytes that were delivered and not acknowledged."""
        return sum(size for _, size in self.sent)

    def acknowledged(self, upper: Timestamp) -> "Delivering":
        """Return the state when all before upper has been taken."""
        sent = tuple((end, size) for end, size in self.sent if end > upper)
        return replace(self.moved(max(self.next, upper)), sent=sent)

    def delivered(self, batch: SubscribeBatch) -> "Delivering":
        """Return the state after an interval."""
        end = end_of(batch.upper)
        return replace(self.moved(end), sent=(*self.sent, (end, len(batch.updates))))

    def moved(self, to: Timestamp) -> "Delivering":
        """Return the state with another position, of which no read has failed."""
        if to == self.next:
            return self
        return replace(self, next=to, failures=0, retry_at=0.0)

    def interrupted(self, now: float) -> "Delivering":
        """Return the state after one more read that failed."""
        pause = FIRST_PAUSE_S * 2**self.failures
        return replace(self, failures=self.failures + 1, retry_at=now + pause)


@dataclass(frozen=True, slots=True)
class SubscribeSession:
    """The subscribes of an iteration: those that are open, and where others ended."""

    replica: str
    nonce: str = ""
    is_initialized: bool = False
    open: Map[str, Delivering] = field(default_factory=Map)
    ended: Map[str, Timestamp] = field(default_factory=Map)
    due: tuple[SubscribeResponse, ...] = ()

    def step(
        self, command: Command, *, is_old: bool = False
    ) -> tuple["SubscribeSession", tuple[SubscribeAction, ...]]:
        """Return the session after a command, and the actions.

        `is_old` says that the command was on the topic before this replica started.
        """
        match command:
            case CreateTimely(nonce):
                return SubscribeSession(self.replica, nonce), ()
            case InitializationComplete():
                answers = tuple(AnswerSubscribe(self.nonce, said) for said in self.due)
                return replace(self, is_initialized=True, due=()), answers
            case Subscribe() if not is_old:
                return self._heard(command), ()
            case AcknowledgeSubscribe(uuid, upper) if uuid in self.open:
                moved = self.open[uuid].acknowledged(upper)
                return replace(self, open=self.open.set(uuid, moved)), ()
            case CancelSubscribe(uuid) if uuid in self.open:
                return self._ended(uuid, DroppedAt(self.open[uuid].next), END)
            case _:
                return self, ()

    def ready(
        self, bounds: Callable[[Subscribe], TargetBounds], most_ahead: int, now: float
    ) -> tuple["SubscribeSession", tuple[SubscribeAction, ...]]:
        """Return the session with all reads begun that can be, and the actions.

        `most_ahead` bytes may be delivered beyond what was acknowledged.
        """
        if not self.is_initialized:
            return self, ()
        session, actions = self, list[SubscribeAction]()
        for delivering in self.open.values():
            allowance = most_ahead - delivering.unacknowledged
            is_ahead = allowance <= 0 or len(delivering.sent) >= MOST_SENT
            if delivering.is_reading or is_ahead or now < delivering.retry_at:
                continue
            target = bounds(delivering.subscribe)
            session, more = session._decided(delivering, target, allowance, now)
            actions += more
        return session, tuple(actions)

    def finished(
        self, read: ReadChanges, outcomes: Sequence[SubscribeOutcome], now: float
    ) -> tuple["SubscribeSession", tuple[SubscribeAction, ...]]:
        """Return the session after a read of contiguous intervals, and what kept it from more.

        What was acknowledged meanwhile is left out.
        """
        uuid = read.subscribe.uuid
        if read.nonce != self.nonce or uuid not in self.open:
            return self, ()
        delivering = replace(self.open[uuid], is_reading=False)
        session = replace(self, open=self.open.set(uuid, delivering))
        actions: list[SubscribeAction] = []
        for outcome in outcomes:
            session, more = session._delivered(uuid, outcome, now)  # noqa: SLF001  its own
            actions += more
        return session, tuple(actions)

    def subscribes(self) -> Iterable[Subscribe]:
        """Return the open subscribes."""
        return (delivering.subscribe for delivering in self.open.values())

    def _heard(self, subscribe: Subscribe) -> "SubscribeSession":
        uuid, first = subscribe.uuid, subscribe.first
        if subscribe.replica not in {"", self.replica}:
            return self
        if uuid in self.open:
            moved = self.open[uuid].acknowledged(first)
        elif uuid in self.ended and first <= self.ended[uuid]:
            return self
        else:
            moved = Delivering(subscribe, first)
        return replace(self, open=self.open.set(uuid, moved), ended=self.ended.remove(uuid))

    def _decided(
        self, delivering: Delivering, bounds: TargetBounds, allowance: int, now: float
    ) -> tuple["SubscribeSession", tuple[SubscribeAction, ...]]:
        subscribe, lower = delivering.subscribe, delivering.next
        exact_at = lower if delivering.is_snapshot else Timestamp(lower - 1)
        if bounds.problem:
            of = SubscribeInterrupted if bounds.may_pass else SubscribeError
            return self._delivered(subscribe.uuid, of(lower, bounds.problem), now)
        since, upper = bounds.since, bounds.upper
        if since is None or upper is None:
            return self, ()
        if not since.less_equal(exact_at):
            why = SubscribeError(lower, _unreadable(subscribe, lower, since))
            return self._delivered(subscribe.uuid, why, now)
        if upper.less_equal(lower):
            return self, ()
        reading = replace(delivering, is_reading=True)
        read = ReadChanges(self.nonce, subscribe, lower, delivering.is_snapshot, allowance)
        return replace(self, open=self.open.set(subscribe.uuid, reading)), (read,)

    def _delivered(
        self, uuid: str, outcome: SubscribeOutcome, now: float
    ) -> tuple["SubscribeSession", tuple[SubscribeAction, ...]]:
        delivering = self.open.get(uuid)
        if delivering is None or _is_past(outcome, delivering.next):
            return self, ()
        match outcome:
            case SubscribeBatch(_, upper) if upper.is_empty:
                return self._ended(uuid, outcome, END)
            case SubscribeBatch():
                moved = self.open.set(uuid, delivering.delivered(outcome))
                response = SubscribeResponse(uuid, outcome)
                return replace(self, open=moved), (AnswerSubscribe(self.nonce, response),)
            case SubscribeInterrupted() if delivering.failures + 1 < MOST_ATTEMPTS:
                waiting = self.open.set(uuid, delivering.interrupted(now))
                return replace(self, open=waiting), ()
            case SubscribeInterrupted(lower):
                return self._ended(uuid, outcome, Timestamp(lower - 1))
            case _:
                return self._ended(uuid, outcome, outcome.lower)

    def _ended(
        self, uuid: str, outcome: SubscribeOutcome, at: Timestamp
    ) -> tuple["SubscribeSession", tuple[SubscribeAction, ...]]:
        """Close an open subscribe with its last response."""
        closed = replace(self, open=self.open.remove(uuid), ended=self.ended.set(uuid, at))
        response = SubscribeResponse(uuid, outcome)
        if not self.is_initialized:
            return replace(closed, due=(*self.due, response)), ()
        return closed, (AnswerSubscribe(self.nonce, response),)


def _is_past(outcome: SubscribeOutcome, position: Timestamp) -> bool:
    """Whether an outcome is about what was delivered already."""
    if isinstance(outcome, SubscribeBatch):
        return end_of(outcome.upper) <= position
    return outcome.lower < position


def _unreadable(subscribe: Subscribe, lower: Timestamp, since: Antichain) -> str:
    why = (
        "it was dropped"
        if since.is_empty
        else f"its history before {since.time} has been compacted"
    )
    return f"{subscribe.collection} cannot be read from {lower} on: {why}"
