"""When leases end: as a look at all of them says, at the cost of those that are due."""

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.ids import CapabilityId, CollectionId, EventId, Offset, Timestamp
from streams.progress import frontier
from streams.storage.log.events import (
    Acquire,
    Clone,
    Create,
    Downgrade,
    Drop,
    Event,
    Right,
    Stage,
    Transfer,
    write_capability,
)
from streams.storage.log.lease_ends import (
    LEAST,
    LeaseEnds,
    holder_of,
    lease_ends_of,
    name_of_capability,
    name_of_stage,
)
from streams.storage.log.machine import step
from streams.storage.log.state import State

NAMES = st.sampled_from(["a", "b", "c", "d"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), NAMES, st.integers(0, 50)),
        st.tuples(st.just("renew"), NAMES, st.integers(0, 50)),
        st.tuples(st.just("drop"), NAMES, st.just(0)),
        st.tuples(st.just("pass"), NAMES, st.integers(0, 20)),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(OPERATIONS)
def test_what_is_due_is_what_has_ended(operations: list[tuple[str, str, int]]) -> None:
    ends, clock, lease_ends = dict[str, int](), 0, LeaseEnds()
    for operation, name, time in operations:
        if operation == "add":
            ends[name] = clock + time
            lease_ends = lease_ends.add(name, ends[name])
        elif operation == "renew" and name in ends:
            ends[name] = max(ends[name], clock + time)
        elif operation == "drop":
            ends.pop(name, None)
        elif operation == "pass":
            clock += time
            due, lease_ends = lease_ends.due(clock, ends.get)
            assert due == {name for name, end in ends.items() if end <= clock}
            for ended in due:
                del ends[ended]
        next_ms = lease_ends.next_ms
        assert all(next_ms is not None and next_ms <= end for end in ends.values())


@given(st.text(max_size=5), st.text(max_size=5))
def test_a_name_says_whose_lease_it_is(collection: str, other: str) -> None:
    name = name_of_capability(CollectionId(collection), CapabilityId(other))
    assert holder_of(name) == (collection, other)
    assert holder_of(name_of_stage(other)) == (None, other)


def test_entries_of_what_is_gone_are_left_out_when_half_are() -> None:
    live = lease_ends_of([(1_000, str(number)) for number in range(100)])
    for number in range(100 + LEAST):
        assert not live.is_full
        live = live.add(f"gone {number}", 10_000)
    assert live.add("one more", 10_000).is_full


class Log:
    """A log of one collection `c`, a record a millisecond."""

    def __init__(self) -> None:
        self.state, self.ms = State(), 1_000

    def add(self, body: object, passed_ms: int = 1) -> object:
        offset = Offset(self.state.upto + 1)
        self.ms += passed_ms
        event = Event(EventId(f"e{offset}"), "g", Offset(offset - 1), body)  # type: ignore[arg-type]  # a body
        self.state, outcome = step(self.state, event, offset, self.ms)
        return outcome


C = CollectionId("c")
CREATE = Create(
    collection=C, description="{}", frontier=Timestamp(0), write=write_capability(C)
)
BODIES = st.one_of(
    st.builds(
        Acquire,
        collection=st.just(C),
        capability=NAMES,
        right=st.just(Right.READ),
        lease_ms=st.integers(1, 40),
    ),
    st.builds(
        Clone, collection=st.just(C), capability=NAMES, clone=NAMES, lease_ms=st.integers(1, 40)
    ),
    st.builds(Transfer, collection=st.just(C), capability=NAMES, to=NAMES),
    st.builds(
        Downgrade, collection=st.just(C), capability=NAMES, frontier=st.just(frontier(0))
    ),
    st.builds(Drop, collection=st.just(C), capability=NAMES),
    st.builds(Stage, stage=NAMES, chunks=st.just(()), lease_ms=st.integers(1, 40)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(BODIES, st.integers(0, 30)), max_size=30))
def test_no_lease_outlives_its_end_in_a_log(events: list[tuple[object, int]]) -> None:
    log, ends = Log(), dict[str, int]()
    log.add(CREATE)
    for body, passed_ms in events:
        before = log.state
        log.add(body, passed_ms)
        state = log.state
        ends = {
            name: held.expires_ms
            for name, held in state.collections.live[C].capabilities.items()
            if held.expires_ms is not None
        }
        ends |= {f"stage {name}": stage.expires_ms for name, stage in state.stages.items()}
        assert all(end > state.clock_ms for end in ends.values())
        for name, held in before.collections.live[C].capabilities.items():
            is_over = held.expires_ms is not None and held.expires_ms <= state.clock_ms
            is_used = name in {getattr(body, "capability", ""), getattr(body, "to", "")}
            assert is_over or is_used or name in state.collections.live[C].capabilities


def test_short_leases_of_one_client_cost_no_look_at_those_of_others() -> None:
    log = Log()
    log.add(CREATE)
    for number in range(300):
        log.add(
            Acquire(
                collection=C,
                capability=CapabilityId(f"r{number}"),
                right=Right.READ,
                lease_ms=900_000,
            ),
            0,
        )
    asked = list[str]()

    def end_of(name: str) -> int | None:
        asked.append(name)
        return log.state.end_of_lease(name)

    for number in range(20):
        short = CapabilityId(f"short{number}")
        log.add(Acquire(collection=C, capability=short, right=Right.READ, lease_ms=1), 2)
        log.state.lease_ends.due(log.state.clock_ms + 2, end_of)
    assert len(asked) == 20
