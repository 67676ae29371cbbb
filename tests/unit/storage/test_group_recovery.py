"""A group that cannot be followed concerns itself only, and heals when the cause is gone."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from streams.errors import Corrupt, Determinate, SlackwaterError
from streams.ids import CollectionId, EventId, Offset, Timestamp, Topic
from streams.kafka.log import Entry, Tail, Truncated
from streams.kafka.memory.logs import MemoryBroker, MemoryLogs
from streams.storage.client import follower, maintenance, retries
from streams.storage.client.group import Group
from streams.storage.client.retries import RetryQueue, RetryResult
from streams.storage.client.shards import Shards
from streams.storage.log import event_codec, rollup
from streams.storage.log.events import Advance, Event
from streams.storage.log.outcomes import Advanced, Unavailable
from tests.support.shard_clients import DESCRIPTION, U1, append, broker, client, grow

LOG = Topic("sw.u1.log")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(retries, "LONGEST_PAUSE_S", 0.01)


@pytest.fixture
def kafka() -> MemoryBroker:
    return broker()


def advance(one: Shards, group: str = "u1") -> object:
    now = one.state(CollectionId(group)).upper.time
    return one.submit([(group, Advance(Timestamp(now), Timestamp(now + 1)))])[0]


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def same(one: Shards, other: Shards) -> bool:
    return rollup.encode(one.group_state("u1")) == rollup.encode(other.group_state("u1"))


def leave_behind(one: Shards) -> None:
    """Truncate the log by two Rollups and more, far beyond where it was."""
    while one.logs.bounds(LOG)[0] < 200:
        grow(one, one.group_state("u1").upto + 100)
        maintenance.roll_up(one, "u1")


@pytest.mark.parametrize("pump", [False, True])
def test_who_was_away_while_the_log_was_truncated_goes_on_from_the_rollup(
    kafka: MemoryBroker, pump: bool
) -> None:
    """It used to be lost to this client for good, though nothing is."""
    with client(kafka) as one, client(kafka, pump=pump) as other:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        other.open("u1")
        polling = other.following._polling
        with polling:
            leave_behind(one)
        other.sync(U1)
        assert same(one, other)
        assert other.status().is_well
        assert isinstance(advance(other), Advanced)
        one.sync(U1)
        assert same(one, other)


def test_what_was_in_doubt_while_away_and_is_forgotten_is_not_known(
    kafka: MemoryBroker,
) -> None:
    """It may have counted: it must not be sent again as another event."""
    with client(kafka) as one, client(kafka) as other:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        other.open("u1")
        group = other.following.group("u1")
        event = Event(EventId("e"), group.uuid, group.state.upto, Advance(0, 1))  # type: ignore[arg-type]
        other.following.expect([("u1", event)])
        kafka.logs.append([(LOG, event_codec.encode(event))])
        while one.group_state("u1").upto < 2_600:
            one.submit([("u1", Advance(Timestamp(7), Timestamp(8)))] * 200)
            maintenance.roll_up(one, "u1")
        other.sync(U1)
        outcome = other.following.outcome(event.id)
        assert isinstance(outcome, Unavailable)
        assert "does not remember outcomes so far back" in outcome.reason
        # one that is remembered is found, though it was not read back one by one
        late = Event(EventId("f"), group.uuid, one.group_state("u1").upto, Advance(7, 8))  # type: ignore[arg-type]
        other.following.expect([("u1", late)])
        kafka.logs.append([(LOG, event_codec.encode(late))])
        leave_behind_by(one, 200)
        other.sync(U1)
        outcome = other.following.outcome(late.id)
        assert outcome is not None
        assert not isinstance(outcome, Unavailable)


def leave_behind_by(one: Shards, count: int) -> None:
    low = one.logs.bounds(LOG)[0]
    end = one.logs.bounds(LOG)[1]
    while low <= end:
        one.submit([("u1", Advance(Timestamp(7), Timestamp(8)))] * count)
        maintenance.roll_up(one, "u1")
        low = one.logs.bounds(LOG)[0]


def test_a_log_that_lost_its_end_is_not_opened_again(kafka: MemoryBroker) -> None:
    with client(kafka) as one, client(kafka) as other:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        grow(one, 5)
        other.open("u1")
        kafka.store.log(LOG).records[-2:] = []
        kafka.store.log(LOG).end -= 2
        with pytest.raises(Truncated, match="it ends at offset"):
            other.sync(U1)
        for _ in range(3):
            other.following.advance(0)
            with pytest.raises(Truncated, match="it ends at offset"):
                other.open("u1")


def test_a_log_that_cannot_be_read_is_opened_again_when_it_can(
    kafka: MemoryBroker,
) -> None:
    with client(kafka) as one, client(kafka, pump=True) as other:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        grow(one, 5)
        other.open("u1")
        stored = kafka.store.log(LOG)
        kafka.logs.append([(LOG, b"noise")])
        until(lambda: not other.status().is_well)
        with pytest.raises(Corrupt):
            other.state(U1)
        stored.records.pop()  # as if an operator had mended it
        stored.end -= 1
        until(lambda: other.status().is_well)
        one.following.heal("u1")
        grow(one, 9)
        other.sync(U1)
        assert same(one, other)


def test_open_tries_a_failed_group_again_at_once(kafka: MemoryBroker) -> None:
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        one.following.fail(LOG, Corrupt("noise"))
        with pytest.raises(Corrupt, match="noise"):
            one.state(U1)
        one.open("u1")
        assert isinstance(advance(one), Advanced)


class LaggingTail:
    """A tail whose broker does not know of a topic yet, for some looks."""

    def __init__(self, inner: Tail, misses: dict[Topic, int]) -> None:
        self.inner, self.misses = inner, misses

    def add(self, starts: Mapping[Topic, Offset]) -> None:
        for topic in starts:
            if self.misses.get(topic, 0):
                self.misses[topic] -= 1
                raise Determinate(f"topic {topic} does not exist")
        self.inner.add(starts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class Lagging(MemoryLogs):
    """Logs whose first tail, that of the follower, lags."""

    inner: MemoryBroker
    misses: dict[Topic, int] = field(default_factory=dict)
    is_first: bool = True

    def tail(self, starts: Mapping[Topic, Offset]) -> Tail:
        tail = self.inner.logs.tail(starts)
        first, self.is_first = self.is_first, False
        return LaggingTail(tail, self.misses) if first else tail

    def __getattribute__(self, name: str) -> Any:
        own = {"inner", "misses", "is_first", "tail", "__class__"}
        at = object.__getattribute__
        return at(self, name) if name in own else getattr(at(self, "inner").logs, name)


@pytest.mark.parametrize("pump", [False, True])
def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again(
    kafka: MemoryBroker, pump: bool
) -> None:
    """One miss used to fail the group for good."""
    logs = Lagging(kafka, {LOG: 3})
    with client(kafka, logs=logs, pump=pump) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        one.create("u2", CollectionId("u2"), DESCRIPTION, Timestamp(0))
        assert isinstance(advance(one), Advanced)
        assert isinstance(advance(one, "u2"), Advanced)
        assert one.status().is_well
    assert not logs.misses[LOG]


def test_a_topic_that_is_not_there_for_long_fails_its_group_and_heals_late(
    kafka: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "PATIENCE_TO_FOLLOW_S", 0.0)
    logs = Lagging(kafka, {LOG: 1})
    with client(kafka, logs=logs) as one:
        opened = one.following._reopened

        def lagging(group: Any) -> Any:
            raise Determinate("topic does not exist")

        one.following._reopened = lagging
        with pytest.raises(SlackwaterError, match="in no open group"):
            one.create("u1", U1, DESCRIPTION, Timestamp(0))
        assert "does not exist" in one.status().failed["u1"]
        one.create("u2", CollectionId("u2"), DESCRIPTION, Timestamp(0))
        one.following._reopened = opened
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        assert isinstance(advance(one), Advanced)


def test_a_callback_that_raises_concerns_itself_only(kafka: MemoryBroker) -> None:
    """It used to end the pump, and all collections of the client with it."""
    with client(kafka, pump=True) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        received = threading.Event()

        def broken(_: object) -> None:
            raise ZeroDivisionError

        one.subscribe(broken)
        one.following.watch(broken)
        one.subscribe(lambda moved: received.set())
        assert isinstance(advance(one), Advanced)
        assert received.wait(60)
        one.following.fail(LOG, Corrupt("noise"))
        until(lambda: one.status().is_well)
        assert isinstance(advance(one), Advanced)
        assert one.defect is None


class Batches(LaggingTail):
    """A tail that hands out all of what came as one poll."""

    def poll(self, wait_ms: int) -> tuple[Entry, ...]:
        entries = self.inner.poll(wait_ms)
        return (*entries, *self.inner.poll(0)) if entries else ()


def stray() -> bytes:
    return event_codec.encode(
        Event(EventId("stray"), "another", Offset(0), Advance(Timestamp(0), Timestamp(1)))
    )


@pytest.mark.parametrize("pump", [False, True])
def test_a_stray_event_of_one_group_takes_no_others_records_with_it(
    kafka: MemoryBroker, pump: bool
) -> None:
    """Brokers that cannot be asked about it used to end the fold in the middle of a poll."""
    with client(kafka) as one, client(kafka, pump=pump) as other:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        one.create("u2", CollectionId("u2"), DESCRIPTION, Timestamp(0))
        other.open("u1", "u2")

        def silent(topic: Topic) -> str | None:
            raise Determinate("no right to ask")

        with other.following._polling:
            other.following._identify = silent
            kafka.logs.append([(LOG, stray())])
            advance(one, "u2")
            append(one, 0, 1)
        other.sync()
        assert other.group_state("u2").upto == one.group_state("u2").upto
        assert same(one, other)
        assert other.status().is_well


def test_a_record_that_our_fold_fails_on_concerns_its_group_only(
    kafka: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client(kafka) as one, client(kafka) as other:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        one.create("u2", CollectionId("u2"), DESCRIPTION, Timestamp(0))
        other.open("u1", "u2")
        advance(one)
        advance(one, "u2")
        real = Group.fold

        def failing(self: Any, entry: Entry) -> Any:
            if entry.topic == LOG:
                raise OverflowError("int too big")
            return real(self, entry)

        with monkeypatch.context() as patch:
            patch.setattr(Group, "fold", failing)
            other.sync_group("u2")
            with pytest.raises(Corrupt, match="cannot be folded: OverflowError"):
                other.sync_group("u1")
        other.open("u1")
        assert same(one, other)


def tries(*results: RetryResult) -> Iterator[RetryResult]:
    yield from results


def test_a_healer_tries_until_it_is_done() -> None:
    results = tries(RetryResult.ILL, RetryResult.GONE, RetryResult.DONE)
    done = threading.Event()

    def attempt(name: str) -> RetryResult:
        result = next(results)
        if result is RetryResult.DONE:
            done.set()
        return result

    retry_queue = RetryQueue(attempt, background=True)
    retry_queue.soon("a")
    assert done.wait(60)
    retry_queue.close()


def test_a_healer_is_stopped_by_no_error() -> None:
    tried: list[str] = []

    def attempt(name: str) -> RetryResult:
        tried.append(name)
        if name == "a":
            raise OSError
        return RetryResult.DONE

    retry_queue = RetryQueue(attempt, background=False)
    retry_queue.soon("a")
    retry_queue.soon("b")
    retry_queue.try_due()
    assert tried == ["a", "b"]
    retry_queue.forget("a")
    retry_queue.try_due()
    assert tried == ["a", "b"]
