"""Traces of batches: persistent, found by bisection, the same however they are kept."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from streams.ids import Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import frontier
from streams.storage.log.batches import BLOCK, Batch, Trace, trace_of
from tests.support.examples import examples

LAW = examples(60)


def batch(lower: int, upper: int, offset: int, *, empty: bool = False) -> Batch:
    chunk = ChunkRef(0, Offset(offset), f"{offset}", 0, 1, 1)
    chunks = () if empty else (chunk,)
    time = Timestamp(lower)
    return Batch(time, frontier(upper), chunks, Offset(offset), 0, Timestamp(0), None)


def chain(times: Sequence[int]) -> Trace:
    trace = Trace()
    for offset, (lower, upper) in enumerate(pairwise(times)):
        trace = trace.add(batch(lower, upper, offset))
    return trace


def test_thousands_of_batches_stay_in_one_lane_and_are_found() -> None:
    trace = chain(range(5_000))
    assert len(trace.lanes) == 1
    assert trace.count == 4_999
    for lower in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 4_000, 4_998):
        batches = list(trace.overlapping(Timestamp(lower), Timestamp(lower + 3)))
        assert [member.lower for member in batches] == list(range(lower, min(lower + 3, 4_999)))
    assert list(trace.overlapping(Timestamp(5_000), Timestamp(6_000))) == []


def test_adding_leaves_the_trace_before_as_it_was() -> None:
    before = chain(range(BLOCK))
    after = before.add(batch(BLOCK - 1, BLOCK, 999))
    assert (before.count, after.count) == (BLOCK - 1, BLOCK)
    assert [member.offset for member in before] == list(range(BLOCK - 1))
    # the next ones share a block, and still do not touch each other
    one, other = after.add(batch(200, 201, 1)), after.add(batch(300, 301, 2))
    assert one.ordered() != other.ordered()


INTERVALS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 20), st.booleans()), min_size=1, max_size=40
)


@LAW
@given(INTERVALS, st.integers(0, 60), st.integers(1, 20))
def test_any_batches_are_found_by_their_interval(
    intervals: list[tuple[int, int, bool]], lower: int, width: int
) -> None:
    every = [
        batch(start, start + size, offset, empty=empty)
        for offset, (start, size, empty) in enumerate(intervals)
    ]
    for trace in (trace_of(every), grown([member for member in every if member.chunks])):
        expected = {
            member.name
            for member in trace
            if member.lower < lower + width and member.upper.time > lower
        }
        batches = list(trace.overlapping(Timestamp(lower), Timestamp(lower + width)))
        assert {member.name for member in batches} == expected
        assert len(batches) == len(expected)
        assert all(trace.find(member.name) == member for member in trace)


def grown(every: Sequence[Batch]) -> Trace:
    trace = Trace()
    for member in every:
        trace = trace.add(member)
    assert {b.name for b in trace} == {b.name for b in every}
    return trace


@LAW
@given(INTERVALS)
def test_how_batches_are_kept_does_not_matter_for_what_is_added_next(
    intervals: list[tuple[int, int, bool]],
) -> None:
    trace = Trace()
    for offset, (start, size, empty) in enumerate(intervals):
        trace = trace.add(batch(start, start + size, offset, empty=empty))
    again = trace_of(trace.ordered())
    assert again.ordered() == trace.ordered()
    for start in range(0, 60, 7):
        more = batch(start, start + 3, 1_000, empty=True)
        assert again.add(more).ordered() == trace.add(more).ordered()


@LAW
@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_runs_of_empty_batches_become_one(empties: list[bool]) -> None:
    trace = Trace()
    for number, empty in enumerate(empties):
        trace = trace.add(batch(number, number + 1, number, empty=empty))
    runs = 1 + sum(one != other or not one for one, other in pairwise(empties))
    assert trace.count == runs
    assert trace.ordered()[-1].upper == frontier(len(empties))


@LAW
@given(st.integers(1, 400), st.data())
def test_a_replaced_stretch_gives_way_to_one(size: int, data: st.DataObject) -> None:
    trace = chain(range(size + 1))
    start = data.draw(st.integers(0, size - 1))
    end = data.draw(st.integers(start + 1, size))
    removed = [member for member in trace if start <= member.lower < end]
    new = batch(start, end, 10_000)
    after = trace.replace(removed, new)
    assert after.count == size - len(removed) + 1
    assert after.find(new.name) == new
    assert all(after.find(member.name) is None for member in removed)
    assert len(after.lanes) == 1
