"""One consumer that follows many logs.

Invariant: the consumer is touched by the polling thread alone. The client lets one thread in at
a time and is not fair about it: beside a thread that polls in a loop, another one's call may
never come through. So `add` and `remove` leave word, and the poll, which never sleeps for long,
sees to it.

Readers of logs are `read_uncommitted`: the order of offsets alone decides (rule 1), and
nobody's abandoned transaction may hold up a log. What others write for us to act on is read
`COMMITTED`: what they take back was never said (rule 30).
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from streams.errors import InvalidUsage, SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka import clients
from streams.kafka.faults import GONE, OUT_OF_RANGE, read_fault
from streams.kafka.log import Entry, Truncated, WronglyTimed
from streams.kafka.settings import ClientSettings

log = logging.getLogger(__name__)

MEANING: Mapping[str, clients.Setting] = {"isolation.level": "read_uncommitted"}
COMMITTED: Mapping[str, clients.Setting] = {"isolation.level": "read_committed"}
PACE: Mapping[str, clients.Setting] = {
    # A fetch names every log that is followed: a thousand cost us 4 ms, the broker 15. A record
    # ends the wait at once; only the first look at a log that is added waits for its end.
    "fetch.wait.max.ms": 250,
    "fetch.message.max.bytes": 1 << 20,
}

_AT_ONCE = 10_000  # entries handed out by one poll
_NAP_S = 0.05  # how long word of `add` and `remove` may lie unread
_LOOK_EVERY_S = 3.0  # how often followed topics are looked up
_LOOK_SHARE = 100  # a look whose answer takes long, at many topics, comes so much more rarely
_LOOK_AT_MOST_S = 20.0  # yet before who waits for an answer gives up, not knowing of a silence
_LOOK_TIMEOUT_S = 1.0


class KafkaTail:
    """Follows logs. `poll` and `close` take turns; `add` and `remove` may come from anywhere.

    `require` raises unless all topics given are logs that exist.
    """

    def __init__(
        self,
        settings: ClientSettings,
        starts: Mapping[Topic, Offset],
        require: Callable[[Collection[Topic]], None],
        meaning: Mapping[str, clients.Setting] = MEANING,
    ) -> None:
        self._require = require
        self._consumer = clients.consumer(settings, meaning, PACE)
        self._polling = threading.Lock()  # whoever holds it may use the consumer
        self._lock = threading.Lock()  # guards _next and _moves
        self._next: dict[Topic, int] = {}
        self._moves: list[tuple[Topic, Offset | None]] = []  # None: to be left
        self._failures: deque[SlackwaterError] = deque()
        self._look_at = time.monotonic() + _LOOK_EVERY_S
        self._unseen: frozenset[Topic] = frozenset()
        self._silent_since: float | None = None
        self._closed = False
        if starts:
            require(starts)
            self._next.update(starts)
            self._consumer.incremental_assign(
                [TopicPartition(topic, 0, start) for topic, start in starts.items()]
            )

    def add(self, starts: Mapping[Topic, Offset]) -> None:
        """Follow more logs; they have to exist."""
        self._require(starts)
        with self._lock:
            for topic in starts:
                if topic in self._next:
                    raise InvalidUsage(f"log {topic} is already followed")
            self._next.update(starts)
            self._moves.extend(starts.items())

    def remove(self, topic: Topic) -> None:
        """Follow one log less; passed over when it is not followed."""
        with self._lock:
            if self._next.pop(topic, None) is not None:
                self._moves.append((topic, None))

    def poll(self, wait_ms: int) -> tuple[Entry, ...]:
        """What has come; the first entry ends the wait. A failure waits for its own poll."""
        deadline = time.monotonic() + wait_ms / 1000
        entries: tuple[Entry, ...] = ()
        while not entries and not self._closed:
            left = deadline - time.monotonic()
            with self._polling:
                entries = self._poll(max(0.0, min(left, _NAP_S)))
            if time.monotonic() >= deadline:
                break
        return entries

    def _poll(self, wait_s: float) -> tuple[Entry, ...]:
        entries: tuple[Entry, ...] = ()
        if self._closed:
            return entries
        self._move()
        self._look()
        if not self._failures:
            first = self._consumer.poll(wait_s)
            if first is not None:
                entries = self._entries([first, *self._consumer.consume(_AT_ONCE, 0)])
        if self._failures and not entries:
            raise self._failures.popleft()
        return entries

    def _move(self) -> None:
        with self._lock:
            moves, self._moves = self._moves, []
        for is_end, run in groupby(moves, key=_is_end):
            places = [TopicPartition(topic, 0, start or 0) for topic, start in run]
            if is_end:
                self._consumer.incremental_unassign(places)
            else:
                self._consumer.incremental_assign(places)

    def _entries(self, messages: Sequence[Message]) -> tuple[Entry, ...]:
        entries = []
        with self._lock:
            for message in messages:
                topic, offset = Topic(message.topic() or ""), message.offset() or 0
                error = message.error()
                if error is not None:
                    self._note(topic, error)
                elif offset >= self._next.get(topic, offset + 1):
                    entry = self._entry(topic, offset, message)
                    if entry is not None:
                        entries.append(entry)
        return tuple(entries)

    def _entry(self, topic: Topic, offset: int, message: Message) -> Entry | None:
        """Rule 11: a record that does not carry the broker's append time halts its log."""
        kind, at_ms = message.timestamp()
        if kind != TIMESTAMP_LOG_APPEND_TIME:
            self._leave(topic, WronglyTimed(topic, offset))
            return None
        self._next[topic] = offset + 1
        return Entry(topic, Offset(offset), at_ms, message.value() or b"")

    def _note(self, topic: Topic, error: KafkaError) -> None:
        """Keep what cannot heal for the next poll; the client itself sees to the rest.

        A topic that a broker does not know may be there all the same: the next look decides. A
        right that was taken away may be given back.
        """
        if topic in self._next and error.code() in OUT_OF_RANGE:
            self._leave(topic, Truncated(topic, self._next[topic], error.str()))
        elif error.fatal():
            self._failures.append(read_fault("follow logs", error))
        else:
            if error.code() in GONE:
                self._unseen |= {topic}
            cause = str(read_fault(f"follow {topic}", error))
            log.warning("log reader is waiting", extra={"topic": topic, "cause": cause})

    def _leave(self, topic: Topic, failure: SlackwaterError) -> None:
        """The caller holds the lock."""
        self._failures.append(failure)
        del self._next[topic]
        self._moves.append((topic, None))

    def _look(self) -> None:
        """Notice deleted topics and silent brokers, both of which the client bears in silence.

        One lookup may have asked a broker that lags, and does not tell of topics that we have
        no right to: what is missing twice is gone if asked for by its name it is, too.
        """
        began = time.monotonic()
        if began < self._look_at:
            return
        try:
            there = self._consumer.list_topics(timeout=_LOOK_TIMEOUT_S).topics.keys()
            self._silent_since = None
        except KafkaException:
            there = self._next.keys()  # nobody answers: nothing is known
            self._silent_since = self._silent_since or began
        with self._lock:
            unseen = frozenset(self._next.keys() - there)
        gone = [topic for topic in unseen & self._unseen if self._is_gone(topic)]
        with self._lock:
            for topic in self._next.keys() & gone:
                self._leave(topic, Truncated(topic, self._next[topic], "the topic is gone"))
        self._unseen = unseen
        self._look_at = self._next_look(began)

    def _next_look(self, began: float) -> float:
        """When to look again, after the look that began then.

        One that nobody answered took as long as it waits: the end of a silence is not to go
        unnoticed for a hundred times that.
        """
        now = time.monotonic()
        took = 0.0 if self._silent_since is not None else now - began
        return now + max(_LOOK_EVERY_S, min(took * _LOOK_SHARE, _LOOK_AT_MOST_S))

    def _is_gone(self, topic: Topic) -> bool:
        """Whether a broker that is asked for this topic says that there is none."""
        try:
            found = self._consumer.list_topics(topic, timeout=_LOOK_TIMEOUT_S).topics.get(topic)
        except KafkaException:
            return False
        error = None if found is None else found.error
        if error is None:
            return found is None
        self._note(topic, error)
        return error.code() in GONE

    def silent_ms(self) -> int:
        """For how long no lookup was answered; one is made every few seconds."""
        since = self._silent_since
        return 0 if since is None else int((time.monotonic() - since) * 1000) + 1

    def close(self) -> None:
        """Release the connection; polls return at once."""
        self._closed = True
        with self._polling:
            self._consumer.close()


def _is_end(move: tuple[Topic, Offset | None]) -> bool:
    """Whether a log is to be left."""
    return move[1] is None
