"""What a reader of raw topics makes of the client's errors."""

from collections import deque
from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from streams.errors import Determinate
from streams.ids import Offset, Topic
from streams.kafka.client import clients
from streams.kafka.client.raw import RawReader
from streams.kafka.log import Truncated
from streams.kafka.settings import ClientSettings

TOPIC = Topic("orders")


def told(offset: int, error: int | None = None) -> Message:
    """A record, or an error."""
    error_ = None if error is None else KafkaError(error)
    return Message(topic=TOPIC, partition=0, offset=offset, value=b"x", error=error_)


class Consumer:
    """The client: it tells what it is given."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = deque(messages)
        self.looked_up: list[str] = []
        self.is_assigned, self.end = False, 0

    def list_topics(self, topic: str, timeout: float) -> None:
        self.looked_up.append(topic)
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def close(self) -> None: ...

    def assign(self, places: object) -> None:
        self.is_assigned = True

    def unassign(self) -> None:
        self.is_assigned = False

    def consume(self, count: int, wait_s: float) -> list[Message]:
        return [self.messages.popleft()] if self.messages else []

    def get_watermark_offsets(self, at: object, *, cached: bool) -> tuple[int, int]:
        return 0, self.end


def fetched(monkeypatch: pytest.MonkeyPatch, error: int) -> list[int]:
    """The offsets of `[3, 5)`, when an error comes amid them."""
    consumer = Consumer([told(3), told(4, error), told(4)])
    monkeypatch.setattr(clients, "consumer", lambda *_: consumer)
    reader = RawReader(ClientSettings("x:1"))
    offsets: list[int] = reader.fetch(TOPIC, 0, Offset(3), Offset(5))["offset"].to_pylist()
    return offsets


@pytest.mark.parametrize("error", [KafkaError._TRANSPORT, KafkaError.NOT_LEADER_FOR_PARTITION])
def test_who_is_not_answered_now_waits(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    assert fetched(monkeypatch, error) == [3, 4]


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (KafkaError.OFFSET_OUT_OF_RANGE, Truncated, "partition 0"),
        (KafkaError._BAD_MSG, Determinate, "_BAD_MSG"),  # the client would pass it in silence
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Determinate, "grant this client's user READ"),
        (KafkaError._UNKNOWN_PARTITION, Determinate, "fetch orders/0"),
    ],
)
def test_what_does_not_heal_is_told(
    monkeypatch: pytest.MonkeyPatch, error: int, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        fetched(monkeypatch, error)
    assert type(caught.value) is kind


def test_a_further_topic_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that is connected would look itself only after up to a second."""
    consumer = Consumer([])
    monkeypatch.setattr(clients, "consumer", lambda *_: consumer)
    reader = RawReader(ClientSettings("x:1"))
    for topic in ("one", "two", "one", "two", "three"):
        consumer.messages.append(Message(topic=topic, partition=0, offset=0, value=b"x"))
        assert reader.fetch(Topic(topic), 0, Offset(0), Offset(1)).num_rows == 1
    assert consumer.looked_up == ["two", "three"]
    reader.close()
    consumer.messages.append(Message(topic="two", partition=0, offset=0, value=b"x"))
    reader.fetch(Topic("two"), 0, Offset(0), Offset(1))
    assert consumer.looked_up == ["two", "three"]


def test_a_reader_reads_ahead_while_more_is_to_come_and_until_it_rests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Consumer([told(3), told(4), told(5), told(6, KafkaError.TOPIC_EXCEPTION)])
    consumer.end = 9
    monkeypatch.setattr(clients, "consumer", lambda *_: consumer)
    reader = RawReader(ClientSettings("x:1"))
    reader.rest()
    assigned = [consumer.is_assigned]
    reader.fetch(TOPIC, 0, Offset(3), Offset(5))
    assigned.append(consumer.is_assigned)
    reader.rest()
    assigned.append(consumer.is_assigned)
    reader.fetch(TOPIC, 0, Offset(5), Offset(6))
    assigned.append(consumer.is_assigned)
    with pytest.raises(Determinate):
        reader.fetch(TOPIC, 0, Offset(6), Offset(9))
    assert [*assigned, consumer.is_assigned] == [False, True, False, True, False]
