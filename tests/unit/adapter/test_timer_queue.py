"""What a clock makes due is found without a look at what is not."""

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.adapter.timer_queue import SPARE, Due
from streams.ids import CollectionId

NAMES = [CollectionId(f"s{number}") for number in range(6)]
MOVES = st.tuples(st.sampled_from(NAMES), st.none() | st.integers(0, 50))


@given(st.lists(MOVES | st.integers(0, 50), max_size=60))
def test_what_is_due_is_what_a_look_at_all_would_find(steps) -> None:
    due = Due()
    expected: dict[CollectionId, int] = {}
    for step in steps:
        if isinstance(step, int):
            expired = {name: at for name, at in expected.items() if at <= step}
            assert due.take(step) == sorted(expired, key=lambda name: (expired[name], name))
            expected = {name: at for name, at in expected.items() if name not in expired}
        else:
            name, at_ms = step
            due.set(name, at_ms)
            expected.pop(name, None)
            if at_ms is not None:
                expected[name] = at_ms


@pytest.mark.parametrize("sources", [100, 10_000])
def test_a_question_looks_at_nothing_that_is_not_due(sources) -> None:
    looked = [0]

    class Time(int):
        def __lt__(self, other: int) -> bool:
            looked[0] += 1
            return int(self) < other

        def __le__(self, other: int) -> bool:
            looked[0] += 1
            return int(self) <= other

    due = Due()
    for number in range(sources):
        due.set(CollectionId(f"s{number}"), Time(1_000 + number))
    looked[0] = 0
    assert due.take(999) == []
    assert looked[0] <= 1
    assert due.take(1_001) == ["s0", "s1"]
    assert looked[0] <= 200  # twice down a heap, whose depth is log n


def test_times_that_hold_no_more_do_not_pile_up(monkeypatch) -> None:
    pushed, push = [0], heapq.heappush

    def counted(heap: list[tuple[int, str]], entry: tuple[int, str]) -> None:
        pushed[0] = max(pushed[0], len(heap))
        push(heap, entry)

    monkeypatch.setattr("streams.adapter.timer_queue.heapq.heappush", counted)
    due = Due()
    for number in range(1_000):
        due.set(NAMES[0], 10 + number)
    assert pushed[0] <= SPARE + 2
    assert due.take(2_000) == [NAMES[0]]
