"""Pauses after a defect: when something is due again."""

from streams.ids import CollectionId
from streams.storage.client.backoff import LONGEST_PAUSE_S, RetryBackoff

ILL, WELL = CollectionId("u1"), CollectionId("u2")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_pause_doubles_up_to_the_longest_and_ends_with_success() -> None:
    clock = Clock()
    pauses = RetryBackoff(clock)
    assert pauses.is_due(ILL)
    waited = []
    for _ in range(9):
        pauses.failed(ILL)
        began = clock.now
        while not pauses.is_due(ILL):
            clock.now += 0.5
        waited.append(clock.now - began)
    assert waited == [0.5, 1, 2, 4, 8, 16, 32, 60, LONGEST_PAUSE_S]
    assert (ILL in pauses, WELL in pauses) == (True, False)
    assert pauses.is_due(WELL)
    pauses.over(ILL)
    pauses.failed(ILL)
    clock.now += 0.5
    assert pauses.is_due(ILL)


def test_what_is_of_no_interest_is_forgotten() -> None:
    pauses = RetryBackoff(Clock())
    pauses.failed(ILL)
    pauses.failed(WELL)
    pauses.keep([WELL])
    assert (ILL in pauses, WELL in pauses) == (False, True)
