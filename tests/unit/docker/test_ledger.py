"""What the end-to-end tests find wrong: each kind of wrong answer, planted."""

from collections import Counter

import pytest

from tests.e2e.ledger import Way, disagreements

RIGHT = {1: 5, 2: -5}
LATER = {1: 4, 2: -4}


def followed(name: str = "topic") -> Way:
    """A way that has seen two changes, at 10 and at 20, and all before 30."""
    way = Way(name)
    way.begin()
    way.changed(10, RIGHT)
    way.complete(20, 0.0)
    way.changed(20, LATER)
    way.complete(30, 0.0)
    return way


def test_what_is_right_is_not_wrong() -> None:
    way = followed()
    assert way.balances(Counter(RIGHT.items()), 10) == RIGHT
    assert way.wrong == []
    assert way.observations == 4


@pytest.mark.parametrize(
    "rows",
    [
        {(1, 5): 1, (2, -4): 1},
        {(1, 5): 2, (2, -5): 1},
        {(1, 5): 1, (1, 6): 1, (2, -6): 1},
        {(1, 5): 1, (2, -5): -1},
    ],
    ids=["a sum that is not zero", "a row twice", "an account twice", "a row too few"],
)
def test_wrong_rows_are_found(rows: dict[tuple[int, int], int]) -> None:
    way = Way("select")
    way.balances(Counter(rows), 10)
    assert way.wrong


def test_a_frontier_that_goes_back_is_found() -> None:
    way = followed()
    way.complete(29, 0.0)
    assert way.wrong == ["topic: 29 after 30"]


def test_two_answers_at_one_time_are_found() -> None:
    way = Way("select")
    way.answered(10, RIGHT)
    way.answered(10, RIGHT)
    assert way.wrong == []
    way.answered(10, LATER)
    assert len(way.wrong) == 1


def test_ways_that_agree_agree_between_changes_too() -> None:
    asked = Way("select")
    asked.answered(15, RIGHT)
    asked.answered(29, LATER)
    asked.answered(30, {})
    assert disagreements([followed(), asked]) == (2, [])


def test_ways_that_differ_at_a_time_are_found() -> None:
    late = Way("subscribe")
    late.begin()
    late.changed(10, RIGHT)
    late.complete(30, 0.0)
    compared, wrong = disagreements([followed(), late])
    assert compared == 2
    assert [message.split(":")[0] for message in wrong] == ["at 20"]


def test_what_was_missed_between_two_subscriptions_is_not_compared() -> None:
    torn = Way("subscribe")
    torn.begin()
    torn.changed(10, RIGHT)
    torn.complete(15, 0.0)
    torn.begin()
    torn.changed(25, LATER)
    torn.complete(30, 0.0)
    assert list(torn.at(20)) == []
    assert disagreements([followed(), torn]) == (2, [])
