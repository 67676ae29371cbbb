"""What is made of answers about offsets while partitions change their leaders."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from itertools import chain, repeat
from threading import Timer
from types import SimpleNamespace

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it re-exports without saying so
    OffsetSpec,
)

from streams.ids import Offset, Topic
from streams.kafka.client import chunks, logs, offsets
from streams.kafka.log import ChunkRef, Unanswered

TOPIC = Topic("orders")
NO_OFFSET = -1001
PLACE = TopicPartition(TOPIC, 0)


def done(value: object) -> Future[object]:
    future: Future[object] = Future()
    if isinstance(value, BaseException):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


class Admin:
    """An admin client of a topic with one partition; it answers with these offsets in turn."""

    def __init__(self, answered: Iterator[int]) -> None:
        self.answered = answered

    def describe_topics(
        self, topics: object, request_timeout: float
    ) -> Mapping[str, Future[object]]:
        partition = SimpleNamespace(id=0)
        return {TOPIC: done(SimpleNamespace(topic_id="id", partitions=[partition]))}

    def list_offsets(
        self,
        wanted: Mapping[TopicPartition, OffsetSpec],
        isolation_level: IsolationLevel,
        request_timeout: float,
    ) -> Mapping[TopicPartition, Future[object]]:
        return {place: done(SimpleNamespace(offset=next(self.answered))) for place in wanted}


def test_an_answer_without_an_offset_is_asked_for_again() -> None:
    admin = Admin(iter([0, NO_OFFSET, NO_OFFSET, 0, 7]))
    assert offsets.ends(admin, TOPIC) == {0: (0, 7)}  # type: ignore[arg-type]  # what of it is called


def test_without_an_offset_in_time_nobody_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "ANSWER_TIMEOUT_S", 0.1)
    for ask in (offsets.ends, lambda admin, topic: offsets.at_time(admin, topic, 5)):
        with pytest.raises(Unanswered, match="no offset was answered"):
            ask(Admin(chain([0], repeat(NO_OFFSET))), TOPIC)  # type: ignore[arg-type]  # as above


def test_no_record_after_a_time_is_the_end() -> None:
    assert offsets.at_time(Admin(iter([-1, 7])), TOPIC, 5) == {0: 7}  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._TIMED_OUT])
def test_a_topic_without_an_id_does_not_exist_if_brokers_say_so(code: int) -> None:
    error = done(KafkaException(KafkaError(code)))
    admin = SimpleNamespace(describe_topics=lambda *_, **__: {TOPIC: error})
    if code == KafkaError._TIMED_OUT:
        answer = offsets.ids_of_all(admin, [TOPIC], 1.0)[TOPIC]  # type: ignore[arg-type]  # as above
        assert isinstance(answer, Unanswered)
        assert "id of topic orders" in str(answer)
    else:
        assert offsets.ids_of_all(admin, [TOPIC], 1.0) == {TOPIC: None}  # type: ignore[arg-type]  # as above


def test_of_many_topics_one_without_an_offset_has_no_answer() -> None:
    other = Topic("customers")
    admin = Admin(iter([4, NO_OFFSET]))
    answers = offsets.highs_of_all(admin, {TOPIC: [0], other: [0]}, 1.0)  # type: ignore[arg-type]  # as above
    assert answers == {TOPIC: {0: 4}}


class Consumer:
    """A consumer that answers with these bounds in turn."""

    def __init__(self, *bounds: tuple[int, int]) -> None:
        self.bounds = iter(bounds)

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        return next(self.bounds)


def test_bounds_of_a_log_are_offsets() -> None:
    consumer = Consumer((0, NO_OFFSET), (NO_OFFSET, 7), (3, 7))
    assert logs._watermarks(consumer, TOPIC) == (3, 7)  # type: ignore[arg-type]  # as above


def test_no_chunk_is_missing_where_no_end_was_answered() -> None:
    ref = ChunkRef(0, Offset(5), "key", 0, 1, 1)
    check: Callable[..., None] = chunks._check_stable
    with pytest.raises(Unanswered, match="look up the end of orders"):
        check(Consumer((0, NO_OFFSET)), TOPIC, [ref])
    check(Consumer((0, 6)), TOPIC, [ref])


def test_ends_are_asked_for_when_the_starts_are_answered() -> None:
    """Else retention could move a start beyond an end that was answered before it."""
    lows: list[Future[object]] = []

    class Slow(Admin):
        def list_offsets(
            self,
            wanted: Mapping[TopicPartition, OffsetSpec],
            isolation_level: IsolationLevel,
            request_timeout: float,
        ) -> Mapping[TopicPartition, Future[object]]:
            if lows:
                assert lows[0].done()
                return super().list_offsets(wanted, isolation_level, request_timeout)
            lows.append(Future())
            answer = SimpleNamespace(offset=3)
            Timer(0.05, lows[0].set_result, [answer]).start()
            return dict.fromkeys(wanted, lows[0])

    answers = offsets.ends_of_all(Slow(iter([7])), [TOPIC], 1.0)  # type: ignore[arg-type]  # as above
    assert answers == {TOPIC: {0: (3, 7)}}
