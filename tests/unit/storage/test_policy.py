"""Read policies: what they wish for, and that no hold is passed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.ids import CapabilityId, CollectionId, EventId, Offset, Timestamp
from streams.progress import EMPTY, Antichain, frontier
from streams.storage.log.batches import Trace
from streams.storage.log.events import Event, Right
from streams.storage.log.machine import step
from streams.storage.log.state import (
    Capabilities,
    Capability,
    CollectionState,
    State,
    collections_of,
)
from streams.storage.policy import (
    LagBehindUpper,
    Policy,
    RetainHistory,
    Until,
    desired_since,
    downgrade,
    due_ms,
)

HOLD, READER = CapabilityId("u1.catalog"), CapabilityId("reader")
U1 = CollectionId("u1")


def collection(hold_at: int, upper: Antichain, reader: int | None = None) -> CollectionState:
    capabilities = {HOLD: Capability(Right.READ, frontier(hold_at))}
    since = hold_at
    if reader is not None:
        capabilities[READER] = Capability(Right.READ, frontier(reader))
        since = min(hold_at, reader)
    return CollectionState(
        id=U1,
        description="",
        since=frontier(since),
        upper=upper,
        batches=Trace(),
        capabilities=Capabilities(capabilities),
    )


@pytest.mark.parametrize(
    ("policy", "upper", "expected"),
    [
        (LagBehindUpper(100), frontier(1000), frontier(899)),
        (LagBehindUpper(0), frontier(1000), frontier(999)),
        (LagBehindUpper(100), EMPTY, None),
        (RetainHistory(100), frontier(1000), frontier(999)),
        (RetainHistory(4500), frontier(1000), frontier(500)),
        (RetainHistory(100), EMPTY, frontier(4900)),
        (Until(Timestamp(7)), frontier(1000), frontier(7)),
        (Until(Timestamp(7000)), frontier(1000), frontier(999)),
        (Until(Timestamp(7000)), EMPTY, frontier(7000)),
    ],
)
def test_what_a_policy_wishes_for(
    policy: Policy, upper: Antichain, expected: Antichain | None
) -> None:
    assert desired_since(policy, upper, now_ms=5000) == expected


def test_a_move_waits_until_it_is_worth_a_record() -> None:
    policy = LagBehindUpper(100)
    assert downgrade(collection(0, frontier(111)), HOLD, policy, 0) is None
    event = downgrade(collection(0, frontier(112)), HOLD, policy, 0)
    assert event is not None
    assert event.frontier == frontier(11)


def test_nothing_moves_without_a_hold() -> None:
    policy = LagBehindUpper(0)
    assert downgrade(collection(0, frontier(10)), CapabilityId("other"), policy, 0) is None
    writes = Capabilities({HOLD: Capability(Right.WRITE, frontier(10))})
    writer = replace(collection(0, frontier(10)), capabilities=writes)
    assert downgrade(writer, HOLD, policy, 0) is None


@given(
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(51, 90),
    st.one_of(
        st.builds(LagBehindUpper, st.integers(0, 60)),
        st.builds(RetainHistory, st.integers(0, 60)),
        st.builds(Until, st.integers(0, 200)),
    ),
)
def test_since_never_passes_another_hold(
    hold_at: int, reader: int, upper: int, policy: Policy
) -> None:
    before = collection(hold_at, frontier(upper), reader)
    body = downgrade(before, HOLD, policy, now_ms=100)
    if body is None:
        return
    state = State(group="g", collections=collections_of([before]))
    event = Event(EventId("e"), "g", Offset(-1), body)
    after = step(state, event, Offset(0), 0)[0].collections[U1]
    assert after.since.time == min(reader, body.frontier.time)
    assert after.since.time < upper


@given(
    st.integers(0, 50),
    st.none() | st.integers(0, 100),
    st.integers(0, 40),
    st.integers(0, 200),
)
def test_a_hold_moves_by_the_clock_from_when_it_is_due(
    hold_at: int, upper: int | None, duration_ms: int, now_ms: int
) -> None:
    state = collection(hold_at, EMPTY if upper is None else frontier(upper))
    policy = RetainHistory(duration_ms)
    due = due_ms(state, HOLD, policy)
    moves = downgrade(state, HOLD, policy, now_ms) is not None
    assert moves == (due is not None and now_ms >= due)


def test_a_hold_behind_upper_is_never_due_by_the_clock() -> None:
    assert due_ms(collection(5, frontier(900)), HOLD, LagBehindUpper(1)) is None
