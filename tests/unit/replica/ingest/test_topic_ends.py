"""The watch tells what the broker said last, and rings when that is something new."""

import math
import threading
from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa
import pytest

from streams.compute.reclocking import Ends
from streams.compute.stalls import TopicReport
from streams.errors import Determinate
from streams.ids import Offset, Topic
from streams.kafka.client.raw import RAW_SCHEMA
from streams.replica.ingest import topic_ends
from streams.replica.ingest.topic_ends import TopicEndsPoller

TOPIC = Topic("events")
ANSWER_S = 60.0


class Broker:
    """A broker with one topic; rings are counted, and waited for by what they told."""

    def __init__(self) -> None:
        self.id: str | None = "a"
        self.low = self.high = 0
        self.partitions = 1
        self.surveys = self.polls = 0
        self.size = 100
        self.reachable = True
        self.closed = False
        self.moved = threading.Condition()
        self.clock = 0
        self.watch = TopicEndsPoller(self, lambda _: self.id, self.ring, self.now_ms)

    def now_ms(self) -> int:
        self.clock += 1
        return self.clock

    def ends(self, topic: Topic) -> Mapping[int, tuple[Offset, Offset]]:
        self.surveys += 1
        high = self._high(topic)
        return {partition: (Offset(self.low), high) for partition in range(self.partitions)}

    def highs(self, topic: Topic, partitions: Collection[int]) -> Mapping[int, Offset]:
        self.polls += 1
        return dict.fromkeys(partitions, self._high(topic))

    def _high(self, topic: Topic) -> Offset:
        self.clock += 100
        if self.id is None or not self.reachable:
            raise Determinate(f"no ends of {topic}")
        return Offset(self.high)

    def fetch(
        self, topic: Topic, partition: int, lo: Offset, hi: Offset, limit: int | None = None
    ) -> pa.Table:
        columns = [[None], [bytes(self.size)], [partition], [lo]]
        return pa.table(columns, schema=RAW_SCHEMA)

    def rest(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def ring(self) -> None:
        with self.moved:
            self.moved.notify_all()

    def tells(self, expected: TopicReport | None) -> bool:
        """Whether that is what is told after a ring, or already."""
        with self.moved:
            return self.moved.wait_for(
                lambda: self.watch.ends().get(TOPIC) == expected, ANSWER_S
            )


@pytest.fixture
def broker() -> Iterator[Broker]:
    new_broker = Broker()
    yield new_broker
    new_broker.watch.close()
    assert new_broker.closed


def test_ends_are_told_as_they_move(broker):
    assert broker.watch.ends() == {}
    broker.watch.add(TOPIC)
    assert broker.tells(TopicReport("a", {0: Ends(0, 0)}))
    broker.high = 7
    assert broker.tells(TopicReport("a", {0: Ends(0, 7)}))


def test_the_answer_is_dated_from_before_the_question(broker):
    broker.watch.add(TOPIC)
    assert broker.tells(TopicReport("a", {0: Ends(0, 0)}))
    ends = broker.watch.ends()[TOPIC]
    assert ends.asked_ms % 101 == 1


def test_a_topic_that_cannot_be_asked_about_is_left_out(broker):
    broker.watch.add(TOPIC)
    assert broker.tells(TopicReport("a", {0: Ends(0, 0)}))
    broker.reachable = False
    assert broker.tells(None)
    broker.reachable = True
    assert broker.tells(TopicReport("a", {0: Ends(0, 0)}))


def test_a_topic_that_is_gone_is_told_without_an_id(broker):
    broker.watch.add(TOPIC)
    assert broker.tells(TopicReport("a", {0: Ends(0, 0)}))
    broker.id = None
    assert broker.tells(TopicReport(None, {}))


def test_the_ends_of_a_re_created_topic_come_under_its_new_id(broker):
    broker.high = 3
    broker.watch.add(TOPIC)
    assert broker.tells(TopicReport("a", {0: Ends(0, 3)}))
    broker.id, broker.high = "b", 2
    assert broker.tells(TopicReport("b", {0: Ends(0, 2)}))


def test_an_end_that_goes_back_is_remembered(broker):
    broker.high = 3
    broker.watch.add(TOPIC)
    assert broker.tells(TopicReport("a", {0: Ends(0, 3)}))
    broker.high = 2
    assert broker.tells(TopicReport("a", {0: Ends(0, 2)}, shrunk={0: 2}))
    broker.high = 9
    assert broker.tells(TopicReport("a", {0: Ends(0, 9)}, shrunk={0: 2}))
    broker.high = 5
    assert broker.tells(TopicReport("a", {0: Ends(0, 5)}, shrunk={0: 2}))
    assert broker.watch.ends()[TOPIC].losses == 2


def test_a_topic_that_is_removed_is_told_no_more(broker):
    broker.watch.add(TOPIC)
    assert broker.tells(TopicReport("a", {0: Ends(0, 0)}))
    broker.watch.remove(TOPIC)
    assert broker.watch.ends() == {}


def test_the_size_of_messages_is_told_with_the_first_ends_and_forgotten_with_the_topic(broker):
    broker.high = 5_000
    broker.watch.add(TOPIC)
    assert broker.tells(TopicReport("a", {0: Ends(0, 5_000)}))
    assert broker.watch.ends()[TOPIC].message_bytes == 100
    broker.id, broker.high = "b", 2
    assert broker.tells(TopicReport("b", {0: Ends(0, 2)}))
    assert broker.watch.ends()[TOPIC].message_bytes == 0


def test_most_polls_ask_for_ends_alone(broker, monkeypatch):
    broker.high = 5
    broker.watch.add(TOPIC)
    assert broker.tells(TopicReport("a", {0: Ends(0, 5)}))
    monkeypatch.setattr(topic_ends, "SURVEY_S", math.inf)
    surveys, broker.high = broker.surveys, 7
    assert broker.tells(TopicReport("a", {0: Ends(0, 7)}))
    broker.low, broker.partitions = 3, 2
    assert broker.surveys <= surveys + 1, "one may have been under way"
    monkeypatch.setattr(topic_ends, "SURVEY_S", 0.0)
    assert broker.tells(TopicReport("a", {0: Ends(3, 7), 1: Ends(3, 7)}))


def test_a_topic_that_was_created_again_with_more_partitions_has_them_at_once(
    broker, monkeypatch
):
    broker.high = 5
    broker.watch.add(TOPIC)
    assert broker.tells(TopicReport("a", {0: Ends(0, 5)}))
    monkeypatch.setattr(topic_ends, "SURVEY_S", math.inf)
    broker.id, broker.partitions, broker.high = "b", 2, 1
    assert broker.tells(TopicReport("b", {0: Ends(0, 1), 1: Ends(0, 1)}))
