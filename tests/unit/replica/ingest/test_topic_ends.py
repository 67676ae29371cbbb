"""The watch tells what the broker said last, and rings when that is something new."""

import math
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

import pyarrow as pa
import pytest

from streams.compute.reclocking import Ends
from streams.compute.stalls import TopicReport
from streams.errors import Determinate
from streams.ids import Offset, Topic
from streams.kafka.client.raw import RAW_SCHEMA
from streams.kafka.topics import Answers
from streams.replica.ingest import topic_ends
from streams.replica.ingest.topic_ends import TopicEndsPoller

T = TypeVar("T")

TOPIC, OTHER, MORE = Topic("events"), Topic("others"), Topic("more")
ANSWER_S = 60.0


class Broker:
    """A broker whose topics are alike; rings are waited for by what they told.

    Those that are `refused` cannot be asked about, and those that are `unled` have no leader.
    """

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
        self.refused: set[Topic] = set()
        self.unled: set[Topic] = set()
        self.together: set[frozenset[Topic]] = set()
        self.defect: Exception | None = None
        self.slow_s = self.silent_s = 0.0
        self.watch = TopicEndsPoller(self, self.ring, self.now_ms)

    def now_ms(self) -> int:
        self.clock += 1
        return self.clock

    def ends_of_all(
        self, topics: Collection[Topic]
    ) -> Answers[Mapping[int, tuple[Offset, Offset]]]:
        self.surveys += 1
        ends = Offset(self.low), Offset(self.high)
        return self._answers(topics, dict.fromkeys(range(self.partitions), ends))

    def highs_of_all(
        self, places: Mapping[Topic, Collection[int]]
    ) -> Answers[Mapping[int, Offset]]:
        self.polls += 1
        high = Offset(self.high)
        self.together.add(frozenset(places))
        return {
            topic: answer
            if isinstance(answer, Determinate)
            else dict.fromkeys(places[topic], answer)
            for topic, answer in self._answers(places, high).items()
        }

    def ids_of_all(self, topics: Collection[Topic]) -> Answers[str | None]:
        return dict.fromkeys(topics, self.id)

    def _answers(self, topics: Collection[Topic], answer: T) -> dict[Topic, T | Determinate]:
        self.clock += 100
        if self.defect is not None:
            raise self.defect
        if self.slow_s and self.refused >= set(topics):
            time.sleep(self.slow_s)
            self.silent_s += self.slow_s
        if not self.reachable:
            raise Determinate("no ends of any topic")
        refused = self.refused if self.id is not None else topics
        return {
            topic: Determinate(f"no ends of {topic}") if topic in refused else answer
            for topic in topics
            if topic not in self.unled
        }

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

    def tells(self, expected: TopicReport | None, topic: Topic = TOPIC) -> bool:
        """Whether that is what is told after a ring, or already."""
        with self.moved:
            return self.moved.wait_for(
                lambda: self.watch.ends().get(topic) == expected, ANSWER_S
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


def test_many_topics_are_asked_about_together(broker):
    for topic in (TOPIC, OTHER, MORE):
        broker.watch.add(topic)
    for topic in (TOPIC, OTHER, MORE):
        assert broker.tells(TopicReport("a", {0: Ends(0, 0)}), topic)
    deadline = time.monotonic() + ANSWER_S
    while frozenset({TOPIC, OTHER, MORE}) not in broker.together:
        assert time.monotonic() < deadline
        broker.high += 1
        time.sleep(0.01)


def test_a_topic_that_fails_costs_no_other_one_its_answer(broker):
    for topic in (TOPIC, OTHER):
        broker.watch.add(topic)
        assert broker.tells(TopicReport("a", {0: Ends(0, 0)}), topic)
    broker.refused = {OTHER}
    broker.high = 4
    assert broker.tells(TopicReport("a", {0: Ends(0, 4)}))
    assert broker.tells(None, OTHER)
    broker.refused, broker.high = set(), 5
    for topic in (TOPIC, OTHER):
        assert broker.tells(TopicReport("a", {0: Ends(0, 5)}), topic)


def test_without_a_leader_the_last_answer_counts_for_some_time(broker, monkeypatch):
    for topic in (TOPIC, OTHER):
        broker.watch.add(topic)
        assert broker.tells(TopicReport("a", {0: Ends(0, 0)}), topic)
    broker.unled = {OTHER}
    broker.high = 4
    assert broker.tells(TopicReport("a", {0: Ends(0, 4)}))
    assert broker.watch.ends()[OTHER] == TopicReport("a", {0: Ends(0, 0)})
    monkeypatch.setattr(topic_ends, "UNLED_S", 0.0)
    assert broker.tells(None, OTHER)
    broker.unled = set()
    assert broker.tells(TopicReport("a", {0: Ends(0, 4)}), OTHER)


def test_an_internal_error_is_survived_without_answers_of_before(broker):
    broker.watch.add(TOPIC)
    assert broker.tells(TopicReport("a", {0: Ends(0, 0)}))
    broker.defect = RuntimeError("results of another length")
    assert broker.tells(None)
    broker.defect, broker.high = None, 3
    assert broker.tells(TopicReport("a", {0: Ends(0, 3)}))


def test_messages_that_cannot_be_sampled_cost_no_answer(broker, monkeypatch):
    def fetch(*_: object) -> pa.Table:
        raise RuntimeError("a defect of the client")

    monkeypatch.setattr(broker, "fetch", fetch)
    broker.high = 5_000
    for topic in (TOPIC, OTHER):
        broker.watch.add(topic)
        assert broker.tells(TopicReport("a", {0: Ends(0, 5_000)}), topic)
    assert broker.watch.ends()[TOPIC].message_bytes == 0


def test_topics_of_which_a_broker_is_silent_take_a_fifth_of_the_time(broker, monkeypatch):
    monkeypatch.setattr(topic_ends, "LONGEST_S", 0.02)
    for topic in (TOPIC, OTHER):
        broker.watch.add(topic)
        assert broker.tells(TopicReport("a", {0: Ends(0, 0)}), topic)
    broker.slow_s, broker.refused = 0.1, {OTHER}
    assert broker.tells(None, OTHER)
    began, silent_s = time.monotonic(), broker.silent_s
    while broker.silent_s < silent_s + 3 * broker.slow_s:
        assert time.monotonic() < began + ANSWER_S
        time.sleep(0.01)
    assert time.monotonic() - began > 3 * 3 * broker.slow_s
