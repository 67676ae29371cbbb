import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.adapter.timestamp_selection import (
    LAST,
    ReadAt,
    Unreadable,
    choose,
)
from streams.compute.as_of import ReadableInterval
from streams.ids import Timestamp
from streams.progress import EMPTY, frontier


def bounds(name: str, since: int | None, upper: int | None) -> ReadableInterval:
    return ReadableInterval(
        name,
        EMPTY if since is None else frontier(since),
        EMPTY if upper is None else frontier(upper),
    )


@pytest.mark.parametrize(
    ("inputs", "as_of", "expected"),
    [
        ([("a", 2, 10)], None, ReadAt(Timestamp(9), ())),
        ([("a", 2, 10), ("b", 3, 7)], None, ReadAt(Timestamp(6), ())),
        ([("a", 8, 10), ("b", 3, 7)], None, ReadAt(Timestamp(8), ("b",))),
        ([("a", 5, 5)], None, ReadAt(Timestamp(5), ("a",))),
        ([("a", 2, None)], None, ReadAt(LAST, ())),
        ([("a", 2, None), ("b", 1, 4)], None, ReadAt(Timestamp(3), ())),
        ([("a", 2, 10)], 2, ReadAt(Timestamp(2), ())),
        ([("a", 2, 10)], 10, ReadAt(Timestamp(10), ("a",))),
        ([("a", 2, 10)], 1, Unreadable("a", frontier(2))),
        ([("a", 2, 10), ("b", None, 4)], None, Unreadable("b", EMPTY)),
        ([], 7, ReadAt(Timestamp(7), ())),
    ],
)
def test_the_time_of_a_read(inputs, as_of, expected) -> None:
    assert choose(tuple(bounds(*input_) for input_ in inputs), as_of) == expected


frontiers = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted)


@given(st.lists(frontiers, min_size=1, max_size=4))
def test_the_freshest_time_is_the_greatest_at_which_everything_is_readable(pairs) -> None:
    inputs = tuple(bounds(str(index), *pair) for index, pair in enumerate(pairs))
    common = [
        time for time in range(21) if all(since <= time < upper for since, upper in pairs)
    ]
    match choose(inputs, None):
        case ReadAt(time, waits_for):
            assert (not waits_for) == bool(common)
            assert time == (max(common) if common else max(since for since, _ in pairs))
        case other:
            pytest.fail(str(other))
