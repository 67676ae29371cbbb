"""What a log's clock owes the leases of its group, for append times of every kind (rule 11)."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from streams.ids import CapabilityId, CollectionId, EventId, Offset, Timestamp
from streams.progress import EMPTY, Antichain, frontier
from streams.storage.log import rollup
from streams.storage.log.events import (
    Acquire,
    Append,
    Body,
    Create,
    Downgrade,
    Event,
    Part,
    Reclaim,
    Right,
    Stage,
)
from streams.storage.log.machine import MAX_TICK_MS, step
from streams.storage.log.state import State
from tests.support.examples import examples

LAW = examples(60)
U1, W, R = CollectionId("u1"), CapabilityId("w"), CapabilityId("r")
CREATE = Create(collection=U1, description="{}", frontier=Timestamp(0), write=W)
BEAT = Downgrade(collection=U1, capability=W, frontier=frontier(0))
HOUR = 3_600_000
passing = st.sampled_from([0, 1, 10, 700, 29_999, 30_000, 30_001, HOUR, 24 * HOUR])
wild = st.sampled_from([-100 * 24 * HOUR, -HOUR, -1, HOUR, 100 * 24 * HOUR])
leases = st.sampled_from([1, 500, 40_000, 900_000])


def granting(lease_ms: int) -> Acquire:
    return Acquire(collection=U1, capability=R, right=Right.READ, lease_ms=lease_ms)


def states_of(bodies: Sequence[Body], times: Sequence[int]) -> list[State]:
    """The state after each record."""
    state, states = State(), []
    for number, (body, at_ms) in enumerate(zip(bodies, times, strict=True)):
        event = Event(EventId(f"e{number}"), "g", Offset(number - 1), body)
        state, _ = step(state, event, Offset(number), at_ms)
        states.append(state)
    return states


def added_up(steps: Sequence[int]) -> list[int]:
    return [1_000_000_000_000 + sum(steps[: number + 1]) for number in range(len(steps))]


def is_held(state: State) -> bool:
    return R in state.collections[U1].capabilities


@LAW
@given(st.lists(passing, min_size=2, max_size=60), leases, st.data())
def test_a_lease_lasts_at_least_as_long_as_it_was_granted_for(
    steps: list[int], lease_ms: int, data: st.DataObject
) -> None:
    """Whatever silence came before, in between, or just before the grant."""
    times = added_up(steps)
    granted = data.draw(st.integers(1, len(times) - 1))
    bodies: list[Body] = [CREATE, *([BEAT] * (len(times) - 1))]
    bodies[granted] = granting(lease_ms)
    staging = replace_at(bodies, granted, Stage(stage="s", chunks=(), lease_ms=lease_ms))
    is_live = [is_held(state) for state in states_of(bodies, times)]
    staged = ["s" in state.stages for state in states_of(staging, times)]
    for number in range(granted, len(times)):
        counted = sum(min(step_, MAX_TICK_MS) for step_ in steps[granted + 1 : number + 1])
        assert is_live[number] == staged[number] == (counted < lease_ms)
        assert is_live[number] or times[number] - times[granted] >= lease_ms


def replace_at(bodies: list[Body], number: int, body: Body) -> list[Body]:
    return [*bodies[:number], body, *bodies[number + 1 :]]


@LAW
@given(st.lists(passing, min_size=3, max_size=40), wild, st.data())
def test_one_wild_time_costs_or_gives_a_lease_30_seconds(
    steps: list[int], off_ms: int, data: st.DataObject
) -> None:
    """So it neither ends what others hold, nor makes eternal what is granted at it."""
    times = added_up(steps)
    wild_at = data.draw(st.integers(1, len(times) - 2))
    strange = [at + off_ms * (number == wild_at) for number, at in enumerate(times)]
    bodies: list[Body] = [CREATE, *([BEAT] * (len(times) - 1))]
    honest, off = states_of(bodies, times), states_of(bodies, strange)
    for one, other in zip(honest, off, strict=True):
        assert abs(one.clock_ms - other.clock_ms) <= MAX_TICK_MS


@LAW
@given(st.lists(passing | wild, min_size=2, max_size=20), leases)
def test_a_lease_ends_whatever_the_broker_believed(steps: list[int], lease_ms: int) -> None:
    """By the records that follow it, as soon as their times are sound again."""
    times = added_up(steps)
    rest = [times[0] + MAX_TICK_MS * number for number in range(lease_ms // MAX_TICK_MS + 3)]
    beats, more = [BEAT] * (len(times) - 2), [BEAT] * len(rest)
    bodies: list[Body] = [CREATE, *beats, granting(lease_ms), *more]
    assert not is_held(states_of(bodies, [*times, *rest])[-1])


@LAW
@given(st.lists(passing | wild, min_size=4, max_size=30), leases, st.data())
def test_who_begins_at_a_rollup_counts_on_as_everybody_does(
    steps: list[int], lease_ms: int, data: st.DataObject
) -> None:
    times = added_up(steps)
    bodies: list[Body] = [CREATE, granting(lease_ms), *([BEAT] * (len(times) - 2))]
    states = states_of(bodies, times)
    upto = data.draw(st.integers(1, len(times) - 2))
    state = rollup.decode(rollup.encode(states[upto]))
    for number in range(upto + 1, len(times)):
        event = Event(EventId(f"e{number}"), "g", Offset(number - 1), bodies[number])
        state, _ = step(state, event, Offset(number), times[number])
    assert rollup.encode(state) == rollup.encode(states[-1])
    assert rollup.decode(rollup.encode(state)).appended_ms == times[-1]


def test_a_state_of_an_earlier_form_counts_on_from_its_clock() -> None:
    """There both are one number: its clock was at the last append time."""
    for appended_ms in (1_000, 900):
        state = State(group="g", upto=Offset(0), clock_ms=1_000, appended_ms=appended_ms)
        loaded = rollup.decode(rollup.encode(state))
        assert (loaded.clock_ms, loaded.appended_ms) == (1_000, appended_ms)


OTHER = CapabilityId("other")


def writing(name: CapabilityId, lower: int, upper: Antichain) -> Append:
    part = Part(collection=U1, capability=name, lower=frontier(lower), upper=upper)
    return Append((part,))


@LAW
@given(st.lists(st.tuples(st.sampled_from([W, OTHER]), st.integers(1, 9)), max_size=8))
def test_a_lease_ends_as_well_before_the_other_writer_finishes_as_after(
    moves: list[tuple[CapabilityId, int]],
) -> None:
    """Upper comes to the same, wherever the two stand; and so do the batches."""
    bodies: list[Body] = [
        CREATE,
        Acquire(collection=U1, capability=OTHER, right=Right.WRITE, lease_ms=1_000),
    ]
    stand = {W: 0, OTHER: 0}
    for name, by in moves:
        bodies.append(writing(name, stand[name], frontier(stand[name] + by)))
        stand[name] += by
    finishing, ending = writing(W, stand[W], EMPTY), Reclaim({})
    silence = [0] * len(bodies)
    before = states_of([*bodies, ending, finishing], added_up([*silence, 1_000, 0]))[-1]
    after = states_of([*bodies, finishing, ending], added_up([*silence, 0, 1_000]))[-1]
    assert before.collections[U1].upper == after.collections[U1].upper == EMPTY
    spans = [
        {(batch.lower, batch.upper) for batch in state.collections[U1].batches}
        for state in (before, after)
    ]
    assert spans[0] == spans[1]
