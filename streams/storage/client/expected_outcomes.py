"""Expected events: outcomes of events that callers wait for, as their logs are read back."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from streams.ids import EventId
from streams.storage.client.group import Group
from streams.storage.log.events import Event
from streams.storage.log.outcomes import Outcome, Stale, Unavailable

FORGOTTEN = "its log was read again from a rollup, which does not remember outcomes so far back"


@dataclass(slots=True)
class ExpectedOutcome:
    """An event of a group, and its outcome once it is known."""

    name: str
    event: Event
    outcome: Outcome | None = None


@dataclass(slots=True)
class ExpectedOutcomes:
    """The expected events. The caller makes sure that only one thread changes them."""

    events: dict[EventId, ExpectedOutcome] = field(default_factory=dict)

    def expect(self, events: Sequence[tuple[str, Event]]) -> None:
        """Record the outcomes of these events, given with their groups, until `forget`."""
        self.events.update({event.id: ExpectedOutcome(name, event) for name, event in events})

    def outcome(self, id_: EventId) -> Outcome | None:
        """Return the outcome of an event; None while it is unknown."""
        awaited = self.events.get(id_)
        return None if awaited is None else awaited.outcome

    def forget(self, ids: Sequence[EventId]) -> None:
        """Stop expecting these events."""
        for id_ in ids:
            self.events.pop(id_, None)

    def note(self, id_: EventId, outcome: Outcome) -> None:
        """Record that an event was read back: the first copy decides."""
        awaited = self.events.get(id_)
        if awaited is not None and awaited.outcome is None:
            awaited.outcome = outcome

    def look_up(self, group: Group) -> None:
        """Record what a group that was opened again remembers of its events.

        An event that it may have forgotten can have counted, so its outcome becomes unknown.
        """
        for awaited in self.events.values():
            if awaited.name == group.names.group and awaited.outcome is None:
                outcome = group.recall(awaited.event)
                is_unsure = isinstance(outcome, Stale)
                awaited.outcome = Unavailable(FORGOTTEN) if is_unsure else outcome
