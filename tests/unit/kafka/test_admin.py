"""An admin client that gets no answer is replaced: it may never find a controller again."""

import time
from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from streams.ids import Topic
from streams.kafka.client import admin, clients
from streams.kafka.client.admin import KafkaTopics
from streams.kafka.client.reconnecting_client import ReconnectingClient
from streams.kafka.log import Unanswered
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicInfo
from tests.unit.kafka.admin_handshake import Speaking


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
    monkeypatch.setattr(admin, "_TRIES_S", (30.0,))
    stuck = [Stuck(), Stuck(), Stuck()]
    later = iter(stuck)
    topics = KafkaTopics(ReconnectingClient(lambda: next(later)))  # type: ignore[arg-type, return-value]  # what of it is called
    for timeout_s, requests in ((0.0, [1, 0, 0]), (60.0, [1, 1, 0]), (60.0, [1, 2, 0])):
        monkeypatch.setattr(clients, "ANSWER_TIMEOUT_S", timeout_s)
        with pytest.raises(Unanswered):
            topics.describe(Topic("t"))
        assert [client.requests for client in stuck] == requests


class Answering(Stuck):
    """A client that brokers answer."""

    def describe_topics(
        self, topics: TopicCollection, request_timeout: float
    ) -> Mapping[str, Future[object]]:
        self.requests += 1
        answer: Future[object] = Future()
        answer.set_result(SimpleNamespace(topic_id="id", partitions=[None]))
        return {"t": answer}


def test_a_topic_is_described_by_a_new_client_once_the_old_one_has_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Appends wait for it: a broker that dies with its machine closes no connection."""
    monkeypatch.setattr(clients, "ANSWER_TIMEOUT_S", 0.0)  # the old one is not young
    ways = [Stuck(), Answering()]
    later = iter(ways)
    topics = KafkaTopics(ReconnectingClient(lambda: next(later)))  # type: ignore[arg-type, return-value]  # as above
    assert topics.describe(Topic("t")) == TopicInfo("id", 1)
    assert [client.requests for client in ways] == [1, 1]
    assert sum(admin._TRIES_S) == 30.0
    assert topics.describe_all([]) == {}


@pytest.mark.parametrize("fenced", [0, 1, 4])
def test_a_controller_that_was_not_there_at_first_is_looked_for_again(
    monkeypatch: pytest.MonkeyPatch, fenced: int
) -> None:
    """Else a request waits its half a minute out, although the broker is in charge again."""
    monkeypatch.setattr(admin, "_LOOK_AGAIN_S", 0.2)
    broker = Speaking(fenced)
    client = clients.admin(ClientSettings(f"127.0.0.1:{broker.port}"))
    began = time.monotonic()
    assert KafkaTopics(ReconnectingClient(lambda: client)).describe(Topic("t")) is None
    assert time.monotonic() - began < clients.ANSWER_TIMEOUT_S / 2
    assert broker.asked > fenced
    broker.close()
