from collections.abc import Sequence

import pytest
from hypothesis import given

from streams.compute.history import is_long, live, reduce
from streams.compute.protocol import (
    AllowCompaction,
    AllowWrites,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    InitializationComplete,
    Schedule,
    ShortLived,
)
from streams.compute.session import Compact, Create, Drop, Session
from streams.errors import InvalidUsage
from streams.ids import CollectionId
from streams.progress import EMPTY, frontier
from tests.unit.compute.commands import IDS, INSTANCE, description, histories


def told(history: Sequence[Command]) -> Session:
    session = Session()
    commands: list[Command] = [CreateTimely("n", 1), *history]
    for command in commands:
        session, _ = session.step(command)
    return session


TIMES = range(12)
Reads = dict[tuple[CollectionId, int], tuple[str, str]]


def reads(history: Sequence[Command]) -> Reads:
    """What a replica without any state answers: at which times of what there is an answer.

    It can be read from the time at which it was computed first, or begins, and not before the
    time up to which it was compacted.
    """
    session, since, plans = Session(), dict[CollectionId, int](), dict[CollectionId, str]()
    commands: list[Command] = [CreateTimely("n", 1), *history]
    for command in commands:
        session, actions = session.step(command)
        for action in actions:
            match action:
                case Create(flow):
                    since[flow.export] = flow.as_of
                    plans[flow.export] = f"{flow.kind} {flow.plan}"
                case Compact(key, to):
                    since[key] = max(since[key], to.time)
                case Drop(key):
                    since.pop(key, None)
                case _:
                    pass
    return {
        (key, time): (plans[key], session.stage.value)
        for key, from_ in since.items()
        for time in TIMES
        if time >= from_
    }


@given(histories())
def test_a_reduced_history_leads_to_the_same_replica(history) -> None:
    short, long = told(reduce(history)), told(history)
    assert short.running == long.running
    assert short.parameters == long.parameters
    assert short.stage == long.stage


@given(histories())
def test_it_answers_every_read_at_or_beyond_since_and_no_other(history) -> None:
    assert reads(reduce(history)) == reads(history)


@given(histories())
def test_a_reduced_history_can_go_on_as_the_whole_one(history) -> None:
    """Where a controller reduces in the middle, what comes later means the same."""
    for at in range(len(history) + 1):
        assert reduce([*reduce(history[:at]), *history[at:]]) == reduce(history)


@given(histories())
def test_an_as_of_and_a_since_move_forward_only(history) -> None:
    as_ofs: dict[CollectionId, int] = {}
    for at in range(len(history) + 1):
        for key, flow in live(history[:at]).items():
            assert flow.as_of >= as_ofs.get(key, 0)
            as_ofs[key] = flow.as_of


@given(histories())
def test_reduction_is_idempotent(history) -> None:
    assert reduce(reduce(history)) == reduce(history)


@given(histories())
def test_its_length_is_bounded_by_what_lives(history) -> None:
    running = told(history).running
    sources = [flow for flow in running.values() if not flow.is_computed]
    assert len(reduce(history)) <= 4 + 2 * len(running) + len(sources)


@given(histories())
def test_peeks_and_subscribes_are_no_part_of_it(history) -> None:
    without = [command for command in history if not isinstance(command, ShortLived)]
    assert reduce(history) == reduce(without)


def test_what_was_dropped_leaves_nothing() -> None:
    history: list[Command] = [
        INSTANCE,
        CreateDataflow(description(IDS[0])),
        Schedule(IDS[0]),
        AllowCompaction(IDS[0], frontier(3)),
        InitializationComplete(),
        AllowCompaction(IDS[0], EMPTY),
        AllowWrites(),
    ]
    assert reduce(history) == (INSTANCE, InitializationComplete(), AllowWrites())


def test_two_instances_cannot_be_one_history() -> None:
    with pytest.raises(InvalidUsage, match="two instances"):
        reduce([INSTANCE, CreateInstance("sw", 3)])


def test_a_history_is_long_when_it_has_doubled() -> None:
    assert is_long(41, 0, reduced_to=20)
    assert not is_long(41, 0, reduced_to=21)
    assert not is_long(32, 0, reduced_to=1)


def test_a_history_is_not_long_as_soon_as_time_has_passed() -> None:
    assert not is_long(41, 1, reduced_to=20)
    assert not is_long(40 + 1024, 1024, reduced_to=20)
    assert is_long(40 + 1025, 1025, reduced_to=20)
