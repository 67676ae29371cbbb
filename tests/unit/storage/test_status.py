"""Brokers that do not answer: commands wait, the status says so, nothing is lost."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from streams.errors import Determinate
from streams.ids import Offset, Topic
from streams.kafka.client.retries import PatientChunks, PatientLogs, PatientTopics, RetryLimits
from streams.kafka.log import Entry, Tail, Truncated, Unanswered
from streams.kafka.memory.faulty import Fault, FaultyBroker, FaultyChunks
from streams.storage import Storage
from streams.storage.client import follower, notifications
from streams.storage.client.shards import Shards
from streams.storage.client.status import ClientStatus
from tests.support.storages import T1, T2, TABLE, Place, contents, write

IMPATIENT = RetryLimits(limit_ms=0, pause_ms=0)


@dataclass
class SilentTail:
    """A tail that reads nothing and says so while its line is cut; if deaf, without a word."""

    inner: Tail
    line: "Line"

    def poll(self, wait_ms: int) -> tuple[Entry, ...]:
        if self.line.silent_ms or self.line.is_deaf:
            threading.Event().wait(wait_ms / 1000)
            return ()
        return self.inner.poll(wait_ms)

    def silent_ms(self) -> int:
        return self.line.silent_ms

    def add(self, starts: Mapping[Topic, Offset]) -> None:
        self.inner.add(starts)

    def remove(self, topic: Topic) -> None:
        self.inner.remove(topic)

    def close(self) -> None:
        self.inner.close()


@dataclass
class Line:
    """The line between one client and the brokers, which can be cut."""

    place: Place
    silent_ms: int = 0
    is_deaf: bool = False
    told: list[ClientStatus] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.way = FaultyBroker(self.place.broker)
        self.way.logs.tail = lambda starts: SilentTail(  # type: ignore[method-assign]
            self.place.broker.logs.tail(starts), self
        )
        self.storage = self.client(RetryLimits(limit_ms=60_000, pause_ms=1))
        self.storage.watch(self.told.append)

    def client(self, patience: RetryLimits, *, pump: bool = True) -> Storage:
        way = self.way
        return Storage(
            Shards(
                PatientLogs(way.logs, patience),
                PatientChunks(way.chunks, patience),
                PatientTopics(way.topics, patience),
                now_ms=lambda: 0,
                pump=pump,
            )
        )

    def cut(self) -> None:
        self.silent_ms = 1_000
        self.way.logs.silent = self.way.chunks.silent = True

    def mend(self) -> None:
        self.way.logs.silent = self.way.chunks.silent = False
        self.silent_ms = 0


def until_told(line: Line) -> None:
    """Wait until the status changed; nothing is folded then, so no waiter is woken."""
    deadline = time.monotonic() + 60
    while not line.told:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def line() -> Line:
    return Line(Place())


def test_a_client_that_is_well_says_so(line: Line) -> None:
    assert line.storage.status() == ClientStatus()
    assert line.storage.status().is_well
    assert str(line.storage.status()) == "the brokers answer"
    line.storage.close()


def test_commands_wait_while_no_broker_answers(line: Line) -> None:
    read, writer = line.storage.create(T1, TABLE)
    line.cut()
    done = threading.Event()

    def work() -> None:
        write(line.storage, writer, 5, ("a", 1, 3, 1))
        done.set()

    working = threading.Thread(target=work)
    working.start()
    until_told(line)
    assert not done.wait(0.2)
    status = line.storage.status()
    assert status.silent_ms
    assert not status.is_well
    assert "no broker has answered for 1 s: waiting" in str(status)
    line.mend()
    working.join(60)
    assert done.is_set()
    subscription = line.storage.subscribe_at(line.storage.downgrade(read, 4))
    delivery = subscription.next(10_000)
    assert delivery is not None
    assert contents(delivery.updates) == {("a", 1, 4): 1}
    assert [bool(status.silent_ms) for status in line.told] == [True, False]
    line.storage.close()


def test_reading_back_is_waited_for_as_well(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The produce came through, and then the brokers were gone for longer than our patience."""
    _, writer = line.storage.create(T1, TABLE)
    monkeypatch.setattr(follower, "PATIENCE_MS", 300)
    line.silent_ms = 1_000  # only what is read is cut
    timer = threading.Timer(1, line.mend)
    timer.start()
    assert write(line.storage, writer, 5, ("a", 1, 3, 1)).frontier.time == 5
    timer.join()
    line.storage.close()


@dataclass
class TimedTail:
    """A tail that reads nothing and moves a clock; brokers are silent from 0.1 to 0.9 s."""

    now_s: float = 0.0

    def poll(self, wait_ms: int) -> tuple[Entry, ...]:
        self.now_s += wait_ms / 1000
        return ()

    def silent_ms(self) -> int:
        return 1 if 0.1 <= self.now_s < 0.9 else 0

    def close(self) -> None: ...


