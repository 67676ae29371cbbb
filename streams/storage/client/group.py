"""One followed group: its topics, its folded state, and its failure if any. Mutable.

The fold is pure; this object holds its state. It refuses records that no correct log holds,
naming topic and offset: a gap, a record of an unknown kind or with the producer's timestamp
(rule 11), a Rollup that differs from our own fold (rule 8). Then the group has failed, and
other groups continue.
"""

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from streams.errors import Corrupt, SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.log import Entry, Truncated, WronglyTimed
from streams.storage.log import event_codec, packing, rollup
from streams.storage.log.chunk_gc import ROLLUP_STRIDE
from streams.storage.log.dedup_window import WINDOW
from streams.storage.log.events import Event, Rollup
from streams.storage.log.machine import recall, step, tick
from streams.storage.log.outcomes import Decision, RolledUp, WrongGroup
from streams.storage.log.skipping import Skips, is_skip
from streams.storage.log.skipping import decode as decode_skip
from streams.storage.log.state import State

log = logging.getLogger(__name__)


MADE_ANEW = "the topic was deleted and created again: its records, and the group, are lost"


def lost_records(log: Topic, upto: Offset, reason: str) -> Truncated:
    """The error for a log that lost folded records: only closing the group helps."""
    failure = Truncated(log, upto + 1, reason)
    failure.is_lost = True
    return failure


def is_lost(failure: Exception | None) -> bool:
    """Whether reopening the group cannot help."""
    return isinstance(failure, Truncated) and failure.is_lost


class OpenAgain(Exception):
    """The record cannot be folded into this state; reopening the group may help."""


@dataclass(frozen=True, slots=True)
class GroupTopics:
    """The topics of a group."""

    group: str
    log: Topic
    data: Topic


def names_of(namespace: str, group: str) -> GroupTopics:
    """Return the topics of the group of this name."""
    stem = f"{namespace}.{group}"
    return GroupTopics(group, Topic(f"{stem}.log"), Topic(f"{stem}.data"))


@dataclass(slots=True)
class Group:
    """A followed group.

    `topic_id` is the log topic's id at the start. `uuid` is the group id in events: that of the
    first Create, or the one that our events will carry if there is none yet. `retained` holds
    states at the offsets at which Rollups may be made, to check them, and `hashes` the hashes
    of older ones, by offset; outcomes are `packed` through an offset. `left_behind` is the
    reason why the log cannot be read on, since `left_at_s` (monotonic seconds), before that
    becomes a failure; `successor` is the reopened group. Records in `skips` are ignored; the
    fold `began` after an offset.
    """

    names: GroupTopics
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
        """Whether its log cannot be followed from our position."""
        return self.failure is not None or self.left_behind is not None

    @property
    def newest(self) -> "Group":
        """The group as it was last reopened."""
        group = self
        while group.successor is not None:
            group = group.successor
        return group

    def recall(self, event: Event) -> Decision | None:
        """The recorded outcome of an event up to `state.upto`, or that it may be forgotten."""
        return recall(self.state, event, Offset(self.state.upto + 1))

    def begin(self, state: State, skips: Skips) -> None:
        """Start the fold from a state, with these records to skip."""
        self.state, self.uuid = state, state.group or self.topic_id
        self.skips, self.began = skips, state.upto
        self.retained.clear()
        self.hashes.clear()

    def fold(self, entry: Entry) -> tuple[Event, Decision] | None:
        """Fold one record; None if it was folded already or is not an event of collections.

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
        """Continue at an offset as if no record were before it: the clock does not move."""
        self.state = self.state.moved(upto=upto)
        self._retain()

    def pass_gap(self, upto: Offset) -> None:
        """Skip offsets at which a reader of the whole log found no record.

        A single one is a transaction marker. More may be deleted records, so an operator has to
        name all of them.

        Errors: Corrupt.
        """
        gap = [Offset(offset) for offset in range(self.state.upto + 1, upto + 1)]
        named = [offset for offset in gap if offset in self.skips]
        if len(gap) > 1 and len(named) < len(gap):
            raise Corrupt(
                f"log {self.names.log}/0: expected offset {gap[0]}, actual {upto + 1}: records"
                " were deleted, or transactions left marks; see 'slackwater shard verify'"
            )
        for offset in gap:
            self.pass_over(offset)

    def _hear(self, entry: Entry) -> None:
        """Process a skip record: void itself, and about a record that is skipped already."""
        skip = decode_skip(entry.value)
        if self.began < skip.offset < entry.offset and skip.offset not in self.skips:
            raise OpenAgain(
                f"log {entry.topic}/0@{entry.offset}: the record at {skip.offset} is to be"
                " skipped, but was folded"
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
        """Return the hash of the state that was retained at an offset."""
        mine = next((state for state in self.retained if state.upto == upto), None)
        return self.hashes.get(upto) if mine is None else rollup.hash_of(rollup.encode(mine))

    def pack(self, lock: AbstractContextManager[object]) -> bool:
        """Take one step to reduce a quiet group's memory; return whether more steps remain.

        All but the newest of the retained states become hashes, then outcomes become bytes. The
        folding thread holds the `lock`; the long part of a step, about 15 ms, runs without it.
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
        *older, newest = packing.pack([*retained, state])
        with lock:
            self._take_packed(state, newest, older)
        return False

    def _only_hash(self, oldest: State, hash_: str) -> None:
        if self.retained and self.retained[0] is oldest:
            self.hashes[self.retained.popleft().upto] = hash_
        since = self.state.upto - WINDOW
        self.hashes = {upto: hash_ for upto, hash_ in self.hashes.items() if upto >= since}

    def _take_packed(self, was: State, state: State, retained: Sequence[State]) -> None:
        if self.state is was:  # else records arrived meanwhile: it is not quiet
            self.state, self.packed = state, state.upto
            self.retained.clear()
            self.retained.extend(retained)

    def newest_retained(self) -> State | None:
        """The latest state that a Rollup may be made of, if newer than the last Rollup."""
        if not self.retained:
            return None
        newest = self.retained[-1]
        offset = self.state.rollups[-1].upto if self.state.rollups else Offset(-1)
        return newest if newest.upto > offset else None


def decode(entry: Entry) -> Event:
    """Return the event of a log record.

    Errors: Corrupt, naming topic and offset.
    """
    try:
        return event_codec.decode(entry.value)
    except Corrupt as cause:
        raise Corrupt(f"log {entry.topic}/0@{entry.offset}: {cause}") from cause
