"""An admin client that gets no answer is replaced: it may never find a controller again."""

from collections.abc import Mapping
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from streams.ids import Topic
from streams.kafka.client import admin
from streams.kafka.client.admin import KafkaTopics
from streams.kafka.log import Unanswered


class Stuck:
    """A client whose every request times out."""

    def __init__(self) -> None:
        self.requests = 0

    def describe_topics(
        self, topics: TopicCollection, request_timeout: float
    ) -> Mapping[str, Future[object]]:
        self.requests += 1
        answer: Future[object] = Future()
        answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return {"t": answer}


def test_a_client_without_an_answer_is_replaced_and_a_young_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = [Stuck(), Stuck(), Stuck()]
    later = iter(clients[1:])
    topics = KafkaTopics(clients[0], another=lambda: next(later))  # type: ignore[arg-type, return-value]  # what of it is called
    for timeout_s, requests in ((0.0, [1, 0, 0]), (60.0, [1, 1, 0]), (60.0, [1, 2, 0])):
        monkeypatch.setattr(admin, "ANSWER_TIMEOUT_S", timeout_s)
        with pytest.raises(Unanswered):
            topics.describe(Topic("t"))
        assert [client.requests for client in clients] == requests
