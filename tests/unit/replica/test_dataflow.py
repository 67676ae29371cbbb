"""The machine of a dataflow's life: what may happen when, and where it leads."""

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.compute.description import DataflowDescription, IngestionDescription
from streams.ids import CollectionId, Timestamp, Topic
from streams.plan import physical
from streams.progress import EMPTY, frontier
from streams.replica.driver import dataflow as machine
from streams.replica.driver import events
from streams.replica.driver.checkpoint_store import record_of
from streams.replica.driver.dataflow import HAPPENS, Dataflow, Phase
from streams.replica.driver.dataflow_state import Build, OwnState, Record
from streams.replica.driver.retry_policy import ATTEMPTS_BEFORE_REBUILD, Failure, Kind

NOW_MS = 1_000
BOOM, SHARED = Failure("boom"), Failure("lost", Kind.LOST, dataflows=3)
ALONE = replace(SHARED, dataflows=1)
RAW = IngestionDescription(topic=Topic("raw"), topic_id="i", envelope="none")
KINDS: Mapping[str, type[events.Event]] = {
    kind.__name__: kind for kind in get_args(events.Event)
}


def state(at: int) -> OwnState:
    return OwnState("i", frontier(at), {})


def build(done: int = 0) -> Build:
    return Build(
        incarnation="i", lower=Timestamp(7), upper=Timestamp(8), as_of=True, writes=True,
        slices=((), (), ()), sizes=(1, 1, 1), done=done, stage="s",
    )  # fmt: skip


def record(at: int) -> Record:
    return record_of("f", state(at), 2)


def new(*, is_source: bool = False) -> Dataflow:
    described = DataflowDescription(
        export=CollectionId("u1"), kind="view", name="v", group="u1", columns=(),
        as_of=Timestamp(0), source=RAW if is_source else None,
    )  # fmt: skip
    return Dataflow(described, physical.Dataflow((), (), (), (), ()), "p", "f", {})


def after(flow: Dataflow, *happened: events.Event) -> Dataflow:
    for event in happened:
        flow, _ = flow.step(event, NOW_MS)
    return flow


def running(at: int = 7, *, is_source: bool = False) -> Dataflow:
    recovery = events.Taken(), events.Recovered(state(at)), events.Released()
    return after(new(is_source=is_source), *recovery)


def building(done: int = 0, *, is_source: bool = False) -> Dataflow:
    if is_source:
        return after(running(is_source=True), events.Divided(build(done)))
    hydration = events.Hydrates(state(7), build(done))
    return after(new(), events.Taken(), hydration, events.Released())


def in_phase(phase: Phase, *, busy: bool) -> Dataflow:
    of = {
        Phase.STARTING: new(),
        Phase.BUILDING: building(),
        Phase.RUNNING: running(),
        Phase.FAILED: after(running(), events.Failed(BOOM, for_good=True)),
    }
    return replace(of[phase], busy=busy)


def some(kind: type[events.Event]) -> events.Event:
    examples: Mapping[type[events.Event], events.Event] = {
        events.Taken: events.Taken({}, 3),
        events.Ran: events.Ran(5.0),
        events.Compacted: events.Compacted(frontier(7)),
        events.Waits: events.Waits((CollectionId("u2"),)),
        events.Known: events.Known((record(5),)),
        events.Recovered: events.Recovered(state(7)),
        events.Hydrates: events.Hydrates(state(7), build()),
        events.Followed: events.Followed(state(9)),
        events.Divided: events.Divided(build()),
        events.Stepped: events.Stepped(state(9)),
        events.Sliced: events.Sliced(build(1)),
        events.Built: events.Built(build(3)),
        events.Failed: events.Failed(BOOM),
        events.BatchLost: events.BatchLost(SHARED),
        events.Recorded: events.Recorded(record(7), frontier(9)),
    }
    return examples.get(kind) or kind()  # type: ignore[call-arg]  # those that have no fields


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_an_event_happens_only_where_the_table_has_it(kind: type[events.Event]) -> None:
    phases, expected = HAPPENS[kind]
    for phase in Phase:
        for busy in (False, True):
            flow = in_phase(phase, busy=busy)
            if phase in phases and expected in {None, busy}:
                flow.step(some(kind), NOW_MS)
            else:
                with pytest.raises(AssertionError):
                    flow.step(some(kind), NOW_MS)


