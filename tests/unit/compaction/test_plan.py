"""The planner: what it merges is contiguous and below upper, and costs log2 n at most."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from streams.compaction import plan
from streams.ids import CapabilityId, CollectionId, EventId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import EMPTY, Antichain, frontier
from streams.storage.log import machine
from streams.storage.log.batches import Batch, trace_of
from streams.storage.log.events import (
    Acquire,
    Append,
    Body,
    Create,
    Downgrade,
    Drop,
    Event,
    Part,
    Replace,
    Right,
)
from streams.storage.log.outcomes import Decision, Replaced
from streams.storage.log.state import Capabilities, CollectionState, State
from tests.support.examples import examples

LAW = examples(150)


def batch(lower: int, upper: int | None, size: int, number: int = 0, since: int = 0) -> Batch:
    chunks = (ChunkRef(0, Offset(number), f"k{number}", 0, size, size),) if size else ()
    end = EMPTY if upper is None else frontier(upper)
    return Batch(Timestamp(lower), end, chunks, Offset(number), 0, Timestamp(since), None)


def collection(
    batches: Sequence[Batch], since: int, upper: Antichain | None = None
) -> CollectionState:
    last = max((plan.top(candidate) for candidate in batches), default=0)
    return CollectionState(
        id=CollectionId("u1"),
        description="",
        since=frontier(since),
        upper=frontier(last) if upper is None else upper,
        batches=trace_of(batches),
        capabilities=Capabilities(),
    )


def in_a_row(sizes: Sequence[int]) -> list[Batch]:
    return [batch(at, at + 1, size, at) for at, size in enumerate(sizes)]


def spans(merges: Sequence[plan.Merge]) -> list[tuple[int, int]]:
    return [(merge.lower, merge.upper.time) for merge in merges]


def test_equal_batches_become_one_and_small_ones_wait_for_their_like() -> None:
    assert spans(plan.geometric(collection(in_a_row([5, 5]), since=9))) == [(0, 2)]
    assert plan.geometric(collection(in_a_row([11, 2, 1]), since=9)) == ()
    assert plan.geometric(collection(in_a_row([11, 7]), since=9)) == ()
    assert spans(plan.geometric(collection(in_a_row([100, 5, 3, 2]), since=9))) == [(1, 4)]


def test_a_large_batch_does_not_wait_for_its_like_when_several_pay_for_it() -> None:
    assert spans(plan.geometric(collection(in_a_row([11, 5, 2]), since=9))) == [(0, 3)]
    assert plan.geometric(collection(in_a_row([11, 5, 2]), since=0)) == ()


def test_above_since_four_of_a_size_are_awaited() -> None:
    assert plan.geometric(collection(in_a_row([5, 5, 5]), since=0)) == ()
    [merge] = plan.geometric(collection(in_a_row([5, 5, 5, 5]), since=0))
    assert (merge.lower, merge.upper, merge.advance_to) == (0, frontier(4), 0)


def test_times_are_advanced_to_since_but_not_out_of_the_batch() -> None:
    """Rule 9: lower <= t < upper always holds."""
    [merge] = plan.geometric(collection(in_a_row([5, 5]), since=70))
    assert merge.advance_to == 1
    sealed = [
        batch(0, 5, 5, 0),
        batch(5, None, 5, 1),
        batch(5, None, 5, 2),
        batch(5, None, 5, 3),
    ]
    [merge] = plan.geometric(collection(sealed, since=70, upper=EMPTY))
    assert (merge.upper, merge.advance_to) == (EMPTY, 70)


def test_a_merged_batch_is_settled_once_when_since_has_passed_it() -> None:
    wide = batch(0, 10, 5, since=3)
    assert plan.geometric(collection([wide], since=8)) == ()
    [merge] = plan.geometric(collection([wide], since=9))
    assert merge.advance_to == 9
    assert plan.geometric(collection([replace(wide, since=Timestamp(9))], since=20)) == ()


def test_empty_batches_are_merged_and_go_along() -> None:
    assert plan.geometric(collection(in_a_row([0] * 7), since=9)) == ()
    [merge] = plan.geometric(collection(in_a_row([0] * 8), since=0))
    assert spans([merge]) == [(0, 8)]
    assert spans(plan.geometric(collection(in_a_row([5, 0, 0, 5]), since=9))) == [(0, 4)]


def test_what_reaches_beyond_upper_is_left_alone() -> None:
    """Rule 2: batches of different capabilities may overlap in time."""
    ahead = batch(0, 100, 5, 50)
    merges = plan.geometric(collection([*in_a_row([5, 5]), ahead], since=9, upper=frontier(2)))
    assert spans(merges) == [(0, 2)]
    assert all(ahead not in merge.batches for merge in merges)


def test_a_gap_is_not_bridged() -> None:
    apart = [batch(0, 1, 5, 0), batch(3, 4, 5, 1)]
    assert plan.geometric(collection(apart, since=9)) == ()
    assert plan.whole(collection(apart, since=9)) == ()


def test_nothing_is_merged_of_what_nobody_can_read() -> None:
    sealed = replace(collection(in_a_row([5, 5]), since=0), since=EMPTY)
    assert plan.geometric(sealed) == plan.whole(sealed) == ()


def test_the_whole_is_one_batch() -> None:
    assert spans(plan.whole(collection(in_a_row([100, 5]), since=0))) == [(0, 2)]
    assert spans(plan.whole(collection([batch(0, 5, 5)], since=2))) == [(0, 5)]
    assert plan.whole(collection([batch(0, 5, 5, since=2)], since=2)) == ()
    assert plan.whole(collection([batch(4, 5, 5)], since=9)) == ()
    assert plan.whole(collection([batch(3, 5, 5)], since=3)) == ()


INTERVALS = st.tuples(st.integers(0, 20), st.integers(1, 8), st.integers(0, 50))


@LAW
@given(st.lists(INTERVALS, max_size=25), st.integers(0, 30), st.integers(0, 30))
def test_merges_are_contiguous_disjoint_and_below_upper(
    intervals: list[tuple[int, int, int]], since: int, upper: int
) -> None:
    batches = [
        batch(lower, lower + length, size, number)
        for number, (lower, length, size) in enumerate(intervals)
    ]
    given_ = collection(batches, since, frontier(upper))
    for merges in (plan.geometric(given_), plan.whole(given_)):
        names = [member.name for merge in merges for member in merge.batches]
        assert len(names) == len(set(names))
        for merge in merges:
            assert merge.upper.time <= upper
            assert merge.lower <= merge.upper.time - 1
            assert merge.advance_to < merge.upper.time
            assert merge.advance_to <= since
            covered = {
                t for member in merge.batches for t in range(member.lower, member.upper.time)
            }
            assert covered == set(range(merge.lower, merge.upper.time))


def test_a_run_does_not_end_where_it_alone_has_a_gap() -> None:
    """One writer covers [0, 100) at once, another writes small batches, and goes."""
    small = [batch(0, 10, 5, 1), batch(10, 20, 5, 2)]
    later = [batch(100 + at, 101 + at, 5, 3 + at) for at in range(2)]
    given_ = collection([batch(0, 100, 1000, 0), *small, *later], since=200)
    assert spans(plan.geometric(given_)) == [(0, 20), (100, 102)]
    [merge] = plan.whole(given_)
    assert spans([merge]) == [(0, 102)]


MOVES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.one_of(st.integers(1, 3), st.integers(0, 40)),
        st.sampled_from([0, 1, 5, 5, 5, 400]),
    ),
    max_size=40,
)


@examples(400)
@given(MOVES, st.integers(0, 60), st.booleans())
def test_every_plan_counts_when_it_is_carried_out_at_once(
    moves: list[tuple[int, int, int]], since: int, is_whole: bool
) -> None:
    """Writers overlap, go ahead and stop, as capabilities allow; no Replace is refused."""
    state = written(moves, since)
    for merge in (plan.whole if is_whole else plan.geometric)(state.collections[U1]):
        replaced = tuple(member.name for member in merge.batches)
        body = Replace(collection=U1, replaced=replaced, chunks=(), since=merge.since)
        state, outcome = told(state, body)
        assert outcome == Replaced()


U1 = CollectionId("u1")


def written(moves: Sequence[tuple[int, int, int]], since: int) -> State:
    """The fold of appends by three writers, each (writer, length, bytes); 0: it goes away."""
    reader = CapabilityId("reader")
    create = Create(collection=U1, description="", frontier=Timestamp(0), write=writer(0))
    state, _ = told(State(), create)
    for name in (writer(1), writer(2)):
        state, _ = told(state, Acquire(collection=U1, capability=name, right=Right.WRITE))
    hold = Acquire(collection=U1, capability=reader, right=Right.READ)
    state, _ = told(state, hold)
    for number, length, size in moves:
        live = state.collections[U1].capabilities
        if writer(number) not in live:
            continue
        if not length and len(live) > 2:  # the reader, and a writer that stays
            state, _ = told(state, Drop(U1, writer(number)))
            continue
        lower = live[writer(number)].frontier
        key = f"k{state.upto}"
        chunks = (ChunkRef(0, Offset(state.upto + 1), key, 0, 1, size),) if size else ()
        upper = frontier(lower.time + max(length, 1))
        part = Part(
            collection=U1, capability=writer(number), lower=lower, upper=upper, chunks=chunks
        )
        state, _ = told(state, Append((part,)))
    moved = Downgrade(collection=U1, capability=reader, frontier=frontier(since))
    return told(state, moved)[0]


def writer(number: int) -> CapabilityId:
    return CapabilityId(f"writer{number}")


def told(state: State, body: Body) -> tuple[State, Decision]:
    offset = Offset(state.upto + 1)
    event = Event(EventId(f"e{offset}"), "group", state.upto, body)
    return machine.step(state, event, offset, 1_000 + offset)


SIZES = st.lists(st.one_of(st.integers(1, 5), st.integers(1, 2000)), min_size=2, max_size=80)


def after(state: CollectionState, merge: plan.Merge, number: int) -> CollectionState:
    """The collection once the merge was swapped in, had nothing cancelled."""
    new = batch(merge.lower, merge.upper.time, merge.size, number, merge.since)
    return replace(state, batches=state.batches.replace(merge.batches, new))


@LAW
@given(SIZES, st.integers(0, 12), st.integers(1, 5), st.booleans())
def test_bytes_rewritten_per_byte_written_are_log2_of_the_batches_at_most(
    sizes: list[int], lag: int, pace: int, ends: bool
) -> None:
    state = collection([], since=0)
    rewritten = 0
    for at, size in enumerate(sizes):
        trace = state.batches.add(batch(at, at + 1, size, at))
        since = max(state.since.time, at - lag)
        state = replace(state, batches=trace, upper=frontier(at + 1), since=frontier(since))
        if at % pace and not (ends and at == len(sizes) - 1):
            continue
        for round_ in range(10):
            merges = plan.geometric(state)
            for number, merge in enumerate(merges):
                rewritten += merge.size
                state = after(state, merge, 1000 * (at + 1) + 100 * round_ + number)
            if not merges:
                break
        else:
            raise AssertionError("planning does not come to rest")
    assert rewritten <= sum(sizes) * math.log2(len(sizes)) + 1e-6


@LAW
@given(SIZES)
def test_few_batches_are_left(sizes: list[int]) -> None:
    """What is left of batches written in turn falls off from its largest, on either side."""
    state = collection([], since=0)
    for at, size in enumerate(sizes):
        trace = state.batches.add(batch(at, at + 1, size, at))
        state = replace(state, batches=trace, upper=frontier(at + 1), since=frontier(at))
        for number, merge in enumerate(plan.geometric(state)):
            state = after(state, merge, 1000 * (at + 1) + number)
    sizes_ = [
        plan.size(member) for member in sorted(state.batches, key=lambda batch_: batch_.lower)
    ]
    assert len(sizes_) <= 2 * math.sqrt(sum(sizes) / min(sizes)) + 2
    assert all(one + two < 2 * max(one, two) for one, two in itertools.pairwise(sizes_))


def test_many_small_appends_leave_a_ladder() -> None:
    state = collection([], since=0)
    worst = 0
    for at in range(1000):
        trace = state.batches.add(batch(at, at + 1, 1, at))
        state = replace(state, batches=trace, upper=frontier(at + 1), since=frontier(at))
        for number, merge in enumerate(plan.geometric(state)):
            state = after(state, merge, 10 * (at + 1) + number)
        worst = max(worst, state.batches.count)
    assert worst <= math.log2(1000) + 1
