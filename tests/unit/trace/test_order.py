"""Searching sorted ranges: the places that bisect finds, in few rounds."""

from bisect import bisect_left, bisect_right

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.trace.arrange import order
from streams.trace.columns import Ints

LONG = 5_000
"""Longer than what is only halved."""


def _column(numbers: Ints, kind: str) -> pa.Array:
    if kind == "numbers":
        return pa.array(numbers)
    return pa.array([number.to_bytes(4, "big") for number in numbers.tolist()], pa.binary())


@given(
    kind=st.sampled_from(("numbers", "bytes")),
    seed=st.integers(0, 1 << 32),
    searches=st.sampled_from((1, 3, 16, 100, 300)),
    longest=st.sampled_from((3, 50, LONG)),
    spread=st.sampled_from((1, 40, 1 << 20)),
    after=st.booleans(),
)
def test_bounds_are_those_of_bisect(
    kind: str, seed: int, searches: int, longest: int, spread: int, after: bool
) -> None:
    chance = np.random.default_rng(seed)
    numbers = np.sort(chance.integers(0, spread, LONG))
    low = chance.integers(0, LONG + 1, searches)
    high = np.minimum(low + chance.integers(0, longest + 1, searches), LONG)
    wanted = chance.integers(0, spread + 1, searches)
    column, values = _column(numbers, kind), order.comparables(_column(wanted, kind))
    places = order.bound(order.reader(column), low, high, values, after=after)
    search = bisect_right if after else bisect_left
    listed = numbers.tolist()
    expected = [
        search(listed, value, begin, end)
        for begin, end, value in zip(low.tolist(), high.tolist(), wanted.tolist(), strict=True)
    ]
    assert places.tolist() == expected


@pytest.mark.parametrize(("wanted", "most"), [(-1, 1), (1 << 40, 1), (777_777, 6)])
def test_one_search_takes_few_rounds(wanted: int, most: int) -> None:
    numbers, rounds = np.arange(1_000_000), []

    def read(places: Ints) -> Ints:
        rounds.append(len(places))
        return numbers[places]

    low, high = np.zeros(1, np.int64), np.full(1, len(numbers))
    order.bound(read, low, high, np.array([wanted]), after=False)
    assert len(rounds) <= most


def test_many_searches_outside_a_long_range_take_one_round() -> None:
    numbers, rounds = np.arange(1_000_000), []

    def read(places: Ints) -> Ints:
        rounds.append(len(places))
        return numbers[places]

    low, high = np.zeros(1_000, np.int64), np.full(1_000, len(numbers))
    bounds = order.bound(read, low, high, np.full(1_000, 1 << 40), after=False)
    assert (len(rounds), set(bounds.tolist())) == (1, {len(numbers)})
