"""Events go out and their outcomes come back: each decided once, whatever the produce said.

A produce that failed without effect is the caller's to repeat. One whose effect is not known is
looked for in the log, and sent again as it is when it does not turn up: the copies share an id,
so the log counts one of them (rule 1). A copy that comes back as stale did nothing, and whoever
followed the log would have seen an earlier one; so the event is made anew and sent.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from streams.errors import Determinate, Indeterminate, InvalidUsage
from streams.ids import EventId, Offset
from streams.kafka.log import Logs
from streams.storage import records
from streams.storage.events import Body, Event
from streams.storage.following import Following
from streams.storage.group import Group
from streams.storage.outcomes import Outcome, Stale, Unavailable

RESEND_MS = (250, 500, 1_000, 2_000, 4_000)
"""How long to look for an event whose produce is in doubt, before each copy of it."""


class Unread(Indeterminate):
    """The group has failed: whether the event counted cannot be read."""


def unread(reason: str) -> Unread:
    """What to raise for an event of a group that has failed: it may have counted."""
    return Unread(f"the event's outcome cannot be read: {reason}")


@dataclass(frozen=True, slots=True)
class Attempt:
    """An event with a name that is given, of somebody who had folded up to `seen`."""

    group: str
    body: Body
    id: EventId
    seen: Offset


@dataclass(frozen=True, slots=True)
class Sent:
    """An event on its way to its group."""

    group: Group
    event: Event


@dataclass(frozen=True, slots=True)
class Sending:
    """Appends to the logs of followed groups."""

    logs: Logs
    following: Following
    new_id: Callable[[], str]
    resend_ms: tuple[int, ...] = RESEND_MS

    def submit(self, events: Sequence[tuple[str, Body]]) -> list[Outcome]:
        """Append events with one flush, and say what became of each.

        Errors: as `Shards.submit`.
        """
        outcomes: dict[int, Outcome] = {}
        open_ = dict(enumerate(events))
        while open_:
            sent = [self._make(name, body) for name, body in open_.values()]
            for number, outcome in zip(tuple(open_), self._send(sent), strict=True):
                # a stale copy did nothing, and this client would have seen an earlier one
                if not isinstance(outcome, Stale):
                    outcomes[number] = outcome
                    del open_[number]
        return [outcomes[number] for number in range(len(events))]

    def attempt(self, attempts: Sequence[Attempt]) -> list[Outcome]:
        """As `submit`, of named events; what is stale is said to be so, not made anew."""
        sent = [
            Sent(group, Event(each.id, group.uuid, each.seen, each.body))
            for each in attempts
            for group in (self._group(each.group),)
        ]
        return self._send(sent)

    def _make(self, name: str, body: Body) -> Sent:
        group = self._group(name)
        return Sent(group, Event(EventId(self.new_id()), group.uuid, group.state.upto, body))

    def _group(self, name: str) -> Group:
        group = self.following.groups.get(name)
        if group is None:
            raise InvalidUsage(f"group {name} is not open")
        return group

    def _send(self, sent: Sequence[Sent]) -> list[Outcome]:
        ids = [each.event.id for each in sent]
        self.following.expect([(each.group.names.group, each.event) for each in sent])
        try:
            self._append(sent)
            self.following.await_answered(lambda: self._all_known(sent), groups_of(sent))
            outcomes = [self._outcome(each) for each in sent]
        finally:
            self.following.forget(ids)
        found = [outcome for outcome in outcomes if outcome is not None]
        if len(found) < len(ids):
            raise Indeterminate(
                f"{len(ids) - len(found)} events were appended, not read back, and may have"
                " counted: see what the log says of them before trying again"
            )
        return found

    def _outcome(self, sent: Sent) -> Outcome | None:
        """What became of an event, as far as anybody will ever read here."""
        decision = self.following.outcome(sent.event.id)
        if decision is not None:
            return decision
        name = sent.group.names.group
        group = sent.group.newest
        if self.following.groups.get(name) is not group:
            return Unavailable(f"group {name} was closed")
        failure = group.failure
        return Unavailable(str(failure)) if failure is not None else None

    def _append(self, sent: Sequence[Sent]) -> None:
        """Append every event at least once."""
        values = {
            each.event.id: (each.group.names.log, records.encode(each.event)) for each in sent
        }
        doubt: Indeterminate | None = None
        for wait_ms in self._waits():
            unseen = [values[each.event.id] for each in sent if self._outcome(each) is None]
            try:
                if unseen:
                    self.logs.append(unseen)
            except Indeterminate as failure:
                doubt = failure
            except Determinate:
                if doubt is None:
                    raise
            else:
                return
            self.following.wait(lambda: self._all_known(sent), wait_ms, groups_of(sent))
        raise doubt or AssertionError("unreachable: every failure but the last leaves a doubt")

    def _waits(self) -> Iterator[int]:
        """The waits before each copy but the last; no copy is the last while nobody answers."""
        yield from self.resend_ms
        while self.following.is_silence():
            yield self.resend_ms[-1]
        yield 0

    def _all_known(self, sent: Sequence[Sent]) -> bool:
        return all(self._outcome(each) is not None for each in sent)


def groups_of(sent: Sequence[Sent]) -> frozenset[str]:
    """The groups that decide about events."""
    return frozenset(each.group.names.group for each in sent)