def test_the_header_shows_the_table() -> None:
    shown = {}
    for line in (machine.__doc__ or "").splitlines():
        row = re.match(r"    (\w+) {2,}(any|all but FAILED|[A-Z, ]+?) {2,}(no|yes)? ", line)
        if row and row[1] in KINDS:
            but = {Phase.FAILED} if "but" in row[2] else set()
            phases = {
                p for p in Phase if p.name in row[2] or row[2] in {"any", "all but FAILED"}
            }
            shown[KINDS[row[1]]] = (
                phases - but,
                {"no": False, "yes": True, None: None}[row[3]],
            )
    assert shown == {kind: (set(phases), busy) for kind, (phases, busy) in HAPPENS.items()}


@given(st.lists(st.sampled_from(list(KINDS.values())), max_size=40), st.booleans())
def test_a_life_keeps_its_invariants(kinds: list[type[events.Event]], is_source: bool) -> None:
    flow = new(is_source=is_source)
    for kind in kinds:
        phases, busy = HAPPENS[kind]
        if flow.phase not in phases or busy not in {None, flow.busy}:
            continue
        before, (flow, _) = flow, flow.step(some(kind), NOW_MS)
        if flow.phase is Phase.STARTING:
            assert (flow.own, flow.build) == (None, None)
        if flow.phase in {Phase.RUNNING, Phase.BUILDING}:
            assert flow.own is not None
            assert (flow.build is not None) == (flow.phase is Phase.BUILDING)
        if kind not in {events.Taken, events.Released}:
            assert flow.busy == before.busy, "work begins and ends by its own events alone"
        assert flow.gone or not before.gone


def test_what_counts_moves_the_state() -> None:
    busy = after(running(), events.Taken())
    assert after(busy, events.Stepped(state(9))).own == state(9)
    slicing = after(building(1), events.Taken())
    sliced = after(slicing, events.Sliced(build(2)))
    assert (sliced.build, sliced.own) == (build(2), state(7))
    built = after(replace(slicing, recorded_ms=5), events.Built(build(3)))
    assert (built.phase, built.own, built.build) == (Phase.RUNNING, state(8), None)
    assert built.recorded_ms == 0, "the build's progress is to be deleted with the next record"


@pytest.mark.parametrize("is_source", [False, True])
def test_what_is_void_moves_nothing(*, is_source: bool) -> None:
    busy = after(running(is_source=is_source), events.Taken())
    assert after(busy, events.Void()) == busy
    assert after(busy, events.Reclaimed()) == busy
    slicing = after(building(1, is_source=is_source), events.Taken())
    examplesup = after(slicing, events.Void())
    assert (examplesup.phase, examplesup.own, examplesup.build) == (
        Phase.RUNNING,
        state(7),
        None,
    )


def test_a_failure_is_over_when_its_place_is_passed() -> None:
    failed = after(running(9), events.Taken(), events.BatchLost(SHARED))
    assert (failed.trouble is not None, failed.isolation.steps) == (True, 1)
    assert failed.own == state(9)
    still = after(failed, events.Stepped(state(9)))
    assert (still.trouble, still.isolation.steps) == (failed.trouble, 1)
    passed = after(failed, events.Stepped(state(10)))
    assert (passed.trouble, passed.isolation.steps) == (None, 0)


