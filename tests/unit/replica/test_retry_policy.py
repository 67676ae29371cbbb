"""Pauses, places, suspects and deadlines, without a replica."""

from types import SimpleNamespace
from typing import Any

import pytest

from streams.ids import CollectionId, Offset, Timestamp
from streams.replica.driver import retry_policy
from streams.replica.driver.deadlines import Deadline, deadline
from streams.replica.driver.retry_policy import Failure, FailureState, Isolation, Kind
from streams.replica.ingest.ranges import Slice
from streams.replica.tasks.descriptor import RawLoad

ALONE = Failure("boom", Kind.LOST)
SHARED = Failure("boom", Kind.LOST, dataflows=9)


def after(count: int, failure: Failure) -> FailureState:
    state = None
    for _ in range(count):
        state = retry_policy.after(state, failure, (7, 0), 0)
    assert state is not None
    return state


def test_pauses_grow_and_end_at_a_bound() -> None:
    assert [after(n, Failure("boom")).retry_at_ms for n in (1, 2, 3)] == [500, 1000, 2000]
    assert after(99, Failure("boom")).retry_at_ms == retry_policy.LONGEST_PAUSE_MS
    assert after(99, ALONE).retry_at_ms == retry_policy.LONGEST_PAUSE_ALONE_MS
    assert after(99, Failure("full", Kind.FULL)).retry_at_ms == retry_policy.LONGEST_PAUSE_MS


def test_a_suspect_does_not_wait() -> None:
    assert after(3, SHARED).retry_at_ms == 0


def test_what_was_cancelled_waits_as_long_as_it_ran() -> None:
    hung = Failure("took long", Kind.HUNG, took_ms=7_200_000)
    assert after(1, hung).retry_at_ms == 7_200_000


def test_a_trouble_is_over_beyond_its_place_only() -> None:
    state = retry_policy.after(None, ALONE, (7, 3), 0)
    assert not state.is_over((7, 3))
    assert not state.is_over((6, 9))
    assert state.is_over((7, 4))
    assert state.is_over((8, 0))


def test_a_failure_further_back_does_not_move_the_place() -> None:
    state = retry_policy.after(retry_policy.after(None, ALONE, (7, 3), 0), ALONE, (5, 0), 0)
    assert (state.place, state.attempts) == ((7, 3), 2)


@pytest.mark.parametrize(
    ("kind", "rebuilds"),
    [
        (Kind.FAILED, True),
        (Kind.LOST, True),  # a run file that lacks its end kills whoever reads it
        (Kind.HUNG, False),
        (Kind.UNREACHABLE, False),
        (Kind.FULL, False),
    ],
)
def test_state_is_dropped_only_when_it_may_be_the_cause(kind: Kind, *, rebuilds: bool) -> None:
    failure = Failure("boom", kind)
    wants = [retry_policy.wants_rebuild(after(n, failure), failure) for n in (1, 2, 3)]
    assert wants == [False, False, rebuilds]


def test_a_suspect_steps_alone_once_and_a_convict_ever_longer() -> None:
    suspect = Isolation().after(SHARED, 1)
    assert (suspect.steps, suspect.passed().steps) == (1, 0)
    first = suspect.after(ALONE, 2)
    assert (first.steps, first.convictions) == (3, 1)
    assert first.after(ALONE, 3).steps == 6
    assert Isolation(0, 99).after(ALONE, 1).steps == 3 << retry_policy.MOST_DOUBLINGS


def test_an_outage_makes_suspects_only_when_it_repeats() -> None:
    outage = Failure("no answer", Kind.UNREACHABLE, dataflows=9)
    assert Isolation().after(outage, 1).steps == 0
    assert Isolation().after(outage, 2).steps == 1
    assert Isolation().after(Failure("no answer", Kind.UNREACHABLE), 2).steps == 0


def unit(convictions: int = 0, cost_ms: float = 0.0, messages: int = 0, steps: int = 0) -> Any:
    flow = SimpleNamespace(isolation=Isolation(steps, convictions), cost_ms=cost_ms)
    source: Any = None
    slices = (Slice(0, Offset(0), Offset(messages)),) if messages else ()
    load = RawLoad(
        dataflow=CollectionId("s"), source=source, columns=(), slices=slices, time=Timestamp(1)
    )
    return SimpleNamespace(flow=flow, loads=(load,))


def test_a_deadline_grows_with_the_work_and_with_experience() -> None:
    assert deadline([unit()], 60) == Deadline(60, 60)
    assert deadline([unit(messages=200_000)], 60) == Deadline(160, 160)
    assert deadline([unit(cost_ms=5_000), unit(cost_ms=1_000)], 60) == Deadline(180, 180)


def test_a_convict_has_longer_while_it_is_alone() -> None:
    assert deadline([unit(convictions=3, steps=5)], 60) == Deadline(60, 480)
    assert deadline([unit(convictions=3, steps=5, messages=200_000)], 60) == Deadline(160, 580)
    assert deadline([unit(convictions=3, steps=5), unit()], 60) == Deadline(60, 60)
    assert deadline([unit(convictions=3)], 60) == Deadline(60, 60), "it is in others' lane"
