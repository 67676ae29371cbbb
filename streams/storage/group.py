"""One group as this process follows it: its topics, the state folded so far, what went wrong.

The fold is pure; this is the object that moves. It refuses what no honest log holds, naming
topic and offset: a gap, a record of an unknown kind (rule 11), a Rollup that is not what we
folded ourselves (rule 8). After that the group stays failed, and other groups go on.
"""

import logging
from collections import deque
from dataclasses import dataclass, field

from streams.errors import Corrupt, SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.log import Entry, Truncated
from streams.storage import records, rollup
from streams.storage.events import Event, Rollup
from streams.storage.machine import recall, step
from streams.storage.outcomes import Decision, RolledUp, WrongGroup
from streams.storage.retention import ROLLUP_STRIDE
from streams.storage.state import State
from streams.storage.window import WINDOW

log = logging.getLogger(__name__)


MADE_ANEW = "the topic was deleted and made anew: what it said, and the group, are lost"


def lost(log: Topic, upto: Offset, reason: str) -> Truncated:
    """A log does not hold any more what was folded of it: only closing the group helps."""
    failure = Truncated(log, upto + 1, reason)
    failure.is_lost = True
    return failure


def is_lost(failure: Exception | None) -> bool:
    """Whether opening a group again cannot help."""
    return isinstance(failure, Truncated) and failure.is_lost


@dataclass(frozen=True, slots=True)
class Names:
    """A group's topics."""

    group: str
    log: Topic
    data: Topic


def names_of(namespace: str, group: str) -> Names:
    """The topics of the group of this name."""
    stem = f"{namespace}.{group}"
    return Names(group, Topic(f"{stem}.log"), Topic(f"{stem}.data"))


@dataclass(slots=True)
class Group:
    """A followed group.

    `topic_id` is the log topic's when we began. `uuid` is what the group's events carry: the
    first Create's, or what ours will carry when there is none yet. `retained` are the states
    at the ends of stretches, for checking Rollups. `left_behind` says why we cannot read on,
    since `left_at_s` by the monotonic clock, before that is a failure; `successor` is the same
    group as it was opened again.
    """

    names: Names
    topic_id: str
    uuid: str
    state: State = field(default_factory=State)
    retained: deque[State] = field(
        default_factory=lambda: deque(maxlen=WINDOW // ROLLUP_STRIDE + 1)
    )
    failure: Exception | None = None
    left_behind: SlackwaterError | None = None
    left_at_s: float = 0.0
    successor: "Group | None" = None
    last_at_ms: int = 0

    @property
    def is_ill(self) -> bool:
        """Whether its log cannot be followed on from where we are."""
        return self.failure is not None or self.left_behind is not None

    @property
    def newest(self) -> "Group":
        """The group as it was last opened again."""
        group = self
        while group.successor is not None:
            group = group.successor
        return group

    def recall(self, event: Event) -> Decision | None:
        """What was decided for an event through `state.upto`, or that this may be forgotten."""
        return recall(self.state, event, Offset(self.state.upto + 1))

    def begin(self, state: State) -> None:
        """Fold on from a state."""
        self.state, self.uuid = state, state.group or self.topic_id
        self.retained.clear()

    def fold(self, entry: Entry) -> tuple[Event, Decision] | None:
        """Fold one record; None when it was folded already.

        Errors: Corrupt.
        """
        expected = self.state.upto + 1
        if entry.offset < expected:
            return None
        if entry.offset > expected:
            raise Corrupt(
                f"log {entry.topic}/0: expected offset {expected}, actual {entry.offset}"
            )
        event = decode(entry)
        self.state, outcome = step(self.state, event, entry.offset, entry.at_ms)
        self.last_at_ms = entry.at_ms
        if self.state.group:
            self.uuid = self.state.group
        if entry.offset % ROLLUP_STRIDE == ROLLUP_STRIDE - 1:
            self.retained.append(self.state)
        self._check(entry, event, outcome)
        return event, outcome

    def _check(self, entry: Entry, event: Event, outcome: Decision) -> None:
        if isinstance(outcome, WrongGroup):
            log.warning(
                "event of another group", extra={"log": entry.topic, "offset": entry.offset}
            )
        if isinstance(outcome, RolledUp) and isinstance(event.body, Rollup):
            self._check_rollup(entry, event.body)

    def _check_rollup(self, entry: Entry, body: Rollup) -> None:
        mine = next((state for state in self.retained if state.upto == body.upto), None)
        if mine is None:
            return  # we began after it
        actual = rollup.hash_of(rollup.encode(mine))
        if actual != body.hash:
            raise Corrupt(
                f"log {entry.topic}/0@{entry.offset}: expected a rollup of the state at"
                f" {body.upto} with hash {actual}, actual {body.hash}"
            )

    def newest_retained(self) -> State | None:
        """The latest state that a Rollup may be made of, if it is newer than the last one."""
        if not self.retained:
            return None
        newest = self.retained[-1]
        known = self.state.rollups[-1].upto if self.state.rollups else Offset(-1)
        return newest if newest.upto > known else None


def decode(entry: Entry) -> Event:
    """The event of a log record.

    Errors: Corrupt, naming topic and offset.
    """
    try:
        return records.decode(entry.value)
    except Corrupt as cause:
        raise Corrupt(f"log {entry.topic}/0@{entry.offset}: {cause}") from cause
