"""What a tail makes of the client's errors: one topic's trouble heals, or it is truncated."""

from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from streams.ids import Offset, Topic
from streams.kafka.client import clients, tail, watchdog
from streams.kafka.client.consumer_assignment import FEW
from streams.kafka.client.tail import KafkaTail
from streams.kafka.client.watchdog import MetadataClient
from streams.kafka.log import Truncated
from streams.kafka.settings import ClientSettings
from streams.storage.client import follower

LOG = Topic("sw.u1.log")


def told(offset: int, error: int | None = None) -> Message:
    """A record of the log, or an error."""
    return Message(
        topic=LOG,
        partition=0,
        offset=offset,
        value=b"record",
        timestamp=(TIMESTAMP_LOG_APPEND_TIME, 1_000),
        error=None if error is None else KafkaError(error),
    )


class Consumer:
    """The client: it returns `messages`; lookups of the log return `lookup_error`."""

    def __init__(self, messages: Sequence[Message], lookup_error: int | None) -> None:
        self.messages, self.lookup_error, self.lookups = deque(messages), lookup_error, 0

    def incremental_assign(self, places: object) -> None: ...
    def incremental_unassign(self, places: object) -> None: ...
    def close(self) -> None: ...

    def poll(self, wait_s: float) -> Message | None:
        return self.messages.popleft() if self.messages else None

    def consume(self, count: int, wait_s: float) -> list[Message]:
        return []

    def offsets_for_times(self, places: object, timeout: float) -> list[TopicPartition]:
        return []

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> SimpleNamespace:
        self.lookups += 1
        error = None if self.lookup_error is None else KafkaError(self.lookup_error)
        metadata = {LOG: SimpleNamespace(error=error)}
        return SimpleNamespace(topics=metadata if topic or error is None else {})


def following_log(*, others: int = 0) -> KafkaTail:
    """A tail of the log, and of others."""
    settings = ClientSettings("x:1")
    starts = {LOG: Offset(7)} | {Topic(f"other.{n}"): Offset(0) for n in range(others)}
    return KafkaTail(settings, starts, lambda _: None, MetadataClient(settings))


Follow = Callable[..., tuple[KafkaTail, Consumer]]


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Follow:
    """Follow the log from offset 7, looking it up at every poll."""
    monkeypatch.setattr(watchdog, "_LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(watchdog, "_LOOK_SHARE", 0)

    def made(
        *messages: Message, lookup_error: int | None = None, others: int = 0
    ) -> tuple[KafkaTail, Consumer]:
        consumer = Consumer(messages, lookup_error)
        monkeypatch.setattr(clients, "consumer", lambda *_: consumer)
        return following_log(others=others), consumer

    return made


@pytest.mark.parametrize(
    "error",
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError._TRANSPORT,
    ],
)
def test_what_may_heal_is_waited_for(follow: Follow, error: int) -> None:
    following, _ = follow(told(7, error), told(7))
    assert following.poll(0) == ()
    assert [entry.offset for entry in following.poll(0)] == [7]


@pytest.mark.parametrize(
    "error",
    [KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION],
)
def test_an_offset_that_is_gone_is_fatal_at_once(follow: Follow, error: int) -> None:
    following, _ = follow(told(7, error), told(7))
    with pytest.raises(Truncated, match="from offset 7"):
        following.poll(0)


def test_a_topic_that_is_missed_twice_is_gone(follow: Follow) -> None:
    following, _ = follow(
        told(7, KafkaError.UNKNOWN_TOPIC_OR_PART), lookup_error=KafkaError.UNKNOWN_TOPIC_OR_PART
    )
    assert following.poll(0) == ()
    with pytest.raises(Truncated, match="the topic is gone"):
        following.poll(0)


