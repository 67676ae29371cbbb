from collections.abc import Sequence

import pytest
from hypothesis import given

from streams.compute.history import is_long, reduce
from streams.compute.protocol import (
    AllowCompaction,
    AllowWrites,
    Command,
    CreateDataflow,
    CreateInstance,
    Hello,
    InitializationComplete,
    Schedule,
)
from streams.compute.session import Session
from streams.errors import InvalidUsage
from streams.progress import EMPTY, frontier
from tests.unit.compute.commands import IDS, INSTANCE, description, histories


def told(history: Sequence[Command]) -> Session:
    session = Session()
    commands: list[Command] = [Hello("n", 1), *history]
    for command in commands:
        session, _ = session.step(command)
    return session


@given(histories())
def test_a_reduced_history_leads_to_the_same_replica(history) -> None:
    short, long = told(reduce(history)), told(history)
    assert short.running == long.running
    assert short.stage == long.stage
    live = long.running.keys()
    compactions = {
        key: compaction for key, compaction in long.compactions.items() if key in live
    }
    assert short.compactions == compactions


@given(histories())
def test_reduction_is_idempotent(history) -> None:
    assert reduce(reduce(history)) == reduce(history)


@given(histories())
def test_its_length_is_bounded_by_what_lives(history) -> None:
    assert len(reduce(history)) <= 3 + 3 * len(told(history).running)


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
    history = [Schedule(IDS[0])] * 41
    assert is_long(history, reduced_to=20)
    assert not is_long(history, reduced_to=21)
    assert not is_long(history[:32], reduced_to=1)
