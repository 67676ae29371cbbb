"""Whoever came first goes first, and who gives up keeps nobody waiting."""

import pytest

from streams.adapter.workers.fair_semaphore import Beats, Turns


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    monkeypatch.setattr("streams.adapter.workers.fair_semaphore.BEAT_S", 0.001)
    return Turns(1)


def waits(turn: Beats) -> bool:
    """Whether a turn has not come yet."""
    return next(turn, "come") is None


def test_turns_come_in_order(turns: Turns) -> None:
    first, second, third = turns.take(), turns.take(), turns.take()
    assert not waits(first)
    assert waits(second)
    assert waits(third)
    turns.give()
    assert waits(third)
    assert not waits(second)
    turns.give()
    assert not waits(third)


def test_who_gives_up_is_passed_over(turns: Turns) -> None:
    first, second, third = turns.take(), turns.take(), turns.take()
    assert not waits(first)
    assert waits(second)
    assert waits(third)
    second.close()
    turns.give()
    assert not waits(third)


def test_who_gives_up_a_turn_that_has_come_hands_it_on(turns: Turns) -> None:
    first, second, third = turns.take(), turns.take(), turns.take()
    assert not waits(first)
    assert waits(second)
    assert waits(third)
    turns.give()
    second.close()
    assert not waits(third)