def test_a_state_that_may_be_the_cause_is_dropped_once() -> None:
    flow = replace(running(), records=(record(5),))
    for _ in range(ATTEMPTS_BEFORE_REBUILD - 1):
        flow, effects = flow.step(events.Failed(BOOM), NOW_MS)
        assert flow.phase is Phase.RUNNING
        assert [type(effect) for effect in effects] == [events.Log]
    flow, effects = flow.step(events.Failed(BOOM), NOW_MS)
    assert (flow.phase, flow.own, flow.records) == (Phase.STARTING, None, ())
    does = [effect for effect in effects if not isinstance(effect, events.Log)]
    assert does == [events.Forget(), events.Ring()]
    flow = after(flow, events.Taken(), events.Recovered(state(7)), events.Failed(BOOM))
    assert flow.phase is Phase.RUNNING


def test_a_convict_is_retried_alone() -> None:
    flow = after(running(), events.Taken(), events.BatchLost(ALONE))
    assert (flow.isolation.convictions, flow.isolation.steps) == (1, 3)
    assert flow.trouble is not None
    assert not flow.is_ready(Phase.RUNNING, NOW_MS)


def test_a_source_gives_up_a_build_whose_input_may_be_gone() -> None:
    flow = building(is_source=True)
    flow = after(flow, *[events.Failed(BOOM)] * (ATTEMPTS_BEFORE_REBUILD - 1))
    assert flow.phase is Phase.BUILDING
    flow = after(flow, events.Failed(BOOM))
    assert (flow.phase, flow.build, flow.own) == (Phase.RUNNING, None, state(7))


def test_another_version_ends_it_for_good_or_starts_it_again() -> None:
    busy = after(running(), events.Taken())
    assert after(busy, events.Failed(BOOM, for_good=True)).phase is Phase.FAILED
    again = after(busy, events.Superseded())
    assert again.phase is Phase.STARTING
    assert again.trouble is not None
    assert again.trouble.message == "another version of the dataflow was faster"


def test_a_build_without_its_stage_begins_again() -> None:
    slicing = after(building(1), events.Taken())
    again, effects = slicing.step(events.Unstaged(), NOW_MS)
    assert again.phase is Phase.STARTING
    does = [effect for effect in effects if not isinstance(effect, events.Log)]
    assert does == [events.ForgetBuild(), events.Ring()]
    of_source = after(building(1, is_source=True), events.Taken(), events.Unstaged())
    assert (of_source.phase, of_source.own) == (Phase.RUNNING, state(7))


def test_of_the_records_those_stay_that_a_restart_may_need() -> None:
    """Of those at or below the shard's upper the last one, and all above it (rule 17)."""
    flow = replace(running(9), records=(record(5), record(6)))
    recorded, effects = flow.step(events.Recorded(record(9), frontier(7)), NOW_MS)
    assert [entry.checkpoint.frontier for entry in recorded.records] == [6, 9]
    assert effects == (events.ForgetRecords((record(5),), build=True),)
    assert recorded.recorded_ms == NOW_MS
    _, effects = recorded.step(events.Recorded(record(9), None), NOW_MS)
    assert effects == (), "nothing is known of its shard"


def test_a_record_is_due_when_the_state_has_moved_on() -> None:
    flow = replace(running(9), recorded_ms=500)
    assert machine.is_due(flow, 1_000, 500)
    assert not machine.is_due(flow, 999, 500)
    assert not machine.is_due(replace(flow, records=(record(9),)), 9_000, 500)
    assert not machine.is_due(replace(flow, own=OwnState("i", EMPTY, {})), 9_000, 500)
    assert not machine.is_due(building(), 9_000, 500)
    assert not machine.is_due(running(is_source=True), 9_000, 500), "the shard has its position"


def test_reclaimed_chunks_are_no_failure() -> None:
    _, effects = after(running(), events.Taken()).step(events.Reclaimed(), NOW_MS)
    assert effects == (events.Log(logging.INFO, "chunks were reclaimed; writing them again"),)
