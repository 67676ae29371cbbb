"""The times of one session never decrease, and it waits for what is defined but not made."""

import itertools
import threading

import pytest

from streams.adapter import sessions
from streams.adapter.results import Complete, Failed, Notice, Progress, Result, Rows
from streams.adapter.sessions import Session, Sessions
from streams.compute.protocol import Status
from streams.errors import Determinate
from streams.ids import CollectionId, Timestamp
from tests.support.coordinators import NOW, TOTALS, rows_of, with_orders
from tests.support.processes import eventually


@pytest.fixture
def behind(env):
    """A view that is ten behind its source."""
    replica = with_orders(env)
    replica.append("s1", NOW + 1)
    env.rows(TOTALS)
    eventually(lambda: len(replica.created) == 2)
    replica.append("s1", NOW + 20, [((1, 2.0), NOW + 15, 1)])
    replica.append("u2", NOW + 10)
    return replica


def as_of(results: list[Result]) -> object:
    last = results[-1]
    assert isinstance(last, Complete), last
    return last.facts["as_of"]


def read(env, text: str, session: Session, results: list[Result]) -> threading.Thread:
    thread = threading.Thread(
        target=lambda: results.extend(env.coordinator.execute(text, session))
    )
    thread.start()
    return thread


def test_a_view_is_not_read_before_what_its_source_was_read_at(env, behind) -> None:
    session, results = Session(), list[Result]()
    seen = list(env.coordinator.execute("SELECT * FROM orders", session))
    assert (as_of(seen), session.time) == (NOW + 19, NOW + 19)
    reading = read(env, "SELECT * FROM totals", session, results)
    behind.append("u2", NOW + 19, [((1, 2.0), NOW + 15, 1)])
    reading.join(0.3)
    assert reading.is_alive()
    behind.append("u2", NOW + 20)
    reading.join(60)
    assert as_of(results) == NOW + 19
    assert rows_of(results) == [[1, 2.0]]
    assert as_of(env.sql("SELECT * FROM totals")) == NOW + 19


def test_the_statements_of_one_text_are_a_session(env, behind, monkeypatch) -> None:
    monkeypatch.setattr("streams.adapter.collection_reads.BEAT_MS", 10)
    stream = env.coordinator.execute("SELECT * FROM orders; SELECT * FROM totals")
    results = list(itertools.takewhile(lambda result: not isinstance(result, Notice), stream))
    assert as_of([result for result in results if isinstance(result, Complete)]) == NOW + 19
    behind.append("u2", NOW + 20)
    assert as_of(list(stream)) == NOW + 19


def test_a_read_says_what_it_waits_for(env, behind, monkeypatch) -> None:
    monkeypatch.setattr("streams.adapter.collection_reads.BEAT_MS", 10)
    session = Session(Timestamp(NOW + 19))
    stream = env.coordinator.execute("SELECT * FROM totals", session)
    notice = next(notice for notice in stream if isinstance(notice, Notice))
    assert notice.message == (
        f"waits for totals to come to {NOW + 19}, the time of this session's last read; AS OF"
        " reads earlier"
    )
    stream.close()


def test_as_of_takes_no_part(env, behind) -> None:
    session = Session(Timestamp(NOW + 19))
    text = f"SELECT * FROM totals AS OF {NOW + 5}"
    assert as_of(list(env.coordinator.execute(text, session))) == NOW + 5
    later = Session()
    list(env.coordinator.execute(f"SELECT * FROM orders AS OF {NOW + 18}", later))
    assert later.time is None
    assert as_of(list(env.coordinator.execute("SELECT * FROM totals", later))) == NOW + 9


def test_what_a_subscription_delivered_is_in_the_past_of_its_session(env, behind) -> None:
    session = Session(Timestamp(NOW + 3))
    stream = env.coordinator.execute("SUBSCRIBE orders", session)
    list(itertools.islice(stream, 3))
    assert session.time == NOW + 19
    behind.append("s1", NOW + 30)
    next(
        progress
        for progress in stream
        if isinstance(progress, Progress) and progress.frontier.time > NOW + 20
    )
    assert session.time == NOW + 29
    stream.close()
    late = env.coordinator.execute("SUBSCRIBE totals", session)
    assert isinstance(next(late), Progress)
    late.close()


def test_sealed_collections_do_not_end_a_session_s_time(env) -> None:
    replica = with_orders(env)
    replica.append("s1", None, [((1, 1.0), NOW, 1)])
    session = Session()
    assert len(rows_of(list(env.coordinator.execute("SELECT * FROM orders", session)))) == 1
    assert session.time is None


def test_a_session_that_is_named_is_told_its_time(env, behind) -> None:
    session = env.coordinator.sessions.get("mine")
    (*_, last) = env.coordinator.execute("SELECT * FROM orders", session)
    assert last == Complete("SELECT 1", {"as_of": NOW + 19, "session_time": NOW + 19})


