"""Which micro-batches a resident task runs, and for how long a failure keeps a dataflow off."""

from types import SimpleNamespace
from typing import Any

import pytest

from streams.compute.description import IngestionDescription
from streams.compute.stalls import TopicReport
from streams.ids import CollectionId, Offset, Timestamp, Topic
from streams.kafka.log import ChunkRef
from streams.replica.driver.fast_path import (
    FIRST_BAR_S,
    FORGET_S,
    LEAST_MS,
    LONG_MS,
    LONG_TWICE_S,
    LONGEST_BAR_S,
    MOST_BYTES,
    MOST_MESSAGES,
    MOST_MS,
    FastPath,
    Standing,
    Way,
    deadline_s,
)
from streams.replica.driver.retry_policy import Isolation
from streams.replica.driver.work_units import EventUnit, SliceUnit, SourceUnit, Unit, ViewUnit
from streams.replica.ingest.ranges import Slice
from streams.replica.tasks.descriptor import ChunkLoad, Load, RawLoad
from streams.storage.read.reader import Piece

RAW = Topic("raw")
VIEW = CollectionId("view")
TOPICS = {RAW: TopicReport("i", {}, message_bytes=100)}


def chunks(size: int) -> ChunkLoad:
    ref = ChunkRef(0, Offset(0), "k", 0, 1, size)
    return ChunkLoad(VIEW, 0, Topic("t"), (Piece(ref, Timestamp(0), Timestamp(9)),))


def messages(count: int) -> RawLoad:
    source = IngestionDescription(topic=RAW, topic_id="i", envelope="none")
    slices = (Slice(0, Offset(5), Offset(5 + count)),)
    return RawLoad(dataflow=VIEW, source=source, columns=(), slices=slices, time=Timestamp(1))


def unit(kind: type[Unit], *loads: Load, cost_ms: float = 1.0, alone: int = 0) -> Any:
    flow = SimpleNamespace(id=VIEW, cost_ms=cost_ms, isolation=Isolation(alone))
    others = {SourceUnit: {"ingest": None}, SliceUnit: {"build": None}, ViewUnit: {}}
    facts = {"advance": None, "elapsed_ms": 0} if kind is EventUnit else others[kind]
    return kind(flow=flow, share=None, loads=loads, **facts)  # type: ignore[arg-type]


def way(
    *units: Any, lane: str = "ingest", now_s: float = 0.0, path: FastPath | None = None
) -> Way:
    return (path or FastPath(connected=1)).way(lane, units, TOPICS, now_s)


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        ([unit(ViewUnit, chunks(MOST_BYTES))], Way.RESIDENT),
        ([unit(ViewUnit, chunks(MOST_BYTES), chunks(1))], Way.QUERY),
        ([unit(SourceUnit, messages(MOST_MESSAGES))], Way.RESIDENT),
        ([unit(SourceUnit, messages(MOST_MESSAGES), messages(1))], Way.QUERY),
        ([unit(ViewUnit, cost_ms=LEAST_MS / 2)] * 2, Way.RESIDENT),
        ([unit(ViewUnit, cost_ms=LEAST_MS / 2 + 1)] * 2, Way.QUERY),
        ([unit(ViewUnit), unit(SliceUnit)], Way.QUERY),
        ([unit(ViewUnit), unit(EventUnit)], Way.QUERY),
        ([unit(ViewUnit), unit(ViewUnit, alone=1)], Way.QUERY),
    ],
)
def test_a_small_micro_batch_goes_to_a_resident_task(units: list[Any], expected: Way) -> None:
    assert way(*units) is expected


def test_how_long_a_step_may_be_follows_what_jobs_cost() -> None:
    path, step = FastPath(connected=1), unit(ViewUnit, cost_ms=150.0)
    assert way(step, path=path) is Way.QUERY
    for _ in range(4):
        path.had_job(took_ms=5000.0, work_ms=MOST_MS + 1)  # which has no small share of it
    assert way(step, path=path) is Way.QUERY
    for _ in range(4):
        path.had_job(took_ms=400.0, work_ms=100.0)
    assert way(step, path=path) is Way.RESIDENT
    for _ in range(40):
        path.had_job(took_ms=60_000.0, work_ms=100.0)  # Spark starts, or the machine swaps
    assert way(unit(ViewUnit, cost_ms=MOST_MS + 1), path=path) is Way.QUERY
    for _ in range(2000):
        path.ran({VIEW: 1.0}, 0.0)
    assert way(step, path=path) is Way.QUERY, "that was long ago"
    for _ in range(20):
        path.had_job(took_ms=10.0, work_ms=20.0)
    assert path.most_ms == LEAST_MS


