"""What is said of a shard, from states alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.app.shard.shard_info import (
    DROPPED,
    OPEN,
    SEALED,
    Size,
    facts_of,
    held_back,
    holders_of,
    size_of,
    status_of,
)
from streams.ids import CapabilityId, CollectionId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import EMPTY, Antichain, frontier
from streams.storage.description import Description, dumps
from streams.storage.log.batches import Batch, Trace, trace_of
from streams.storage.log.events import Right
from streams.storage.log.state import (
    Capabilities,
    Capability,
    CollectionState,
    State,
    Superseded,
    collections_of,
    settled,
)

U1 = CollectionId("u1")
DESCRIPTION = Description((("name", "VARCHAR"),), kind="table")


def ref(offset: int, rows: int = 10, size: int = 100, partition: int = 0) -> ChunkRef:
    return ChunkRef(partition, Offset(offset), f"k{partition}.{offset}", 0, rows, size)


def batch(lower: int, upper: int | None, *chunks: ChunkRef, since: int = 0) -> Batch:
    end = EMPTY if upper is None else frontier(upper)
    return Batch(Timestamp(lower), end, chunks, Offset(lower), 0, Timestamp(since), None)


def capability(right: Right, time: int, **more: int) -> Capability:
    return Capability(right, frontier(time), **more)  # type: ignore[arg-type]  # offsets


BEGUN, NINE, NO_BATCHES = frontier(0), frontier(9), Trace()
TEXT = dumps(DESCRIPTION)


def collection(
    since: Antichain = BEGUN,
    upper: Antichain = NINE,
    batches: Trace = NO_BATCHES,
    description: str = TEXT,
    **capabilities: Capability,
) -> CollectionState:
    return CollectionState(
        id=U1,
        description=description,
        since=since,
        upper=upper,
        batches=batches,
        capabilities=Capabilities(
            {CapabilityId(name): value for name, value in capabilities.items()}
        ),
    )


def test_a_chunk_that_is_linked_twice_counts_once() -> None:
    shared = ref(1)
    trace = trace_of([batch(0, 4, shared, ref(2)), batch(4, 9, shared, since=3)])
    facts = facts_of("g", collection(batches=trace))
    assert facts.live == Size(2, 20, 200)
    assert (facts.batches, facts.compacted) == (2, 1)
    assert (facts.id, facts.group, facts.description) == ("u1", "g", DESCRIPTION)


@pytest.mark.parametrize(
    ("since", "upper", "status"),
    [
        (frontier(0), frontier(9), OPEN),
        (frontier(0), EMPTY, SEALED),
        (EMPTY, EMPTY, DROPPED),
    ],
)
def test_the_status_follows_from_the_frontiers(since, upper, status) -> None:
    assert status_of(collection(since, upper)) == status


def test_a_description_of_another_client_is_no_failure() -> None:
    assert facts_of("g", collection(description="what?")).description is None


def test_a_reader_holds_since_back_to_the_next_one() -> None:
    state_ = collection(
        frontier(3),
        frontier(100),
        a=capability(Right.READ, 3),
        b=capability(Right.READ, 40),
        w=capability(Right.WRITE, 100),
    )
    assert held_back(state_, CapabilityId("a")) == 37
    assert held_back(state_, CapabilityId("b")) == 0
    assert held_back(state_, CapabilityId("w")) is None


def test_since_stays_below_upper_whoever_goes() -> None:
    state_ = collection(
        frontier(3), frontier(10), a=capability(Right.READ, 3), b=capability(Right.READ, 40)
    )
    assert held_back(state_, CapabilityId("a")) == 6


times = st.integers(0, 20)


@given(
    st.lists(times, min_size=2, max_size=5),
    st.lists(times, min_size=2, max_size=5),
    st.data(),
)
def test_what_is_held_back_is_what_the_fold_would_move(readers, writers, data) -> None:
    capabilities = {
        **{CapabilityId(f"r{n}"): capability(Right.READ, t) for n, t in enumerate(readers)},
        **{CapabilityId(f"w{n}"): capability(Right.WRITE, t) for n, t in enumerate(writers)},
    }
    state_ = collection(frontier(0), frontier(1))
    state_ = settled(state_, Capabilities(capabilities), state_.batches, None)
    dropped = data.draw(st.sampled_from(sorted(capabilities)))
    rest = {name: value for name, value in capabilities.items() if name != dropped}
    after = settled(state_, Capabilities(rest), state_.batches, None)
    moved = (
        after.since.time - state_.since.time
        if dropped.startswith("r")
        else after.upper.time - state_.upper.time
    )
    assert held_back(state_, dropped) == moved


def test_a_plan_keeps_what_was_superseded_from_it_on() -> None:
    state_ = collection(a=capability(Right.READ, 0, plan=5), b=capability(Right.READ, 0))
    state = State(
        collections=collections_of([state_]),
        superseded=(
            Superseded(Offset(4), (ref(1),)),
            Superseded(Offset(5), (ref(2),)),
            Superseded(Offset(9), (ref(3), ref(4))),
        ),
    )
    retained = {holder.id: holder.kept for holder in holders_of(state, state_, 0)}
    assert retained == {"a": Size(3, 30, 300), "b": Size()}


def test_holders_come_readers_first_those_furthest_back_first() -> None:
    state_ = collection(
        w=capability(Right.WRITE, 1),
        b=capability(Right.READ, 7, lease_ms=10, expires_ms=1_500),
        a=capability(Right.READ, 2),
    )
    holders = holders_of(State(collections=collections_of([state_])), state_, 1_000)
    assert [holder.id for holder in holders] == ["a", "b", "w"]
    assert [holder.expires_in_ms for holder in holders] == [None, 500, None]


def test_what_is_left_of_a_lease_is_told_by_the_logs_clock() -> None:
    """It stands 7 s behind append times, and would go on by 30 s now, however long it was."""
    state_ = collection(a=capability(Right.READ, 0, lease_ms=90_000, expires_ms=93_000))
    every = collections_of([state_])
    state = State(collections=every, upto=Offset(8), clock_ms=3_000, appended_ms=10_000)
    expires_in_ms = [
        holders_of(state, state_, now_ms)[0].expires_in_ms for now_ms in (9, 11_000, 10**9)
    ]
    assert expires_in_ms == [90_000, 89_000, 60_000]


def test_nothing_has_no_size() -> None:
    assert size_of([]) == Size(0, 0, 0)
