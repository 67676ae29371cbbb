"""Which logs are not read, though they have more: by places, ends and time."""

import itertools
from collections.abc import Collection, Mapping
from types import SimpleNamespace

import pytest

from streams.ids import Topic
from streams.kafka.client import tail, unread
from streams.kafka.client.consumer_assignment import ConsumerSlot
from streams.kafka.client.unread import Standing, UnreadLogs

LOG, OTHER = Topic("log"), Topic("other")
P = unread._PATIENCE_S
NONE: frozenset[Topic] = frozenset()


def test_a_log_that_was_read_to_its_end_may_stand_for_ever() -> None:
    standing = Standing()
    for now in range(0, 10_000, 100):
        assert standing.judge({LOG: 7, OTHER: 0}, {LOG: 7}, now) == NONE
    assert not standing


def test_an_idle_consumer_says_that_it_read_all_before_the_patience_ends() -> None:
    """Behind the mark of a transaction only the end of a fetch tells that nothing follows."""
    wait_ms = tail.PACE[ConsumerSlot.IDLE]["fetch.wait.max.ms"]
    assert int(wait_ms) <= 1_000 * P / 2


def test_a_log_that_has_more_has_the_patience_from_when_that_is_seen() -> None:
    standing = Standing()
    assert standing.judge({LOG: 7, OTHER: 3}, {LOG: 8, OTHER: 3}, 100) == NONE
    assert standing
    assert standing.judge({LOG: 7, OTHER: 3}, {LOG: 9, OTHER: 4}, 100 + P - 1) == NONE
    assert standing.judge({LOG: 7, OTHER: 3}, {LOG: 9, OTHER: 4}, 100 + P) == {LOG}


def test_a_log_that_is_read_slowly_is_read() -> None:
    standing = Standing()
    for place in range(100):
        assert standing.judge({LOG: place}, {LOG: 1_000}, P * place) == NONE


def test_the_patience_doubles_until_the_log_moves() -> None:
    standing, times = Standing(), list[int]()
    for now in range(200):
        if standing.judge({LOG: 7}, {LOG: 8}, float(now)):
            times.append(now)
    assert times == [10, 30, 70, 150]
    standing.judge({LOG: 8}, {LOG: 8}, 200.0)
    assert standing.judge({LOG: 8}, {LOG: 9}, 300.0) == NONE
    assert standing.judge({LOG: 8}, {LOG: 9}, 300.0 + P) == {LOG}


def test_silence_begins_anew() -> None:
    standing = Standing()
    standing.judge({LOG: 7}, {LOG: 8}, 0.0)
    standing.forget()
    assert standing.judge({LOG: 7}, {LOG: 8}, P) == NONE


class Told:
    """Answers with these ends, one after another, and then with none."""

    def __init__(self, *ends: Mapping[Topic, int] | None) -> None:
        self.ends_, self.asked = iter(ends), 0

    def ends(self, topics: Collection[Topic]) -> Mapping[Topic, int] | None:
        self.asked += 1
        return next(self.ends_, None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(unread, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def looks(told: Told, clock: list[float], seconds: int, logs: UnreadLogs) -> list[int]:
    """Look every second; when a log was found."""
    times = []
    for now in itertools.islice(itertools.count(int(clock[0])), seconds):
        clock[0] = now
        if logs.look({LOG: 7}):
            times.append(now)
    return times


def test_ends_are_asked_for_rarely_and_more_often_while_a_log_stands(
    clock: list[float],
) -> None:
    told = Told({LOG: 7}, *[{LOG: 8}] * 100)
    logs = UnreadLogs(told)
    assert looks(told, clock, 20, logs) == []
    assert told.asked == 1
    assert looks(told, clock, 14, logs) == [32], "seen at 20"
    logs.look({})
    assert told.asked == 6, "at 10 and 20, then every three seconds"


def test_the_first_answer_after_a_silence_is_followed_by_a_look(clock: list[float]) -> None:
    told = Told(*[{LOG: 8}] * 100)
    logs = UnreadLogs(told)
    logs.silence()
    assert looks(told, clock, 14, logs) == [12]


def test_who_gets_no_answer_finds_nothing(clock: list[float]) -> None:
    told = Told({LOG: 8}, None, {LOG: 8}, {LOG: 8})
    logs = UnreadLogs(told)
    logs.silence()
    assert looks(told, clock, 12, logs) == []
    assert told.asked == 2