def test_a_topic_that_we_may_not_see_is_not_gone(
    follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    """Lookups of all topics leave it out, as if there were none."""
    following, consumer = follow(lookup_error=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    for _ in range(5):
        assert following.poll(0) == ()
    assert consumer.lookups > 5
    assert "grant" in caplog.records[-1].cause  # type: ignore[attr-defined]  # our own field
    consumer.lookup_error = None
    consumer.messages.append(told(7))
    assert [entry.offset for entry in following.poll(0)] == [7]


def test_a_topic_of_many_that_a_broker_does_not_know_is_looked_up_among_all(
    follow: Follow,
) -> None:
    """Else a look asks for one topic, however many are followed."""
    following, consumer = follow(lookup_error=None, others=FEW)
    requests = list[str | None]()
    deleted = set[str]()  # empty at first: which of the many is asked for by name nobody knows

    def all_but_the_log(topic: str | None = None, timeout: float = 0) -> SimpleNamespace:
        requests.append(topic)
        names = [topic] if topic else [f"other.{n}" for n in range(FEW)]
        error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        there = {n: SimpleNamespace(error=error if n in deleted else None) for n in names}
        return SimpleNamespace(topics=there)

    consumer.list_topics = all_but_the_log  # type: ignore[method-assign]
    for _ in range(5):
        assert following.poll(0) == ()
    assert len(requests) == 5
    assert None not in requests
    deleted.add(LOG)
    consumer.messages.append(told(7, KafkaError.UNKNOWN_TOPIC_OR_PART))
    assert following.poll(0) == ()
    with pytest.raises(Truncated, match="the topic is gone"):
        following.poll(0)


def test_the_end_of_a_silence_is_noticed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a lookup waits for brokers that say nothing."""
    now = [100.0]
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: now[0]))

    class Silent(Consumer):
        def list_topics(self, topic: str | None = None, timeout: float = 0) -> SimpleNamespace:
            self.lookups += 1
            if self.lookup_error is None:
                return SimpleNamespace(topics={LOG: SimpleNamespace(error=None)})
            now[0] += timeout
            raise KafkaException(KafkaError(self.lookup_error))

    consumer = Silent((), KafkaError._TRANSPORT)
    monkeypatch.setattr(clients, "consumer", lambda *_: consumer)
    waiting = following_log()
    consumer.lookups = 0
    for _ in range(3):
        now[0] += watchdog._LOOK_EVERY_S
        waiting.poll(0)
        assert waiting.silent_ms() > 0
    assert consumer.lookups == 3
    consumer.lookup_error = None
    now[0] += watchdog._LOOK_EVERY_S
    waiting.poll(0)
    assert waiting.silent_ms() == 0


def test_a_wait_of_a_part_of_a_tick_is_not_spent_polling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka cuts a wait to whole milliseconds, so its rest would be a busy loop."""
    now, polls = [100.0], 0
    monkeypatch.setattr(tail, "time", SimpleNamespace(monotonic=lambda: now[0]))

    class Whole(Consumer):
        def poll(self, wait_s: float) -> Message | None:
            nonlocal polls
            polls += 1
            now[0] += int(wait_s * 1000) / 1000 + 1e-5
            return None

    monkeypatch.setattr(clients, "consumer", lambda *_: Whole((), None))
    waiting = following_log()
    waiting.poll(20)
    assert polls == 1
    assert now[0] >= 100.019
    now[0], polls = 100.0, 0
    waiting.poll(120)
    assert polls == 3
    waiting.poll(0)
    assert polls == 4


def test_a_silence_is_noticed_before_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the lookups are that are answered."""
    now = [100.0]
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: now[0]))

    class Slow(Consumer):
        def list_topics(self, topic: str | None = None, timeout: float = 0) -> SimpleNamespace:
            self.lookups += 1
            now[0] += 0.9
            return SimpleNamespace(topics={LOG: SimpleNamespace(error=None)})

    consumer = Slow((), None)
    monkeypatch.setattr(clients, "consumer", lambda *_: consumer)
    waiting = following_log()
    consumer.lookups = 0
    now[0] += watchdog._LOOK_EVERY_S
    waiting.poll(0)
    now[0] += 10
    waiting.poll(0)
    assert consumer.lookups == 1, "slow lookups are rare"
    now[0] += follower.PATIENCE_MS / 1000 - 10
    waiting.poll(0)
    assert consumer.lookups == 2