@pytest.mark.parametrize(("known_at_s", "is_known"), [(0.05, True), (1.7, True), (2.5, False)])
def test_patience_begins_anew_when_a_silence_is_over(
    monkeypatch: pytest.MonkeyPatch, known_at_s: float, is_known: bool
) -> None:
    """Which was within the time that is waited: it is not counted."""
    tail = TimedTail()
    monkeypatch.setattr(follower, "PATIENCE_MS", 1_000)
    clock = SimpleNamespace(monotonic=lambda: tail.now_s)
    monkeypatch.setattr(follower, "time", clock)
    monkeypatch.setattr(notifications, "time", clock)
    logs = SimpleNamespace(tail=lambda starts: tail)
    waiting = follower.GroupFollower(logs, lambda topic: None, pump=False)
    assert waiting.await_answered(lambda: tail.now_s >= known_at_s) == is_known
    assert tail.now_s < 2
    waiting.close()


def test_patience_has_an_end(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    _, writer = line.storage.create(T1, TABLE)
    hurried = line.client(IMPATIENT)
    hurried.heartbeat(writer)
    line.cut()
    with monkeypatch.context() as patch:
        patch.setattr(follower, "PATIENCE_MS", 20)
        with pytest.raises(Determinate, match="no chunk was linked"):
            write(hurried, writer, 5, ("a", 1, 3, 1))
        with pytest.raises(Unanswered, match="injected silence"):
            hurried.create(T2, TABLE)
    line.mend()
    assert write(line.storage, writer, 5, ("a", 1, 3, 1)).frontier.time == 5
    hurried.close()
    line.storage.close()


@pytest.mark.parametrize("first", ["the command", "the pump"])
def test_a_failed_group_is_in_the_status_and_told(line: Line, first: str) -> None:
    _, writer = line.storage.create(T1, TABLE)
    _, other = line.storage.create(T2, TABLE)
    names = line.storage.shards.names(T1)
    line.is_deaf = True  # the pump notices nothing
    line.place.broker.topics.delete([names.log, names.data])
    if first == "the pump":
        line.is_deaf = False
        until_told(line)
    with pytest.raises(Determinate, match=names.log):
        write(line.storage, writer, 5)
    line.is_deaf = False
    write(line.storage, other, 5)
    until_told(line)
    with pytest.raises(Truncated, match=names.log):
        line.storage.acquire_capabilities(T1)
    status = line.storage.status()
    assert set(status.failed) == {T1}
    assert names.log in str(status)
    assert not status.is_well
    assert line.told[-1].failed == status.failed
    line.storage.close()


def test_who_watches_no_more_is_not_told(line: Line) -> None:
    statuses: list[ClientStatus] = []
    line.storage.watch(statuses.append)()
    line.cut()
    until_told(line)
    assert not statuses
    line.storage.close()


def test_a_chunk_in_doubt_is_written_anew_under_another_key() -> None:
    place = Place()
    storage = place.client()
    _, writer = storage.create(T1, TABLE)
    faulty = FaultyChunks(place.broker.chunks, [Fault.AFTER, Fault.INSTEAD, Fault.AFTER])
    patient = PatientChunks(faulty, RetryLimits(pause_ms=0))
    topic = storage.shards.data_topic(writer.id)
    (ref,) = patient.write(topic, [(b"body", 1)], {})
    assert patient.fetch(topic, [ref]) == [b"body"]
    partitions = place.broker.store.topic(topic).partitions
    assert sum(partition.end for partition in partitions) == 3  # two of them orphans


def test_an_event_is_sent_again_for_as_long_as_no_broker_answers(line: Line) -> None:
    """More often than an event in doubt is sent again when brokers answer."""
    _, writer = line.storage.create(T1, TABLE)
    shards = Shards(
        line.way.logs, line.way.chunks, line.way.topics, now_ms=lambda: 0, resend_ms=(1, 1)
    )
    hurried = Storage(shards)
    hurried.heartbeat(writer)
    line.cut()
    timer = threading.Timer(0.5, line.mend)
    timer.start()
    assert hurried.heartbeat(writer) == writer
    timer.join()
    assert len(line.way.logs.pending) > 10
    hurried.close()
    line.storage.close()


@dataclass
class UntoldTail(TimedTail):
    """Silent until 1 s; a poll that tells so comes later."""

    def silent_ms(self) -> int:
        return 1 if 0.1 <= self.now_s < 1 else 0


def test_patience_begins_anew_before_the_end_of_a_silence_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tail = UntoldTail()
    monkeypatch.setattr(follower, "PATIENCE_MS", 1_000)
    clock = SimpleNamespace(monotonic=lambda: tail.now_s)
    monkeypatch.setattr(follower, "time", clock)
    monkeypatch.setattr(notifications, "time", clock)
    waiting = follower.GroupFollower(
        SimpleNamespace(tail=lambda starts: tail), lambda topic: None, pump=False
    )
    monkeypatch.setattr(
        waiting._notifications, "_told", ClientStatus(1, {})
    )  # by the thread that polls
    tail.now_s = 0.5
    waited = list[int]()

    def wait(predicate: Callable[[], bool], timeout_ms: int, groups: object) -> bool:
        waited.append(timeout_ms)
        tail.now_s += timeout_ms / 1000
        return len(waited) == 2

    monkeypatch.setattr(waiting, "wait", wait)
    assert waiting.await_answered(lambda: False)
    assert waited == [1_000, 1_000]
    waiting.close()
