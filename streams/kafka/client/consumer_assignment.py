"""Assigns each log of a tail to one of its two consumers. Pure.

A fetch names every log of its consumer, and the broker checks each of them: many idle logs are
cheap only if they are fetched rarely, and a log that was just added is read soon only if its
consumer fetches often. So there are two consumers.

    IDLE    polls every few seconds. A record ends the wait at once, so nothing is late; but a
            log that is added to it has to wait until the current fetch is over
    BUSY    polls twenty times a second: logs that have just been added and, of many, those
            that receive records

Invariant: at any time at least one consumer follows each log from the next offset or before, so
nothing is missed. A log that moves is followed by both until the consumer that takes it over
has shown, by a record or by reaching the end, that it reads it. Records that both read are
delivered once: each consumer returns a log's records in order, and those below the next offset
are dropped.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from streams.errors import InvalidUsage
from streams.ids import Offset, Topic

REST_S = 5.0
"""A log without a record for this long is idle; records of two polls within it make it busy.

Records of one poll count as one arrival: they are old history, or one burst. If a thousand logs
are opened and each gets a record, none of them is reassigned.
"""

FEW = 16
"""With at most this many logs the idle consumer is as cheap as the busy one, and gets them all.

The busy one would ask twenty times a second for a log with a record a second.
"""

NEVER = -math.inf
"""The time of the last record of a log without any."""


class ConsumerSlot(Enum):
    """One of the two consumers."""

    IDLE = "idle"
    BUSY = "busy"


@dataclass(slots=True)
class Followed:
    """A log: its next offset, its consumer, and the one that takes it over.

    `end` is where a consumer last had all that the log held: behind the next offset if there
    are no records between them, but marks of transactions.

    `at` is when its last record came; before the first one, when the busy consumer got the log,
    or `NEVER` with the idle one. Units: monotonic seconds.
    """

    next: int
    slot: ConsumerSlot
    at: float
    heir: ConsumerSlot | None = None
    end: int = 0


class ConsumerSlots:
    """The logs of a tail; `taken` returns the assignments of each consumer."""

    def __init__(self) -> None:
        self._logs: dict[Topic, Followed] = {}
        self._busy: set[Topic] = set()  # what the busy consumer reads, or is to take over
        self._idle_has_begun = False
        self._moves: dict[ConsumerSlot, list[tuple[Topic, Offset | None]]] = {
            slot: [] for slot in ConsumerSlot
        }

    @property
    def topics(self) -> frozenset[Topic]:
        """The followed topics."""
        return frozenset(self._logs)

    @property
    def is_busy(self) -> bool:
        """Whether the busy consumer has any log."""
        return bool(self._busy)

    @property
    def _are_few(self) -> bool:
        return len(self._logs) <= FEW

    @property
    def is_moving(self) -> bool:
        """Whether a consumer has something to assign or to unassign."""
        return any(self._moves.values())

    def next(self, topic: Topic) -> int | None:
        """Return the next offset to read; None if the log is not followed."""
        followed = self._logs.get(topic)
        return None if followed is None else followed.next

    def add(self, starts: Mapping[Topic, Offset], now: float) -> None:
        """Follow logs from their start offsets.

        The first ones go to the idle consumer, which has no fetch in progress. Errors:
        InvalidUsage if one is followed already; then none is added.
        """
        for topic in starts:
            if topic in self._logs:
                raise InvalidUsage(f"log {topic} is already followed")
        slot = ConsumerSlot.BUSY if self._idle_has_begun else ConsumerSlot.IDLE
        self._idle_has_begun = self._idle_has_begun or bool(starts)
        at = now if slot is ConsumerSlot.BUSY else NEVER
        for topic, start in starts.items():
            self._logs[topic] = Followed(start, slot, at)
            self._assign(slot, topic, start)

    def remove(self, topic: Topic) -> None:
        """Stop following a log; ignored if it is not followed."""
        followed = self._logs.pop(topic, None)
        if followed is not None:
            for slot in {followed.slot, followed.heir or followed.slot}:
                self._unassign(slot, topic)

    def record(self, slot: ConsumerSlot, topic: Topic, offset: int, now: float) -> bool:
        """Record that a consumer returned a record; return whether it is new.

        All records of one poll are given with the same `now`.
        """
        followed = self._logs.get(topic)
        if followed is None:
            return False
        self._shown(topic, followed, slot)
        if offset < followed.next:
            return False
        followed.next = offset + 1
        is_frequent = 0 < now - followed.at < REST_S
        followed.at = now
        if self._are_few:
            pass  # the idle consumer is for logs with records too
        elif followed.heir is ConsumerSlot.IDLE:  # it is not idle
            self._give_up(topic, followed)
        elif is_frequent and followed.slot is ConsumerSlot.IDLE:
            self._begin(topic, followed, ConsumerSlot.BUSY)
        return True

    def reached_end(self, slot: ConsumerSlot, topic: Topic, end: int) -> None:
        """Record that a consumer has read all that a log holds."""
        followed = self._logs.get(topic)
        if followed is not None:
            followed.end = max(followed.end, end)
            self._shown(topic, followed, slot)

    def places(self) -> Mapping[Topic, int]:
        """Return up to where each log was read."""
        return {topic: max(log.next, log.end) for topic, log in self._logs.items()}

    def readers(self, topic: Topic) -> frozenset[ConsumerSlot]:
        """Return the consumers that have a log assigned."""
        followed = self._logs.get(topic)
        if followed is None:
            return frozenset()
        return frozenset({followed.slot, followed.heir or followed.slot})

    def rest(self, now: float) -> None:
        """Let the idle consumer take over logs without recent records, and few logs anyway."""
        for topic in self._busy:
            followed = self._logs[topic]
            is_idle = self._are_few or now - followed.at >= REST_S
            if followed.slot is ConsumerSlot.BUSY and is_idle:
                self._begin(topic, followed, ConsumerSlot.IDLE)

    def begin_again(self, slot: ConsumerSlot) -> None:
        """Assign to a new consumer all that its predecessor had, from where each log stands."""
        self._moves[slot].clear()
        for topic, followed in self._logs.items():
            if slot in {followed.slot, followed.heir}:
                self._moves[slot].append((topic, Offset(followed.next)))

    def taken(self, slot: ConsumerSlot) -> Iterable[tuple[Topic, Offset | None]]:
        """Return what to assign to a consumer (a start) or to unassign (None) now, in order."""
        moves, self._moves[slot] = self._moves[slot], []
        return moves

    def _begin(self, topic: Topic, followed: Followed, heir: ConsumerSlot) -> None:
        if followed.heir is None:
            followed.heir = heir
            self._assign(heir, topic, Offset(followed.next))

    def _give_up(self, topic: Topic, followed: Followed) -> None:
        assert followed.heir is not None, "it is taken over"
        self._unassign(followed.heir, topic)
        followed.heir = None

    def _shown(self, topic: Topic, followed: Followed, slot: ConsumerSlot) -> None:
        """A consumer reads the log: a pending takeover by it is complete."""
        if followed.heir is slot:
            self._unassign(followed.slot, topic)
            followed.slot, followed.heir = slot, None

    def _assign(self, slot: ConsumerSlot, topic: Topic, start: Offset) -> None:
        self._moves[slot].append((topic, start))
        if slot is ConsumerSlot.BUSY:
            self._busy.add(topic)

    def _unassign(self, slot: ConsumerSlot, topic: Topic) -> None:
        self._moves[slot].append((topic, None))
        if slot is ConsumerSlot.BUSY:
            self._busy.discard(topic)
