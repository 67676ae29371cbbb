"""Submits events: appends them, reads their outcomes back, and makes each count once.

If a produce failed without effect, the caller retries. If its effect is unknown, the event is
looked for in the log and, if it does not appear, appended again unchanged: copies share an id,
so the log counts one of them (rule 1). A copy that comes back as stale had no effect, and this
process would have read an earlier copy; so the event is sent with a new id.

A log that cannot be written delays only its own events: the call waits for it at most
`STRAGGLERS_MS` after the events of other logs are decided, and less if the log was late before.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from streams.errors import Determinate, Indeterminate, InvalidUsage
from streams.ids import EventId, Offset, Topic
from streams.kafka.log import Logs
from streams.storage.client.follower import GroupFollower
from streams.storage.client.group import Group
from streams.storage.log import event_codec
from streams.storage.log.events import Body, Event
from streams.storage.log.outcomes import Outcome, Stale, Unavailable

RESEND_MS = (250, 500, 1_000, 2_000, 4_000)
"""How long to look for an event whose produce is in doubt, before each copy of it."""


STRAGGLERS_MS = 10_000
"""How long decided events wait for others of the same call: leaders change faster."""

MOST_OF_A_GROUP = 512
"""Events of one group that are appended together: their outcomes are all remembered."""

LONGEST_S = 60.0
"""How long an event in doubt is retried, as long as brokers answer."""

LATE_AGAIN_MS = 500
"""The same for a log that was late at the last attempt."""


class Unread(Indeterminate):
    """The group has failed, so its log cannot be read to see whether the event counted."""


Failure = Determinate | Indeterminate


def worst_failure(failures: Mapping[EventId, Failure]) -> Failure:
    """Return the error for events none of which is known to be stored."""
    doubts = (failure for failure in failures.values() if isinstance(failure, Indeterminate))
    return next(doubts, next(iter(failures.values())))


def unread_error(reason: str) -> Unread:
    """Return the error for an event of a failed group; the event may have counted."""
    return Unread(f"the event's outcome cannot be read: {reason}")


@dataclass(frozen=True, slots=True)
class Attempt:
    """An event with a given name, whose writer had folded the log up to `seen`."""

    group: str
    body: Body
    id: EventId
    seen: Offset


@dataclass(frozen=True, slots=True)
class InFlightEvent:
    """An event that was sent to its group and is not known to be decided."""

    group: Group
    event: Event


@dataclass(frozen=True, slots=True)
class Submitter:
    """Appends to the logs of followed groups."""

    logs: Logs
    following: GroupFollower
    new_id: Callable[[], str]
    resend_ms: tuple[int, ...] = RESEND_MS
    late: set[Topic] = field(default_factory=set)

    def submit(self, events: Sequence[tuple[str, Body]]) -> list[Outcome]:
        """Append events with one flush; return the outcome of each.

        Errors: as `Shards.submit`.
        """
        outcomes: dict[int, Outcome] = {}
        open_ = dict(enumerate(events))
        while open_:
            next_ = bounded(open_)
            sent = [self._make(*open_[number]) for number in next_]
            for number, outcome in zip(next_, self._send(sent), strict=True):
                # a stale copy had no effect, and this client would have read an earlier one
                if not isinstance(outcome, Stale):
                    outcomes[number] = outcome
                    del open_[number]
        return [outcomes[number] for number in range(len(events))]

    def attempt(self, attempts: Sequence[Attempt]) -> list[Outcome]:
        """Like `submit`, for events with given ids: a stale one is `Stale`, not re-sent.

        An event that stays in doubt although brokers answer is `Unavailable`.
        """
        sent = [
            InFlightEvent(group, Event(attempt.id, group.uuid, attempt.seen, attempt.body))
            for attempt in attempts
            for group in (self._group(attempt.group),)
        ]
        return self._send(sent, is_each=True)

    def _make(self, name: str, body: Body) -> InFlightEvent:
        group = self._group(name)
        return InFlightEvent(
            group, Event(EventId(self.new_id()), group.uuid, group.state.upto, body)
        )

    def _group(self, name: str) -> Group:
        group = self.following.groups.get(name)
        if group is None:
            raise InvalidUsage(f"group {name} is not open")
        return group

    def _send(self, sent: Sequence[InFlightEvent], *, is_each: bool = False) -> list[Outcome]:
        ids = [submission.event.id for submission in sent]
        self.following.expect(
            [(submission.group.names.group, submission.event) for submission in sent]
        )
        try:
            failures = self._append(sent)
            if len(failures) == len(sent):
                failure = worst_failure(failures)
                is_answered = not self.following.is_silence()
                if not (is_each and is_answered and isinstance(failure, Indeterminate)):
                    raise failure
            stored = [submission for submission in sent if submission.event.id not in failures]
            self.following.await_answered(self._all_known(stored), groups_of(stored))
            outcomes = [self._outcome(submission) for submission in sent]
        finally:
            self.following.forget(ids)
        answers = [
            Unavailable(str(failures[id_])) if outcome is None and id_ in failures else outcome
            for id_, outcome in zip(ids, outcomes, strict=True)
        ]
        decided = [outcome for outcome in answers if outcome is not None]
        if len(decided) < len(ids):
            raise Indeterminate(
                f"{len(ids) - len(decided)} events were appended, not read back, and may have"
                " counted: read their outcomes from the log before trying again"
            )
        return decided

    def _outcome(self, sent: InFlightEvent) -> Outcome | None:
        """Return the outcome of an event, `Unavailable` if its group has failed; else None."""
        decision = self.following.outcome(sent.event.id)
        if decision is not None:
            return decision
        name = sent.group.names.group
        group = sent.group.newest
        if self.following.groups.get(name) is not group:
            return Unavailable(f"group {name} was closed")
        failure = group.failure
        return Unavailable(str(failure)) if failure is not None else None

    def _append(self, sent: Sequence[InFlightEvent]) -> Mapping[EventId, Failure]:
        """Append every event at least once; return why some were not, or may not be, stored."""
        failures: dict[EventId, Failure] = {}
        open_ = [submission for submission in sent if self._outcome(submission) is None]
        began = time.monotonic()
        for wait_ms in self._waits():
            stragglers_ms = self._stragglers_ms(open_)
            again = self._try(open_, failures, stragglers_ms)
            if not again:
                break
            self.following.wait(self._all_known(again), wait_ms, groups_of(again))
            open_ = [submission for submission in again if self._outcome(submission) is None]
            longest_ms = stragglers_ms if len(open_) < len(sent) else LONGEST_S * 1000
            is_over = (time.monotonic() - began) * 1000 >= longest_ms
            if not open_ or (is_over and not self.following.is_silence()):
                break
        lost = [
            submission
            for submission in sent
            if submission.event.id in failures and self._outcome(submission) is None
        ]
        self.late.update(
            submission.group.names.log
            for submission in lost
            if isinstance(failures[submission.event.id], Indeterminate)
        )
        return {submission.event.id: failures[submission.event.id] for submission in lost}

    def _stragglers_ms(self, open_: Sequence[InFlightEvent]) -> int:
        """Return how long decided events wait for these. Units: milliseconds."""
        logs = {submission.group.names.log for submission in open_}
        return LATE_AGAIN_MS if logs & self.late else STRAGGLERS_MS

    def _try(
        self,
        open_: Sequence[InFlightEvent],
        failures: dict[EventId, Failure],
        stragglers_ms: int,
    ) -> list[InFlightEvent]:
        """Append once; return the events that may or may not be stored."""
        values = [
            (submission.group.names.log, event_codec.encode(submission.event))
            for submission in open_
        ]
        results = self.logs.append_each(values, stragglers_ms)
        again = []
        for submission, result in zip(open_, results, strict=True):
            id_, was_in_doubt = submission.event.id, submission.event.id in failures
            if isinstance(result, int):
                failures.pop(id_, None)
                self.late.discard(submission.group.names.log)
            elif isinstance(result, Indeterminate):
                failures[id_] = result
                again.append(submission)
            elif was_in_doubt:
                again.append(submission)
            else:
                failures[id_] = result
        return again

    def _waits(self) -> Iterator[int]:
        """Yield the waits between copies; while no broker answers no copy is the last."""
        yield from self.resend_ms
        while self.following.is_silence():
            yield self.resend_ms[-1]
        yield 0

    def _all_known(self, sent: Sequence[InFlightEvent]) -> Callable[[], bool]:
        """Return a predicate, asked at each record, that tells whether all outcomes are known.

        It does not look again at outcomes that are known, which are most of thousands.
        """
        left = list(sent)

        def are_known() -> bool:
            while left and self.following.outcome(left[-1].event.id) is not None:
                left.pop()
            return all(self._outcome(submission) is not None for submission in reversed(left))

        return are_known


def bounded(events: Mapping[int, tuple[str, Body]]) -> list[int]:
    """Return the numbers of the events to append now: the first ones of each group."""
    counts = Counter[str]()
    numbers: list[int] = []
    for number, (group, _) in events.items():
        counts[group] += 1
        if counts[group] <= MOST_OF_A_GROUP:
            numbers.append(number)
    return numbers


def groups_of(sent: Sequence[InFlightEvent]) -> frozenset[str]:
    """Return the groups of the events."""
    return frozenset(submission.group.names.group for submission in sent)
