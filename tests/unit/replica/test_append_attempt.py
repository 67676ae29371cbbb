"""The machine of an attempt to append: what it submits, and how it ends after each outcome."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from streams.compute.reclocking import Ingest, Tick
from streams.compute.stepping import Idle
from streams.ids import CollectionId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import Antichain, frontier, interval_of
from streams.replica.driver import append_attempt, events
from streams.replica.driver.append_attempt import Attempt, ShardState
from streams.replica.driver.dataflow import Dataflow
from streams.replica.driver.work_units import IdleUnit, SliceUnit, SourceUnit, ViewUnit, share
from streams.replica.tasks.report import Result
from streams.storage.log.events import Append, Stage
from streams.storage.log.outcomes import (
    Appended,
    ChunksReclaimed,
    Fenced,
    OffsetsMismatch,
    Staged,
    Unavailable,
    UnknownStage,
    UpperMismatch,
)
from tests.unit.replica.test_dataflow import build, new, running, state

LOWER, UPPER = 7, 8
CHUNK = ChunkRef(0, Offset(3), "k", 0, 1, 10)
RESULT = Result(chunks=[CHUNK])
U1 = CollectionId("u1")
APPENDED = Appended((frontier(UPPER),))
NO_STAGES: Mapping[str, int] = {}


def shard(
    upper: int = LOWER, fingerprint: str = "", stages: Mapping[str, int] = NO_STAGES
) -> ShardState:
    return ShardState(frontier(upper), fingerprint, stages)


def interval(flow: Dataflow) -> ViewUnit:
    planned = share(flow, interval_of(Timestamp(LOWER), Timestamp(UPPER)), {}, None)
    return ViewUnit(flow=flow, share=planned, loads=())


def of_view(seen: ShardState) -> Attempt:
    return append_attempt.of_unit(interval(running(LOWER)), RESULT, seen)


def of_source(seen: ShardState) -> Attempt:
    unit = interval(running(LOWER, is_source=True))
    ingest = Ingest(frontier(LOWER), frontier(UPPER), Timestamp(LOWER), {0: 1}, {0: 5})
    source = SourceUnit(flow=unit.flow, share=unit.share, loads=(), ingest=ingest)
    return append_attempt.of_unit(source, RESULT, seen)


def of_slice(done: int, seen: ShardState, staged: int = 0, ahead: int = 0) -> Attempt:
    unit = interval(new())
    present = replace(build(done), staged=staged, ahead=ahead)
    slice_ = SliceUnit(flow=unit.flow, share=unit.share, loads=(), build=present)
    return append_attempt.of_unit(slice_, RESULT, seen)


def bounds(attempt: Attempt) -> tuple[Antichain, Antichain]:
    body = attempt.body()
    assert isinstance(body, Append)
    (part,) = body.parts
    assert part.chunks in {(CHUNK,), ()}
    return part.lower, part.upper


def mismatch(current: int) -> UpperMismatch:
    return UpperMismatch(frontier(current), U1)


@pytest.mark.parametrize("upper", [LOWER - 3, LOWER])
def test_rule_16_a_view_appends_what_is_open(upper: int) -> None:
    attempt = of_view(shard(upper))
    assert bounds(attempt) == (frontier(LOWER), frontier(UPPER))
    assert attempt.answered(APPENDED).end == events.Stepped(state(UPPER))


def test_rule_16_a_view_whose_interval_is_there_counts_without_an_append() -> None:
    attempt = of_view(shard(UPPER))
    assert (attempt.body(), attempt.end) == (None, events.Stepped(state(UPPER)))
    late = of_view(shard(LOWER))
    late = replace(late, shard=shard(UPPER)).answered(mismatch(UPPER))
    assert (late.body(), late.counts) == (None, True)


def test_a_view_that_lost_a_part_appends_the_rest_with_the_same_chunks() -> None:
    unit = interval(running(LOWER))
    wide = replace(unit, share=replace(unit.share, interval=interval_of(LOWER, 20)))
    attempt = append_attempt.of_unit(wide, RESULT, shard())
    attempt = replace(attempt, shard=shard(12)).answered(mismatch(12))
    assert bounds(attempt) == (frontier(12), frontier(20))
    assert attempt.chunks == (CHUNK,)
    assert attempt.answered(APPENDED).end == events.Stepped(state(20))


def test_a_view_whose_shard_was_made_again_starts_again() -> None:
    """It begins before what the attempt continues, so the attempt never counts."""
    again = replace(of_view(shard(LOWER)), shard=shard(LOWER - 3))
    assert again.answered(mismatch(LOWER - 3)).end == events.Superseded()


def test_rule_24_a_view_appends_nothing_beside_another_version() -> None:
    assert of_view(shard(fingerprint="f")).body() is not None
    assert of_view(shard(fingerprint="other")).end == events.Superseded()
    raced = replace(of_view(shard()), shard=shard(fingerprint="other"))
    assert raced.answered(mismatch(LOWER)).end == events.Superseded()


def test_rule_18_a_source_that_lost_is_void() -> None:
    attempt = of_source(shard())
    assert bounds(attempt) == (frontier(LOWER), frontier(UPPER))
    for lost in (mismatch(UPPER), mismatch(LOWER), OffsetsMismatch({0: 4}, U1)):
        assert attempt.answered(lost).end == events.Void()
    counted = attempt.answered(APPENDED).end
    assert isinstance(counted, events.Stepped)
    assert counted.own.offsets == {0: 5}


@pytest.mark.parametrize("make", [of_view, of_source])
def test_other_outcomes_end_any_attempt(make: Callable[[ShardState], Attempt]) -> None:
    attempt = make(shard())
    assert attempt.answered(ChunksReclaimed()).end == events.Reclaimed()
    assert attempt.answered(UnknownStage("s")).end == events.Unstaged()
    fenced = attempt.answered(Fenced("other", U1)).end
    assert isinstance(fenced, events.Failed)
    assert fenced.for_good
    refused = attempt.answered(Unavailable("no broker")).end
    assert isinstance(refused, events.Failed)
    assert not refused.for_good
    assert not any(attempt.ended(end).counts for end in (fenced, refused, events.Void()))


def test_a_slice_stages_its_chunks_and_counts_once_they_are_whole() -> None:
    attempt = of_slice(0, shard(), staged=2)
    assert attempt.body() == Stage(
        stage="s", chunks=(CHUNK,), lease_ms=append_attempt.STAGE_LEASE_MS
    )
    counted = replace(attempt, shard=shard(stages={"s": 3})).answered(Staged()).end
    assert isinstance(counted, events.Sliced)
    assert (counted.build.done, counted.build.staged) == (1, 3)
    for standing in (NO_STAGES, {"s": 2}, {"s": 4}):
        seen = replace(attempt, shard=shard(stages=standing))
        assert seen.answered(Staged()).end == events.Unstaged()


def test_chunks_that_stand_ahead_are_not_staged_twice() -> None:
    attempt = of_slice(0, shard(), staged=2, ahead=1)
    assert attempt.body() == Stage(stage="s", chunks=(), lease_ms=append_attempt.STAGE_LEASE_MS)
    counted = replace(attempt, shard=shard(stages={"s": 3})).answered(Staged()).end
    assert isinstance(counted, events.Sliced)
    assert (counted.build.staged, counted.build.ahead) == (3, 0)


def test_the_last_slice_appends_the_stage() -> None:
    attempt = of_slice(2, shard(), staged=2)
    body = attempt.body()
    assert isinstance(body, Append)
    assert (body.parts[0].stages, body.parts[0].chunks) == (("s",), (CHUNK,))
    assert isinstance(attempt.answered(APPENDED).end, events.Built)
    assert isinstance(of_slice(2, shard(UPPER)).end, events.Built), "it is there already"


def test_rule_18_a_snapshot_of_a_topic_that_lost_is_void() -> None:
    unit = interval(running(LOWER, is_source=True))
    ingest = Ingest(frontier(LOWER), frontier(UPPER), Timestamp(LOWER), {}, {0: 5})
    last = SliceUnit(
        flow=unit.flow, share=unit.share, loads=(), build=replace(build(2), ingest=ingest)
    )
    assert append_attempt.of_unit(last, RESULT, shard()).body() is not None
    assert append_attempt.of_unit(last, RESULT, shard(UPPER)).end == events.Void()


def test_rule_24_a_build_takes_over_only_as_a_whole() -> None:
    assert of_slice(2, shard(LOWER, "other")).body() is not None
    assert of_slice(2, shard(UPPER, "other")).end == events.Superseded()


def test_idle_intervals_move_the_state_alone() -> None:
    move = Idle(frontier(LOWER), frontier(UPPER))
    idle = append_attempt.of_quiet(IdleUnit(running(LOWER), move), shard())
    assert bounds(idle) == (frontier(LOWER), frontier(UPPER))
    assert idle.answered(APPENDED).end == events.Stepped(state(UPPER))
    source = running(LOWER, is_source=True)
    tick = IdleUnit(source, Tick(frontier(LOWER), frontier(UPPER), {0: 5}))
    ticked = append_attempt.of_quiet(tick, shard())
    assert bounds(ticked) == (frontier(LOWER), frontier(UPPER))
    assert ticked.answered(mismatch(UPPER)).end == events.Void()