def test_sessions_are_forgotten_when_they_are_idle_or_too_many(monkeypatch) -> None:
    monkeypatch.setattr(sessions, "MOST", 2)
    now = [0.0]
    registry = Sessions(lambda: now[0])
    first, second = registry.get("a"), registry.get("b")
    assert registry.get("a") is first
    registry.get("c")
    assert registry.get("a") is first
    assert registry.get("b") is not second
    now[0] += sessions.IDLE_S + 1
    assert registry.get("b") is registry.get("b")
    assert registry.get("a") is not first


@pytest.fixture
def unmade(env, monkeypatch):
    """A view that is defined, and cannot be made until the fixture is called."""
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    real = env.broker.topics.create

    def refuse(specs):
        if any(".g2." in spec.name for spec in specs):
            raise Determinate("the cluster has no room")
        real(specs)

    monkeypatch.setattr("streams.adapter.collection_reads.BEAT_MS", 10)
    monkeypatch.setattr(env.broker.topics, "create", refuse)
    env.sql(TOTALS)

    def make() -> None:
        monkeypatch.setattr(env.broker.topics, "create", real)
        eventually(lambda: len(replica.created) == 2)
        replica.append("u2", NOW + 10, [((1, 1.0), NOW + 9, 1)])

    return make


WAITS = Notice("waits for totals, which is not created yet: the cluster has no room")


@pytest.mark.parametrize("statement", ["SELECT * FROM totals", "SUBSCRIBE totals"])
def test_what_is_defined_but_not_made_is_waited_for(env, unmade, statement) -> None:
    stream = env.coordinator.execute(statement)
    results = [next(stream), next(stream)]
    assert results == [WAITS, Progress(results[1].frontier)]
    unmade()
    results += itertools.takewhile(lambda _: len(rows_of(results)) < 1, stream)
    assert rows_of(results)[0][-2:] == [1, 1.0]
    stream.close()


def test_what_stays_unmade_is_named_with_the_cause(env, unmade, monkeypatch) -> None:
    monkeypatch.setattr("streams.adapter.collection_reads.MADE_MS", 50)
    failed = env.fails("SELECT * FROM totals")
    assert failed.message.startswith("totals is defined, but not created within ")
    assert failed.message.endswith(": the cluster has no room")


def test_a_read_of_the_unmade_ends_when_it_is_dropped(env, unmade) -> None:
    stream = env.coordinator.execute("SELECT * FROM totals")
    assert next(stream) == WAITS
    env.rows("DROP MATERIALIZED VIEW totals")
    last = list(stream)[-1]
    assert isinstance(last, Failed)
    assert (last.message, last.detail) == ("totals can no longer be read", "it was dropped")


@pytest.fixture
def unborn(env, monkeypatch):
    """A view that has not come to its first time, and the replica that maintains it."""
    monkeypatch.setattr("streams.adapter.collection_reads.BEAT_MS", 10)
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.sql(TOTALS)
    eventually(lambda: len(replica.created) == 2)
    return replica


BROKEN = "totals has failed: ZeroDivisionError: division by zero"


def status_of(env, id_: str) -> object:
    return {shown.item.id: shown.status for shown in env.coordinator.conditions()}[id_]


def broken(env, replica) -> None:
    cause = "ZeroDivisionError: division by zero"
    replica.say(Status(CollectionId("u2"), "failed", cause))
    eventually(lambda: status_of(env, "u2") == "failed")


@pytest.mark.parametrize("statement", ["SELECT * FROM totals", "SUBSCRIBE totals"])
def test_a_read_says_why_a_view_does_not_come_to_its_first_time(env, unborn, statement) -> None:
    broken(env, unborn)
    stream = env.coordinator.execute(statement)
    notice = next(result for result in stream if isinstance(result, Notice))
    assert notice == Notice(f"waits for totals: {BROKEN}")
    unborn.append("u2", NOW + 10, [((1, 1.0), NOW + 9, 1)])
    results = list(itertools.takewhile(lambda result: not isinstance(result, Rows), stream))
    assert not [result for result in results if isinstance(result, Notice)], "once"
    stream.close()


def test_a_read_ends_with_the_cause_of_what_stays_failed(env, unborn, monkeypatch) -> None:
    monkeypatch.setattr("streams.adapter.collection_reads.FAILING_BEATS", 5)
    broken(env, unborn)
    failed = env.fails("SELECT * FROM totals")
    assert failed.message == f"totals has not reached {NOW + 9}: {BROKEN}"


def test_a_read_names_the_input_that_holds_it_up(env, unborn) -> None:
    unborn.say(Status(CollectionId("s1"), "stalled", "there is no topic orders"))
    unborn.say(Status(CollectionId("u2"), "stalled", "waits for s1"))
    eventually(lambda: status_of(env, "u2") == "stalled")
    stream = env.coordinator.execute("SELECT * FROM totals")
    notice = next(result for result in stream if isinstance(result, Notice))
    assert notice == Notice("waits for totals: orders has stalled: there is no topic orders")
    stream.close()
