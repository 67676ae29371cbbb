"""What a log's bounds are while the client has yet to be told of its topic."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams.errors import Determinate
from streams.ids import Topic
from streams.kafka.client import clients, logs
from streams.kafka.client.logs import KafkaLogs
from streams.kafka.log import Unanswered
from streams.kafka.settings import ClientSettings

LOG = Topic("sw.u1.log")


class Consumer:
    """The client: `answers` are errors or bounds; lookups know the log `lookups` times."""

    def __init__(self, *answers: int | tuple[int, int], lookups: int = 100) -> None:
        self.answers, self.lookups = deque(answers), lookups

    def get_watermark_offsets(self, place: object, timeout: float) -> tuple[int, int]:
        answer = self.answers.popleft()
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return answer

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        self.lookups -= 1
        error = None if self.lookups >= 0 else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(topics={LOG: SimpleNamespace(error=error, partitions=[0])})


def bounds(monkeypatch: pytest.MonkeyPatch, consumer: Consumer) -> tuple[int, int]:
    monkeypatch.setattr(logs, "_SETTLING_S", 0.0)
    monkeypatch.setattr(clients, "consumer", lambda *_: consumer)
    none: Any = None
    return KafkaLogs(ClientSettings("x:1"), none, none).bounds(LOG)


@pytest.mark.parametrize(
    "error",
    [
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    ],
)
def test_who_has_not_been_told_asks_again(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    assert bounds(monkeypatch, Consumer(error, error, (3, 7))) == (3, 7)


def test_a_log_that_is_gone_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer(*[KafkaError._UNKNOWN_PARTITION] * 5, lookups=2)
    with pytest.raises(Determinate, match=r"topic sw\.u1\.log does not exist"):
        bounds(monkeypatch, consumer)
    assert len(consumer.answers) == 3


@pytest.mark.parametrize(
    "error", [KafkaError.LEADER_NOT_AVAILABLE, KafkaError._UNKNOWN_PARTITION]
)
def test_what_is_not_settled_in_time_is_unanswered(
    monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """So that it is asked again for as long as it is worth while."""
    monkeypatch.setattr(clients, "ANSWER_TIMEOUT_S", -1.0)
    with pytest.raises(Unanswered, match=r"bounds of log sw\.u1\.log"):
        bounds(monkeypatch, Consumer(error))