def test_few_large_messages_are_not_small() -> None:
    path = FastPath(connected=1)
    load, size = messages(MOST_MESSAGES // 2), MOST_BYTES // (MOST_MESSAGES // 2)
    for message_bytes, expected in ((size, Way.RESIDENT), (size + 1, Way.QUERY)):
        topics = {RAW: TopicReport("i", {}, message_bytes=message_bytes)}
        assert path.way("ingest", [unit(SourceUnit, load)], topics, 0.0) is expected
    assert path.way("ingest", [unit(SourceUnit, load)], {}, 0.0) is Way.RESIDENT


@pytest.mark.parametrize("lane", ["hydrate", "apart", "event:u1:0"])
def test_other_lanes_have_their_queries(lane: str) -> None:
    assert way(unit(ViewUnit), lane=lane) is Way.QUERY


def test_without_a_task_everything_goes_to_the_queries() -> None:
    assert way(unit(ViewUnit), path=FastPath()) is Way.QUERY


def test_an_idle_task_plans_the_fast_lanes_and_no_others() -> None:
    assert FastPath(connected=1, idle=1).begins("steady")
    assert not FastPath(connected=1, idle=1).begins("hydrate")
    assert not FastPath(connected=1, idle=0).begins("steady")


def test_a_failure_bars_for_longer_each_time_and_heals() -> None:
    path, now_s = FastPath(connected=1), 100.0
    for bar_s in (FIRST_BAR_S, 2 * FIRST_BAR_S, 4 * FIRST_BAR_S):
        path.failed([VIEW], now_s)
        assert way(unit(ViewUnit), path=path, now_s=now_s + bar_s - 0.1) is Way.QUERY
        now_s += bar_s
        assert way(unit(ViewUnit), path=path, now_s=now_s) is Way.RESIDENT
    for _ in range(40):
        path.failed([VIEW], now_s)
    assert way(unit(ViewUnit), path=path, now_s=now_s + LONGEST_BAR_S) is Way.RESIDENT
    now_s += FORGET_S + 1
    path.failed([VIEW], now_s)
    assert way(unit(ViewUnit), path=path, now_s=now_s + FIRST_BAR_S) is Way.RESIDENT


def test_one_barred_dataflow_takes_its_micro_batch_along() -> None:
    path = FastPath(connected=1)
    path.failed([VIEW], 0.0)
    other = unit(ViewUnit)
    other.flow.id = CollectionId("other")
    assert way(other, path=path) is Way.RESIDENT
    assert way(other, unit(ViewUnit), path=path) is Way.QUERY


@pytest.mark.parametrize(
    ("times", "is_barred"),
    [
        ([(0.0, LONG_MS + 1)], False),
        ([(0.0, LONG_MS), (1.0, LONG_MS)], False),
        ([(0.0, LONG_MS + 1), (1.0, 1.0), (2.0, LONG_MS + 1)], True),
        ([(0.0, LONG_MS + 1), (LONG_TWICE_S + 1, LONG_MS + 1)], False),
    ],
)
def test_a_dataflow_that_is_long_twice_in_a_while_is_barred(
    times: list[tuple[float, float]], is_barred: bool
) -> None:
    path = FastPath(connected=1)
    for now_s, took_ms in times:
        path.ran({VIEW: took_ms}, now_s)
    expected = Way.QUERY if is_barred else Way.RESIDENT
    assert way(unit(ViewUnit), path=path, now_s=times[-1][0] + 0.1) is expected


def test_what_is_forgotten_takes_no_room() -> None:
    path = FastPath(connected=1)
    path.failed([VIEW], 0.0)
    path.failed([CollectionId("other")], FORGET_S + 1)
    assert set(path.standings) == {"other"}
    assert Standing().is_over(FORGET_S + 1)


def test_the_deadline_grows_with_what_the_dataflows_took() -> None:
    assert deadline_s([unit(ViewUnit, cost_ms=0.0)]) == 2.0
    assert deadline_s([unit(ViewUnit, cost_ms=20.0), unit(ViewUnit, cost_ms=30.0)]) == 2.5
