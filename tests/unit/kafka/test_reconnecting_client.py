"""A client that lost its brokers for good is replaced: librdkafka's issue 5301.

Each stand-in answers nothing for ever; only another client does.
"""

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams.errors import Determinate, Indeterminate
from streams.ids import Offset, Topic
from streams.kafka.client import clients, unread, watchdog
from streams.kafka.client.chunks import KafkaChunks
from streams.kafka.client.logs import KafkaLogs
from streams.kafka.client.positions import KafkaPositions
from streams.kafka.client.producer import Outgoing, Sender
from streams.kafka.client.raw import RawReader
from streams.kafka.client.reconnecting_client import ReconnectingClient
from streams.kafka.client.tail import KafkaTail
from streams.kafka.client.watchdog import MetadataClient
from streams.kafka.log import Unanswered
from streams.kafka.settings import ClientSettings

SETTINGS = ClientSettings("x:1")
LOG = Topic("log")
TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Answering:
    """A consumer that has brokers."""

    def __init__(self) -> None:
        self.assigned: list[tuple[str, int]] = []
        self.is_closed = False

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> SimpleNamespace:
        one = SimpleNamespace(error=None, partitions={0: None})
        return SimpleNamespace(topics={LOG: one}, brokers={1: None})

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        return 3, 5

    def committed(self, places: list[Any], timeout: float) -> list[Any]:
        return []

    def incremental_assign(self, places: list[Any]) -> None:
        self.assigned += [(place.topic, place.offset) for place in places]

    def poll(self, wait_s: float) -> None:
        return None

    def close(self) -> None:
        self.is_closed = True


class CutOff(Answering):
    """A consumer that lost its brokers."""

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> SimpleNamespace:
        raise TIMED_OUT

    def committed(self, places: list[Any], timeout: float) -> list[Any]:
        raise TIMED_OUT


Made = list[Any]


@pytest.fixture
def first_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> Made:
    """The first consumer answers nothing, those after it do. Returns those that were made."""
    created: Made = []

    def consumer(*_: object) -> Answering:
        created.append(Answering() if created else CutOff())
        return created[-1]  # type: ignore[no-any-return]

    monkeypatch.setattr(clients, "consumer", consumer)
    monkeypatch.setattr(clients, "ANSWER_TIMEOUT_S", 0.0)
    monkeypatch.setattr(watchdog, "_CONNECTED_S", 0.0)
    return created


REQUESTS: dict[str, Callable[[], Callable[[], object]]] = {
    "bounds": lambda: _bound(KafkaLogs(SETTINGS, Sender(SETTINGS), _no_admin()).bounds, LOG),
    "partitions of chunks": lambda: _bound(
        KafkaChunks(SETTINGS)._readers["read_uncommitted"].count, LOG
    ),
    "positions": lambda: _bound(KafkaPositions(SETTINGS, "g").load, LOG, 1),
}


def _bound(call: Callable[..., object], *arguments: object) -> Callable[[], object]:
    return lambda: call(*arguments)


def _no_admin() -> ReconnectingClient[Any]:
    return ReconnectingClient(lambda: None)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_without_an_answer_is_made_by_another_client_next(
    name: str, first_is_cut_off: Made
) -> None:
    request = REQUESTS[name]()
    with pytest.raises(Unanswered):
        request()
    request()
    assert len(first_is_cut_off) == 2


def test_a_silence_ends_although_the_client_lost_its_brokers(first_is_cut_off: Made) -> None:
    metadata = MetadataClient(SETTINGS)
    assert metadata.topics(LOG) is None
    assert metadata.topics(LOG) == {LOG: None}
    metadata.close()
    assert first_is_cut_off[-1].is_closed


