"""Many capabilities, collections and dropped ids: the same frontiers, at the cost of few."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.ids import CapabilityId, CollectionId, EventId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import frontier
from streams.storage.log.events import (
    Acquire,
    Append,
    Body,
    Create,
    Drop,
    Event,
    Part,
    Reclaim,
    Right,
    Stage,
    write_capability,
)
from streams.storage.log.machine import step
from streams.storage.log.outcomes import Appended, Decision
from streams.storage.log.persistent_map import SMALL, Map
from streams.storage.log.state import Capabilities, Capability, State
from tests.support.examples import examples

NAMES = st.integers(0, 2 * SMALL).map(lambda number: CapabilityId(f"c{number}"))
CHANGES = st.tuples(
    st.sampled_from(["move", "move", "set", "drop"]),
    NAMES,
    st.integers(0, 9),
    st.sampled_from(list(Right)),
)


class Log:
    def __init__(self) -> None:
        self.state = State()

    def add(self, body: Body) -> Decision:
        offset = Offset(self.state.upto + 1)
        event = Event(EventId(f"e{offset}"), "g", Offset(offset - 1), body)
        self.state, outcome = step(self.state, event, offset, 1_000)
        return outcome


def create(number: int) -> Create:
    id_, start = CollectionId(f"c{number}"), Timestamp(0)
    write = write_capability(id_)
    return Create(collection=id_, description="{}", frontier=start, write=write)


def held(of: int, number: int) -> Acquire:
    return Acquire(
        collection=CollectionId(f"c{of}"),
        capability=CapabilityId(f"r{number}"),
        right=Right.READ,
        lease_ms=900_000,
    )


def test_an_append_looks_at_no_other_collection_and_no_other_capability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each append copied, and looked at, all that its group had ever held."""
    log = Log()
    for number in range(600):
        log.add(create(number))
        log.add(Drop(CollectionId(f"c{number}")) if number % 2 else held(0, number))
    looks = []
    honest = Map._merged

    def merged(of: Map[Any, Any]) -> dict[Any, Any]:
        looks.append(len(of))
        return honest(of)

    monkeypatch.setattr(Map, "_merged", merged)
    for time in range(20):
        part = Part(
            collection=CollectionId("c0"),
            capability=CapabilityId("c0.write"),
            lower=frontier(time),
            upper=frontier(time + 1),
        )
        assert isinstance(log.add(Append((part,))), Appended)
    assert sum(looks) < 20 * 2 * SMALL


def least(capabilities: dict[CapabilityId, Capability], right: Right) -> int | None:
    times = [
        capability.frontier.time
        for capability in capabilities.values()
        if capability.right is right
    ]
    return min(times, default=None)


@examples(60)
@given(st.integers(0, 2 * SMALL), st.lists(CHANGES, max_size=120), st.integers(0, 119))
def test_the_earliest_frontier_is_that_of_all(
    count: int, changes: list[tuple[str, CapabilityId, int, Right]], branch: int
) -> None:
    expected = {
        CapabilityId(f"c{number}"): Capability(Right.READ, frontier(number % 7))
        for number in range(count)
    }
    capabilities = Capabilities(expected)
    aside, beside = capabilities, dict(expected)
    for number, (kind, name, time, right) in enumerate(changes):
        old = expected.get(name)
        if kind == "drop":
            capabilities = capabilities.remove(name)
            expected.pop(name, None)
        else:
            capability = Capability(right, frontier(time))
            if kind == "move" and old is not None:
                capability = Capability(old.right, frontier(old.frontier.time + time))
            capabilities = capabilities.set(name, capability)
            expected[name] = capability
        assert capabilities == expected
        for right_ in Right:
            assert capabilities.earliest(right_) == least(expected, right_)
        if number == branch:
            aside, beside = capabilities, dict(expected)
    for right_ in Right:  # a state that was gone on from answers as it did
        assert aside.earliest(right_) == least(beside, right_)


@pytest.mark.parametrize("count", [1, 500])
def test_many_chunks_below_the_floor_are_looked_for_together(monkeypatch, count: int) -> None:
    """What a state names was gathered for each of them: 37 s for a load of 24,000."""
    log, one = Log(), CollectionId("c1")
    chunks = tuple(ChunkRef(0, Offset(at), f"k{at}", 0, 1, 1) for at in range(count))
    log.add(create(1))
    log.add(Stage(stage="load", chunks=chunks, lease_ms=900_000))
    log.add(Reclaim({0: count}))
    gathered, original = [0], State._named

    def counted(self: State) -> Any:
        gathered[0] += 1
        return original(self)

    monkeypatch.setattr(State, "_named", counted)
    part = Part(
        collection=one,
        capability=write_capability(one),
        lower=frontier(0),
        upper=frontier(1),
        chunks=chunks,
    )
    assert isinstance(log.add(Append((part,))), Appended)
    assert gathered == [1]
