"""Which of a tail's two consumers reads which log. Pure.

A fetch names every log that its consumer follows, and the broker looks at each of them: many
logs that nobody writes to cost little only when they are asked about rarely, and a log that was
just added is read soon only when its consumer asks often. So there are two.

    IDLE    asks every few seconds. A record ends the wait at once, so nothing is late; but a
            log that is added to it has to wait until the fetch under way is over
    BUSY    asks twenty times a second, about the few logs that have just been added or that
            records keep coming to

Invariant: at any time one consumer at least follows each log from the next offset or before, so
nothing is missed. A log that moves is followed by both until the consumer that takes it over
has shown, by a record or by reaching the end, that it reads it. What both read is told once:
each consumer gives a log's records in order, and those below the next offset are passed over.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from streams.errors import InvalidUsage
from streams.ids import Offset, Topic

REST_S = 5.0
"""A log without a record for so long is idle; two records within it make it busy."""

FEW = 16
"""An idle consumer of so few logs is as cheap to ask as a busy one: its logs stay."""


class Seat(Enum):
    """One of the two consumers."""

    IDLE = "idle"
    BUSY = "busy"


@dataclass(slots=True)
class Followed:
    """A log: its next offset, who reads it, and who is to take it over.

    `at` is when its last record came, or when it was added. Units: monotonic seconds.
    """

    next: int
    seat: Seat
    at: float
    heir: Seat | None = None


class Seats:
    """The logs of a tail; `taken` says what each consumer is to be assigned or relieved of."""

    def __init__(self) -> None:
        self._logs: dict[Topic, Followed] = {}
        self._busy: set[Topic] = set()  # what the busy consumer reads, or is to take over
        self._idle_has_begun = False
        self._moves: dict[Seat, list[tuple[Topic, Offset | None]]] = {each: [] for each in Seat}

    @property
    def topics(self) -> frozenset[Topic]:
        """What is followed."""
        return frozenset(self._logs)

    @property
    def is_busy(self) -> bool:
        """Whether the busy consumer has anything to read."""
        return bool(self._busy)

    def next(self, topic: Topic) -> int | None:
        """The offset that is read next; None when the log is not followed."""
        followed = self._logs.get(topic)
        return None if followed is None else followed.next

    def add(self, starts: Mapping[Topic, Offset], now: float) -> None:
        """Follow logs from their starts.

        The first ones are the idle consumer's: it has no fetch under way.
        Errors: InvalidUsage when one is followed already; then none is added.
        """
        for topic in starts:
            if topic in self._logs:
                raise InvalidUsage(f"log {topic} is already followed")
        seat = Seat.BUSY if self._idle_has_begun else Seat.IDLE
        self._idle_has_begun = self._idle_has_begun or bool(starts)
        for topic, start in starts.items():
            self._logs[topic] = Followed(start, seat, now)
            self._assign(seat, topic, start)

    def remove(self, topic: Topic) -> None:
        """Follow a log no more; one that is not followed is passed over."""
        followed = self._logs.pop(topic, None)
        if followed is not None:
            for seat in {followed.seat, followed.heir or followed.seat}:
                self._unassign(seat, topic)

    def record(self, seat: Seat, topic: Topic, offset: int, now: float) -> bool:
        """Note a record that a consumer gave; whether it is new."""
        followed = self._logs.get(topic)
        if followed is None:
            return False
        self._shown(topic, followed, seat)
        if offset < followed.next:
            return False
        followed.next = offset + 1
        is_frequent = now - followed.at < REST_S
        followed.at = now
        if followed.heir is Seat.IDLE:  # not so idle after all
            self._give_up(topic, followed)
        elif is_frequent and followed.seat is Seat.IDLE and len(self._logs) > FEW:
            self._begin(topic, followed, Seat.BUSY)
        return True

    def reached_end(self, seat: Seat, topic: Topic) -> None:
        """Note that a consumer has read all that a log holds."""
        followed = self._logs.get(topic)
        if followed is not None:
            self._shown(topic, followed, seat)

    def rest(self, now: float) -> None:
        """Let the idle consumer take over the logs that nothing has come to."""
        for topic in self._busy:
            followed = self._logs[topic]
            if followed.seat is Seat.BUSY and now - followed.at >= REST_S:
                self._begin(topic, followed, Seat.IDLE)

    def taken(self, seat: Seat) -> Iterable[tuple[Topic, Offset | None]]:
        """What a consumer is to be assigned (a start) or relieved of (None) now, in order."""
        moves, self._moves[seat] = self._moves[seat], []
        return moves

    def _begin(self, topic: Topic, followed: Followed, heir: Seat) -> None:
        if followed.heir is None:
            followed.heir = heir
            self._assign(heir, topic, Offset(followed.next))

    def _give_up(self, topic: Topic, followed: Followed) -> None:
        assert followed.heir is not None, "it is taken over"
        self._unassign(followed.heir, topic)
        followed.heir = None

    def _shown(self, topic: Topic, followed: Followed, seat: Seat) -> None:
        """A consumer reads the log: if it was to take it over, it has."""
        if followed.heir is seat:
            self._unassign(followed.seat, topic)
            followed.seat, followed.heir = seat, None

    def _assign(self, seat: Seat, topic: Topic, start: Offset) -> None:
        self._moves[seat].append((topic, start))
        if seat is Seat.BUSY:
            self._busy.add(topic)

    def _unassign(self, seat: Seat, topic: Topic) -> None:
        self._moves[seat].append((topic, None))
        if seat is Seat.BUSY:
            self._busy.discard(topic)
