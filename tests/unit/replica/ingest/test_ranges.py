"""Every record of a range is read once, however it is cut."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from streams.ids import Offset
from streams.replica.ingest import ranges
from streams.replica.ingest.ranges import (
    Slice,
    assign,
    slices,
    windows,
)


@st.composite
def parts(draw):
    offsets = {}
    for partition in range(draw(st.integers(0, 4))):
        lo = draw(st.integers(0, 30))
        offsets[partition] = (lo, lo + draw(st.integers(0, 40)))
    return slices(offsets)


def records(*groups: tuple[Slice, ...]) -> list[tuple[int, int]]:
    return [
        (piece.partition, offset)
        for group in groups
        for piece in group
        for offset in range(piece.lo, piece.hi)
    ]


def test_empty_ranges_are_left_out():
    assert slices({1: (5, 9), 0: (3, 3)}) == (Slice(1, Offset(5), Offset(9)),)


@given(parts(), st.integers(1, 50))
def test_windows_hold_every_record_once_in_the_order_of_positions(everything, budget):
    pieces = windows(everything, budget)
    assert sorted(records(*pieces)) == records(everything)
    assert all(pieces)
    positions = [[(o, p) for p, o in records(piece)] for piece in pieces]
    for earlier, later in pairwise(positions):
        assert max(earlier) < min(later)


@given(parts(), st.integers(1, 50))
def test_windows_keep_to_the_budget_unless_one_offset_is_too_much(everything, budget):
    for piece in windows(everything, budget):
        offsets = {offset for _, offset in records(piece)}
        assert ranges.length(piece) <= budget or len(offsets) == 1


def test_windows_are_as_wide_as_the_budget_allows():
    everything = slices({0: (0, 10), 1: (4, 6)})
    assert [ranges.length(piece) for piece in windows(everything, 6)] == [6, 6]


@given(parts(), st.integers(1, 9))
def test_tasks_share_every_record_evenly(everything, tasks):
    groups = assign(everything, tasks)
    assert sorted(records(*groups)) == records(everything)
    assert len(groups) == min(tasks, ranges.length(everything))
    sizes = [ranges.length(group) for group in groups] or [0]
    assert max(sizes) - min(sizes) <= 1


def test_one_large_partition_keeps_all_tasks_busy():
    assert assign(slices({0: (100, 200)}), 2) == (
        (Slice(0, Offset(100), Offset(150)),),
        (Slice(0, Offset(150), Offset(200)),),
    )