def test_a_client_that_has_just_been_made_may_still_connect(
    first_is_cut_off: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_CONNECTED_S", 60.0)
    metadata = MetadataClient(SETTINGS)
    assert metadata.topics(LOG) is None
    assert metadata.topics(LOG) is None
    assert len(first_is_cut_off) == 1


def test_other_errors_replace_no_client() -> None:
    numbers: Iterator[int] = itertools.count()
    clients_ = ReconnectingClient(lambda: next(numbers), youngest_s=0)
    assert clients_.get() == 0
    for error in (
        KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
        Determinate("topic t does not exist"),
        ValueError(),
    ):
        clients_.failed(error)
        assert clients_.get() == 0
    clients_.failed(Indeterminate("create topics: not done within 30 s"))
    assert clients_.get() == 1
    assert clients_.drop() == 1
    assert clients_.get() == 2


class Late:
    """A producer that reports every record as timed out, or, once `writes`, as stored."""

    def __init__(self, *, writes: bool) -> None:
        self.writes, self.reports = writes, list[Any]()

    def produce(self, *_: object, on_delivery: Any, **__: object) -> None:
        self.reports.append(on_delivery)

    def poll(self, _: float) -> int:
        error = None if self.writes else KafkaError(KafkaError._MSG_TIMED_OUT)
        for report in self.reports:
            report(error, SimpleNamespace(partition=lambda: 0, offset=lambda: 7))
        return len(self.reports)


def test_a_producer_whose_records_are_late_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    producers = iter([Late(writes=False), Late(writes=True)])
    monkeypatch.setattr(clients, "producer", lambda *_: next(producers))
    sender = Sender(SETTINGS)
    with pytest.raises(Indeterminate):
        sender.send([Outgoing(LOG, b"x")])
    (delivered,) = sender.send([Outgoing(LOG, b"x")])
    assert delivered.offset == 7


class Silent(Answering):
    """A consumer that reads nothing."""

    def assign(self, places: object) -> None: ...

    def consume(self, count: int, wait_s: float) -> list[Any]:
        return []


def test_a_reader_of_a_raw_topic_without_an_answer_has_another_consumer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    created: Made = []

    def consumer(*_: object) -> Silent:
        created.append(Silent())
        return created[-1]  # type: ignore[no-any-return]

    monkeypatch.setattr(clients, "consumer", consumer)
    monkeypatch.setattr(clients, "ANSWER_TIMEOUT_S", -1.0)
    reader = RawReader(SETTINGS)
    for _ in range(2):
        with pytest.raises(Determinate, match="no answer in time"):
            reader.fetch(LOG, 0, Offset(0), Offset(1))
    assert [one.is_closed for one in created] == [True, True]


class Reporting(Answering):
    """A consumer that reports what it has queued when it is closed, as librdkafka's does."""

    on_error: Any = None

    def close(self) -> None:
        super().close()
        self.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))


def test_a_tail_whose_consumer_lost_all_brokers_goes_on_with_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once a broker answers another client; until then a new one could do no better."""
    monkeypatch.setattr(watchdog, "_LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(watchdog, "_LOOK_SHARE", 0)
    followers: Made = []
    metadata = SimpleNamespace(topics=lambda *_: None, ends=lambda _: {}, close=lambda: None)

    def consumer(*arguments: Any) -> Answering:
        followers.append(Reporting())
        followers[-1].on_error = arguments[3]
        return followers[-1]  # type: ignore[no-any-return]

    monkeypatch.setattr(clients, "consumer", consumer)
    tail = KafkaTail(SETTINGS, {LOG: Offset(7)}, lambda _: None, metadata)  # type: ignore[arg-type]  # what of it is called
    followers[0].on_error(KafkaError(KafkaError._TRANSPORT))
    followers[0].on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    tail.poll(0)
    assert len(followers) == 1
    metadata.topics = lambda *_: {LOG: None}
    tail.poll(0)
    tail.poll(0)
    assert [one.assigned for one in followers] == [[(LOG, 7)], [(LOG, 7)]]
    assert followers[0].is_closed
    for _ in range(3):
        tail.poll(0)
    assert len(followers) == 2


def test_a_consumer_that_lost_its_brokers_and_does_not_say_so_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log has more than was read, for longer than a slow broker takes."""
    for name in ("_LOOK_EVERY_S", "_LOOK_SHARE"):
        monkeypatch.setattr(watchdog, name, 0)
        monkeypatch.setattr(unread, name, 0)
    monkeypatch.setattr(unread, "_LOOK_AGAIN_S", 0)
    followers: Made = []
    ends = {LOG: 7}
    metadata = SimpleNamespace(topics=lambda *_: {LOG: None}, ends=lambda _: ends)

    def consumer(*_: object) -> Answering:
        followers.append(Answering())
        return followers[-1]  # type: ignore[no-any-return]

    monkeypatch.setattr(clients, "consumer", consumer)
    tail = KafkaTail(SETTINGS, {LOG: Offset(7)}, lambda _: None, metadata)  # type: ignore[arg-type]  # what of it is called
    for _ in range(3):
        tail.poll(0)
    assert len(followers) == 1, "all was read"
    ends[LOG] = 8
    for _ in range(3):
        tail.poll(0)
    assert len(followers) == 1, "it may be on its way"
    monkeypatch.setattr(unread, "_PATIENCE_S", 0.0)
    ends[LOG] = 7
    tail.poll(0)
    ends[LOG] = 8
    for _ in range(3):
        tail.poll(0)
    assert [one.assigned for one in followers[:2]] == [[(LOG, 7)], [(LOG, 7)]]
    assert followers[0].is_closed
