"""One group as this process follows it: its topics, the state folded so far, what went wrong.

The fold is pure; this is the object that moves. It refuses what no honest log holds, naming
topic and offset: a gap, a record of an unknown kind or with its writer's time (rule 11), a
Rollup that is not what we folded ourselves (rule 8). After that the group stays failed, and
other groups go on.
"""

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from streams.errors import Corrupt, SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.log import Entry, Truncated, WronglyTimed
from streams.storage import packing, records, rollup
from streams.storage.events import Event, Rollup
from streams.storage.machine import recall, step, tick
from streams.storage.outcomes import Decision, RolledUp, WrongGroup
from streams.storage.retention import ROLLUP_STRIDE
from streams.storage.skipping import Skips, is_skip
from streams.storage.skipping import decode as decode_skip
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


class OpenAgain(Exception):
    """What was read cannot be folded on, and may be by who opens the group again."""


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
    at the ends of stretches, for checking Rollups, `hashes` those of older ones, by offset; it
    was `packed` through an offset. `left_behind` says why we cannot read on,
    since `left_at_s` by the monotonic clock, before that is a failure; `successor` is the same
    group as it was opened again. `skips` are passed over; the fold `began` after an offset.
    """

    names: Names
    topic_id: str
    uuid: str
    state: State = field(default_factory=State)
    retained: deque[State] = field(
        default_factory=lambda: deque(maxlen=WINDOW // ROLLUP_STRIDE + 1)
    )
    hashes: dict[Offset, str] = field(default_factory=dict)
    packed: int = -1
    failure: Exception | None = None
    left_behind: SlackwaterError | None = None
    left_at_s: float = 0.0
    successor: "Group | None" = None
    last_at_ms: int = 0
    skips: Skips = field(default_factory=dict)
    began: int = -1

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

    def begin(self, state: State, skips: Skips) -> None:
        """Fold on from a state, and pass over what is to be."""
        self.state, self.uuid = state, state.group or self.topic_id
        self.skips, self.began = skips, state.upto
        self.retained.clear()
        self.hashes.clear()

    def fold(self, entry: Entry) -> tuple[Event, Decision] | None:
        """Fold one record; None when it was folded already, or says nothing of collections.

        Errors: Corrupt, WronglyTimed among them; OpenAgain.
        """
        expected = self.state.upto + 1
        if entry.offset < expected:
            return None
        if entry.offset > expected:
            raise OpenAgain(
                f"log {entry.topic}/0: expected offset {expected}, actual {entry.offset}"
            )
        skip = self.skips.get(entry.offset)
        if skip is not None and skip.is_meant(entry.value):
            self.pass_over(entry.offset)
            return None
        if not entry.is_append_time:
            raise WronglyTimed(entry.topic, entry.offset)
        if is_skip(entry.value):
            self._hear(entry)
            return None
        event = decode(entry)
        state, outcome = step(self.state, event, entry.offset, entry.at_ms)
        self._move(state, entry)
        self._check(entry, event, outcome)
        return event, outcome

    def _move(self, state: State, entry: Entry) -> None:
        self.state, self.last_at_ms = state, entry.at_ms
        if state.group:
            self.uuid = state.group
        self._retain()

    def _retain(self) -> None:
        if self.state.upto % ROLLUP_STRIDE == ROLLUP_STRIDE - 1:
            self.retained.append(self.state)

    def pass_over(self, upto: Offset) -> None:
        """Go on to an offset as if what lies there were not: no clock moves."""
        self.state = self.state.moved(upto=upto)
        self._retain()

    def pass_gap(self, upto: Offset) -> None:
        """Pass over offsets at which a reader of the whole log found no record.

        One is the mark of a transaction: it says nothing. More may have been deleted, so all of
        them have to be named by an operator.

        Errors: Corrupt.
        """
        gap = [Offset(each) for each in range(self.state.upto + 1, upto + 1)]
        named = [each for each in gap if each in self.skips]
        if len(gap) > 1 and len(named) < len(gap):
            raise Corrupt(
                f"log {self.names.log}/0: expected offset {gap[0]}, actual {upto + 1}: records"
                " were deleted, or transactions left marks; see 'slackwater shard verify'"
            )
        for each in gap:
            self.pass_over(each)

    def _hear(self, entry: Entry) -> None:
        """An operator's word: it is void itself, and about what is passed over already."""
        skip = decode_skip(entry.value)
        if self.began < skip.offset < entry.offset and skip.offset not in self.skips:
            raise OpenAgain(
                f"log {entry.topic}/0@{entry.offset}: the record at {skip.offset} is to be"
                " passed over, and was folded"
            )
        self._move(tick(self.state, entry.offset, entry.at_ms), entry)

    def _check(self, entry: Entry, event: Event, outcome: Decision) -> None:
        if isinstance(outcome, WrongGroup):
            log.warning(
                "event of another group", extra={"log": entry.topic, "offset": entry.offset}
            )
        if isinstance(outcome, RolledUp) and isinstance(event.body, Rollup):
            self._check_rollup(entry, event.body)

    def _check_rollup(self, entry: Entry, body: Rollup) -> None:
        actual = self._hash_at(body.upto)
        if actual is not None and actual != body.hash:  # None: we began after it
            raise Corrupt(
                f"log {entry.topic}/0@{entry.offset}: expected a rollup of the state at"
                f" {body.upto} with hash {actual}, actual {body.hash}"
            )
        while self.retained and self.retained[0].upto <= body.upto:
            self.retained.popleft()  # no Rollup up to there can count any more

    def _hash_at(self, upto: Offset) -> str | None:
        """The hash of the state that was retained at an offset."""
        mine = next((state for state in self.retained if state.upto == upto), None)
        return self.hashes.get(upto) if mine is None else rollup.hash_of(rollup.encode(mine))

    def pack(self, lock: AbstractContextManager[object]) -> bool:
        """Take a step to hold less of a quiet group; whether there is one more to take.

        All but the newest of the retained states become hashes, then outcomes become bytes.
        Whoever folds holds the `lock`; what is long in a step, some 15 ms, is done without it.
        """
        with lock:
            state, retained = self.state, tuple(self.retained)
        if state.upto - self.packed < packing.WORTH:
            return False
        if len(retained) > 1:
            hash_ = rollup.hash_of(rollup.encode(retained[0]))
            with lock:
                self._only_hash(retained[0], hash_)
            return True
        *older, newest = packing.packed([*retained, state])
        with lock:
            self._take_packed(state, newest, older)
        return False

    def _only_hash(self, oldest: State, hash_: str) -> None:
        if self.retained and self.retained[0] is oldest:
            self.hashes[self.retained.popleft().upto] = hash_
        since = self.state.upto - WINDOW
        self.hashes = {upto: each for upto, each in self.hashes.items() if upto >= since}

    def _take_packed(self, was: State, state: State, retained: Sequence[State]) -> None:
        if self.state is was:  # else there were records meanwhile: it is not quiet
            self.state, self.packed = state, state.upto
            self.retained.clear()
            self.retained.extend(retained)

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
