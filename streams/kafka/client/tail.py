"""Follows many logs with two consumers, assigned by `streams.kafka.client.consumer_assignment`.

Invariant: only the polling thread uses the consumers. A client serialises threads unfairly:
while one polls in a loop, another's call may starve. So `add` and `remove` queue requests, and
the poll, which never sleeps for long, executes them.

Other requests to brokers use another client: responses come in the order of the requests of a
connection, so behind a fetch that waits for seconds.

Logs are read with `read_uncommitted`: the order of offsets alone decides (rule 1), and an
abandoned transaction may not block a log. Topics that clients write are read with `COMMITTED`:
aborted records do not count (rule 30).
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import groupby

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from streams.errors import SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.client import clients
from streams.kafka.client.consumer_assignment import ConsumerSlot, ConsumerSlots
from streams.kafka.client.error_mapping import (
    ALL_DOWN,
    END_OF_PARTITION,
    GONE,
    OUT_OF_RANGE,
    read_fault,
)
from streams.kafka.client.unread import UnreadLogs
from streams.kafka.client.watchdog import MetadataClient, TopicWatchdog
from streams.kafka.log import Entry, Truncated
from streams.kafka.settings import ClientSettings
from streams.values import uncollected

log = logging.getLogger(__name__)

MEANING: Mapping[str, clients.Setting] = {"isolation.level": "read_uncommitted"}
COMMITTED: Mapping[str, clients.Setting] = {"isolation.level": "read_committed"}
PACE: Mapping[ConsumerSlot, Mapping[str, clients.Setting]] = {
    # A fetch names every log that is followed: a thousand cost us 4 ms, 20 the broker. A record
    # ends the wait at once; only the first look at a log that is added waits for its end. So
    # does the news that nothing follows the mark of a transaction: it has to come before the
    # patience with a log that stands (`unread`) is over.
    ConsumerSlot.IDLE: {"fetch.wait.max.ms": 5_000, "fetch.message.max.bytes": 1 << 20},
    ConsumerSlot.BUSY: {"fetch.wait.max.ms": 50, "fetch.message.max.bytes": 1 << 20},
}
# which consumer took a log over?
_ENDS: Mapping[str, clients.Setting] = {"enable.partition.eof": True}

_AT_ONCE = 10_000  # most entries returned by one poll
_NAP_S = 0.05  # longest delay of `add` and `remove`; the polling thread wakes this often
_TURN_S = 0.01  # longest delay of the idle consumer's records by the busy one
_TICK_S = 0.001  # librdkafka waits for whole milliseconds, and for less not at all
_REST_EVERY_S = 1.0  # how often busy logs are checked for idleness
_LEARN_S = 1.0  # how long to wait for the leader of a log; the consumer keeps asking


class KafkaTail:
    """Follows logs. `poll` and `close` are serialised; any thread may call `add` and `remove`.

    `require` raises unless all given topics are existing logs.
    """

    def __init__(
        self,
        settings: ClientSettings,
        starts: Mapping[Topic, Offset],
        require: Callable[[Collection[Topic]], None],
        metadata: MetadataClient,
        meaning: Mapping[str, clients.Setting] = MEANING,
    ) -> None:
        self._settings, self._meaning = settings, {**meaning, **_ENDS}
        self._require = require
        self._consumers: dict[ConsumerSlot, Consumer] = {}
        self._polling = threading.Lock()  # its holder may use the consumers
        self._lock = threading.Lock()  # guards _slots
        self._slots = ConsumerSlots()
        self._rest_at = 0.0
        self._idle_has_begun = False
        self._cut_off: set[ConsumerSlot] = set()  # their consumers lost all brokers
        self._unread = UnreadLogs(metadata)
        self._had_nothing = False  # whether a poll was empty since the last look
        self._failures: deque[SlackwaterError] = deque()
        self._watchdog = TopicWatchdog(metadata, self._note)
        self._closed = False
        if starts:
            self.add(starts)
            with self._polling:
                self._move()

    def add(self, starts: Mapping[Topic, Offset]) -> None:
        """Follow more logs; they have to exist."""
        self._require(starts)
        with self._lock:
            self._slots.add(starts, time.monotonic())

    def remove(self, topic: Topic) -> None:
        """Stop following a log; ignored if it is not followed."""
        with self._lock:
            self._slots.remove(topic)

    def poll(self, wait_ms: int) -> tuple[Entry, ...]:
        """New entries; the first one ends the wait. A failure is raised by a later poll."""
        deadline = time.monotonic() + wait_ms / 1000
        entries: tuple[Entry, ...] = ()
        while not entries and not self._closed:
            left = deadline - time.monotonic()
            with self._polling:
                entries = self._poll(max(0.0, min(left, _NAP_S)))
            if deadline - time.monotonic() < _TICK_S:
                break  # polling on for a part of a tick would only burn processor time
        return entries

    def _poll(self, wait_s: float) -> tuple[Entry, ...]:
        entries: tuple[Entry, ...] = ()
        if self._closed:
            return entries
        self._move()
        if self._watchdog.is_due:
            self._look()
        if not self._failures:
            entries = self._read(wait_s)
            self._had_nothing |= not entries
        if self._failures and not entries:
            raise self._failures.popleft()
        return entries

    def _read(self, wait_s: float) -> tuple[Entry, ...]:
        """Return new records: of the busy logs, then of the idle ones."""
        entries: tuple[Entry, ...] = ()
        if self._slots.is_busy:
            entries = self._take(ConsumerSlot.BUSY, min(wait_s, _TURN_S))
            wait_s = 0.0
        return entries or self._take(ConsumerSlot.IDLE, wait_s)

    def _take(self, slot: ConsumerSlot, wait_s: float) -> tuple[Entry, ...]:
        consumer = self._consumer(slot)
        first = consumer.poll(wait_s)
        if first is None:
            return ()
        with uncollected():
            return self._entries(slot, [first, *consumer.consume(_AT_ONCE, 0)])

    def _consumer(self, slot: ConsumerSlot) -> Consumer:
        consumer = self._consumers.get(slot)
        if consumer is None:
            consumer = clients.consumer(
                self._settings, self._meaning, PACE[slot], partial(self._note_loss, slot)
            )
            self._consumers[slot] = consumer
        return consumer

    def _note_loss(self, slot: ConsumerSlot, error: KafkaError) -> None:
        if error.code() == ALL_DOWN:
            self._cut_off.add(slot)

    def _replace_cut_off(self) -> None:
        """Replace the consumers that lost all brokers: one may never connect again (`renewal`).

        It is done once a broker answers another client.
        """
        for slot in tuple(self._cut_off):
            log.info("a consumer lost its brokers: a new one takes over", extra={"slot": slot})
            consumer = self._consumers.pop(slot, None)
            if consumer is not None:
                consumer.close()
            with self._lock:
                self._slots.begin_again(slot)
        self._cut_off.clear()  # with what a consumer reported when it was closed

    def _move(self) -> None:
        """Apply the pending assignments of both consumers."""
        now = time.monotonic()
        with self._lock:
            if now >= self._rest_at:
                self._slots.rest(now)
                self._rest_at = now + _REST_EVERY_S
            if not self._slots.is_moving:
                return  # each of a hundred polls a second
            moves = {slot: list(self._slots.taken(slot)) for slot in ConsumerSlot}
        for slot, wanted in moves.items():
            for is_end, run in groupby(wanted, key=_is_end):
                places = [TopicPartition(topic, 0, start or 0) for topic, start in run]
                if is_end:
                    self._consumer(slot).incremental_unassign(places)
                else:
                    self._assign(slot, places)

    def _assign(self, slot: ConsumerSlot, places: list[TopicPartition]) -> None:
        """Assign logs after looking up their leaders: a consumer itself looks once a second.

        Behind a fetch of the idle consumer the lookup would wait; but the logs that it takes
        over are read meanwhile.
        """
        consumer = self._consumer(slot)
        if slot is ConsumerSlot.BUSY or not self._idle_has_begun:
            self._idle_has_begun = self._idle_has_begun or slot is ConsumerSlot.IDLE
            only_topic = places[0].topic if len(places) == 1 else None
            with contextlib.suppress(KafkaException):
                consumer.list_topics(only_topic, timeout=_LEARN_S)
        consumer.incremental_assign(places)

    def _entries(self, slot: ConsumerSlot, messages: Sequence[Message]) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        now = time.monotonic()
        with self._lock:
            for message in messages:
                topic, offset = Topic(message.topic() or ""), message.offset() or 0
                error = message.error()
                if error is None:
                    if self._slots.record(slot, topic, offset, now):
                        entries.append(entry_of(topic, offset, message))
                elif error.code() == END_OF_PARTITION:
                    self._slots.reached_end(slot, topic, offset)
                else:
                    self._note(topic, error)
        return tuple(entries)

    def _note(self, topic: Topic, error: KafkaError) -> None:
        """Keep errors that cannot heal for the next poll; the client handles the others.

        A topic that a broker does not know may still exist: the next check decides. A
        permission that was revoked may be granted again.
        """
        position = self._slots.next(topic)
        if position is not None and error.code() in OUT_OF_RANGE:
            self._leave(topic, Truncated(topic, position, error.str()))
        elif error.fatal():
            self._failures.append(read_fault("follow logs", error))
        else:
            if error.code() in GONE:
                self._watchdog.suspect(topic)
            cause = str(read_fault(f"follow {topic}", error))
            log.warning("log reader is waiting", extra={"topic": topic, "cause": cause})

    def _leave(self, topic: Topic, failure: SlackwaterError) -> None:
        """Stop following a log. The caller holds the lock."""
        self._failures.append(failure)
        self._slots.remove(topic)

    def _look(self) -> None:
        with self._lock:
            followed = self._slots.topics
        gone = self._watchdog.look(followed)
        if self._watchdog.silent_ms():
            self._unread.silence()
        else:
            self._note_unread()
            self._replace_cut_off()
        with self._lock:
            for topic in gone:
                position = self._slots.next(topic)
                if position is not None:
                    self._leave(topic, Truncated(topic, position, "the topic is gone"))

    def _note_unread(self) -> None:
        """Find consumers that lost their brokers and do not say so.

        A tail that always has records waiting may only be behind: it is left alone.
        """
        if not self._had_nothing:
            return
        self._had_nothing = False
        with self._lock:
            places = self._slots.places()
        unread = self._unread.look(places)
        if not unread:
            return
        log.warning("a log is not read", extra={"topics": len(unread), "one": min(unread)})
        with self._lock:
            for topic in unread:
                self._cut_off |= self._slots.readers(topic)

    def silent_ms(self) -> int:
        """Return for how long no liveness check was answered; one runs every few seconds."""
        return self._watchdog.silent_ms()

    def close(self) -> None:
        """Release the connections; polls return at once."""
        self._closed = True
        with self._polling:
            for consumer in self._consumers.values():
                consumer.close()
            self._consumers.clear()


def entry_of(topic: Topic, offset: int, message: Message) -> Entry:
    """Convert a record."""
    kind, at_ms = message.timestamp()
    is_append_time = kind == TIMESTAMP_LOG_APPEND_TIME
    return Entry(topic, Offset(offset), at_ms, message.value() or b"", is_append_time)


def _is_end(move: tuple[Topic, Offset | None]) -> bool:
    """Whether the request is to leave a log."""
    return move[1] is None
