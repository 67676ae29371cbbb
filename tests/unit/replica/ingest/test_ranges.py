"""Every record of a range is read once, however it is cut, or the reading stalls."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.compute.description import IngestionDescription
from streams.compute.reclocking import Ends
from streams.ids import Offset, Topic
from streams.replica.ingest import ranges
from streams.replica.ingest.ranges import (
    SETTLED,
    NotYet,
    Slice,
    Stalled,
    Told,
    assign,
    impediment,
    slices,
    windows,
)


@st.composite
def parts(draw):
    found = {}
    for partition in range(draw(st.integers(0, 4))):
        lo = draw(st.integers(0, 30))
        found[partition] = (lo, lo + draw(st.integers(0, 40)))
    return slices(found)


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
def test_windows_hold_every_record_once_in_the_order_of_positions(whole, budget):
    pieces = windows(whole, budget)
    assert sorted(records(*pieces)) == records(whole)
    assert all(pieces)
    positions = [[(o, p) for p, o in records(piece)] for piece in pieces]
    for earlier, later in pairwise(positions):
        assert max(earlier) < min(later)


@given(parts(), st.integers(1, 50))
def test_windows_keep_to_the_budget_unless_one_offset_is_too_much(whole, budget):
    for piece in windows(whole, budget):
        offsets = {offset for _, offset in records(piece)}
        assert ranges.length(piece) <= budget or len(offsets) == 1


def test_windows_are_as_wide_as_the_budget_allows():
    whole = slices({0: (0, 10), 1: (4, 6)})
    assert [ranges.length(piece) for piece in windows(whole, 6)] == [6, 6]


@given(parts(), st.integers(1, 9))
def test_tasks_share_every_record_evenly(whole, tasks):
    groups = assign(whole, tasks)
    assert sorted(records(*groups)) == records(whole)
    assert len(groups) == min(tasks, ranges.length(whole))
    sizes = [ranges.length(group) for group in groups] or [0]
    assert max(sizes) - min(sizes) <= 1


def test_one_large_partition_keeps_all_tasks_busy():
    assert assign(slices({0: (100, 200)}), 2) == (
        (Slice(0, Offset(100), Offset(150)),),
        (Slice(0, Offset(150), Offset(200)),),
    )


SOURCE = IngestionDescription(topic=Topic("events"), topic_id="a", envelope="none")


@pytest.mark.parametrize(
    ("bound", "told", "found"),
    [
        ({0: 5}, Told("a", {0: Ends(2, 9)}), None),
        ({}, Told("a", {0: Ends(7, 9)}), None),
        ({0: 5}, Told("a", {0: Ends(0, 5), 1: Ends(0, 3)}), None),
        ({}, Told(None, {}), 'topic "events" does not exist'),
        (
            {0: 5},
            Told("b", {0: Ends(0, 9)}),
            'topic "events" was re-created: expected id a, got b',
        ),
        (
            {0: 5},
            Told("a", {0: Ends(0, 9)}, shrunk=(0,)),
            'topic "events" has lost records at the end of partition 0',
        ),
        (
            {0: 5},
            Told("a", {0: Ends(8, 9)}),
            'topic "events", partition 0: offsets 5 to 7 were deleted before they were read',
        ),
        (
            {0: 5},
            Told("a", {0: Ends(0, 5), 1: Ends(2, 3)}),
            'topic "events", partition 1: offsets 0 to 1 were deleted before they were read',
        ),
        ({0: 5}, Told("a", {0: Ends(0, 4)}), NotYet()),
        (
            {0: 5},
            Told("a", {0: Ends(0, 4)}, repeats=SETTLED),
            'topic "events", partition 0: expected to reach offset 5, got an end at 4',
        ),
        (
            {0: 5, 1: 0},
            Told("a", {0: Ends(0, 5)}, repeats=SETTLED),
            'topic "events", partition 1: expected offset 0, got no such partition',
        ),
    ],
    ids=[
        "goes on",
        "starts at what is held",
        "new partition",
        "gone",
        "re-created",
        "shrunk",
        "overtaken",
        "new partition overtaken",
        "old answer",
        "truncated",
        "partition lost",
    ],
)
def test_nothing_is_passed_over(bound, told, found):
    expected = Stalled(found) if isinstance(found, str) else found
    assert impediment(SOURCE, bound, told) == expected
