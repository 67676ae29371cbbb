"""Random logs of a group, for properties of the fold: events that count, lose and repeat.

A history is drawn event by event with the state at hand, so that most events have a chance to
count; now and then they aim beside it on purpose.
"""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from streams.ids import CapabilityId, CollectionId, EventId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import EMPTY, Antichain, frontier
from streams.storage.log.events import (
    Acquire,
    Advance,
    Append,
    Body,
    Clone,
    Create,
    Downgrade,
    Drop,
    Event,
    Part,
    Reclaim,
    Replace,
    Right,
    Stage,
    Transfer,
    write_capability,
)
from streams.storage.log.machine import step
from streams.storage.log.outcomes import Outcome
from streams.storage.log.state import CollectionState, State

COLLECTIONS = ("u1", "u2")
CAPABILITIES = ("w", "x", "r", "s")


@dataclass(slots=True)
class History:
    """A log as drawn so far: (event, append time), what came of each, the states between."""

    records: list[tuple[Event, int]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list, repr=False)
    states: list[State] = field(default_factory=lambda: [State()], repr=False)

    @property
    def state(self) -> State:
        return self.states[-1]

    def add(self, event: Event, at_ms: int) -> None:
        self.records.append((event, at_ms))
        state, outcome = step(self.state, event, Offset(len(self.records) - 1), at_ms)
        self.outcomes.append(outcome)
        self.states.append(state)


@st.composite
def histories(draw: st.DrawFn, least: int = 5, most: int = 40) -> History:
    history = History()
    at_ms = 1_000
    for name in COLLECTIONS:
        write, read = CapabilityId("w"), CapabilityId("r")
        body = Create(
            collection=CollectionId(name),
            description="{}",
            frontier=Timestamp(0),
            write=write,
            read=read,
        )
        history.add(Event(EventId(f"create {name}"), "g", Offset(-1), body), at_ms)
    for number in range(draw(st.integers(least, most))):
        at_ms += draw(st.sampled_from([0, 10, 10, 400, -300, 50_000]))
        history.add(draw(events(history.state, number, history)), at_ms)
    return history


@st.composite
def events(draw: st.DrawFn, state: State, number: int, history: History) -> Event:
    if number and draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(history.records))[0]
    body = draw(bodies(state, number))
    return Event(EventId(f"e{number}"), "g", state.upto, body)


@st.composite
def bodies(draw: st.DrawFn, state: State, number: int) -> Body:
    id_ = CollectionId(draw(st.sampled_from(COLLECTIONS)))
    collection = state.collections[id_]
    capability = CapabilityId(draw(st.sampled_from(CAPABILITIES)))
    kind = draw(st.integers(0, 24))
    match kind:
        case 0 if draw(st.booleans()):
            return Drop(id_, capability, token_of(collection, capability))
        case 5 | 6:
            return draw(passed_on(collection, number))
        case 11:
            lower = draw(st.integers(0, 60))
            return Advance(Timestamp(lower), Timestamp(lower + draw(st.integers(0, 9))))
        case 12:
            system = write_capability(id_)
            return Acquire(collection=id_, capability=system, right=Right.WRITE)
        case 1 | 2:
            right = Right.WRITE if capability in {"w", "x"} else Right.READ
            lease = draw(st.sampled_from([None, None, 500, 60_000]))
            hold_from = draw(st.none() | st.integers(0, 60).map(Timestamp))
            plan = draw(st.none() | st.just(state.upto))
            return Acquire(
                collection=id_,
                capability=capability,
                right=right,
                frontier=hold_from,
                lease_ms=lease,
                plan=plan,
                token=token_of(collection, capability),
            )
        case 3 | 4:
            target = frontier(draw(st.integers(0, 60)))
            reader = CapabilityId(draw(st.sampled_from(["r", "r", "s", "x"])))
            return Downgrade(
                collection=id_,
                capability=reader,
                frontier=target,
                token=draw(st.sampled_from([token_of(collection, reader)] * 4 + ["b"])),
                new_token=draw(st.sampled_from([None] * 6 + ["", "a", "b"])),
            )
        case 7:
            stage = draw(st.sampled_from(["a", "b"]))
            return Stage(stage=stage, chunks=draw(chunks(number)), lease_ms=1_000)
        case 8:
            return Reclaim({0: draw(st.integers(0, number + 1))})
        case 9 | 10:
            return draw(replacements(collection, number))
        case _:
            size = draw(st.integers(1, 2))
            return Append(tuple([draw(parts(state, number)) for _ in range(size)]))


def token_of(collection: CollectionState, name: CapabilityId) -> str:
    capability = collection.capabilities.get(name)
    return capability.token if capability else ""


@st.composite
def passed_on(draw: st.DrawFn, collection: CollectionState, number: int) -> Body:
    """Writers are only cloned: then each name still appends each time at most once."""
    name = CapabilityId(draw(st.sampled_from(CAPABILITIES)))
    token = token_of(collection, name)
    fresh = CapabilityId(f"c{number}")
    if name in {"r", "s"} and draw(st.booleans()):
        return Transfer(collection=collection.id, capability=name, to=fresh, token=token)
    lease = draw(st.sampled_from([None, None, 500]))
    return Clone(
        collection=collection.id, capability=name, clone=fresh, lease_ms=lease, token=token
    )


@st.composite
def chunks(draw: st.DrawFn, number: int) -> tuple[ChunkRef, ...]:
    """Fresh chunks mostly; sometimes one that an earlier event may have named."""
    fresh = tuple(
        ChunkRef(partition, Offset(number), f"{partition}@{number}", 7, 1, 100)
        for partition in range(draw(st.integers(0, 2)))
    )
    if number and draw(st.integers(0, 4)) == 0:
        old = draw(st.integers(0, number - 1))
        return (*fresh, ChunkRef(0, Offset(old), f"0@{old}", 7, 1, 100))
    return fresh


@st.composite
def parts(draw: st.DrawFn, state: State, number: int) -> Part:
    collection = state.collections[CollectionId(draw(st.sampled_from(COLLECTIONS)))]
    live = [id_ for id_ in ("w", "x") if id_ in collection.capabilities]
    name = CapabilityId(draw(st.sampled_from([*(live * 8), "x"])))
    capability = collection.capabilities.get(name)
    start = capability.frontier.time if capability is not None else 0
    aside = draw(st.sampled_from([0] * 8 + [1, -1]))
    lower = max(0, start + aside)
    upper = lower + draw(st.integers(1, 10))
    writers = sum(
        capability.right is Right.WRITE for capability in collection.capabilities.values()
    )
    rarely = 9 if writers > 1 else 99  # the last one's seals, and nothing is written any more
    bound: Antichain = EMPTY if draw(st.integers(0, rarely)) == 7 else frontier(upper)
    source = draw(st.sampled_from([None, None, dict(collection.source or {})]))
    onward = None if source is None else {**source, 0: source.get(0, 0) + number % 3}
    return Part(
        collection=collection.id,
        capability=name,
        lower=frontier(lower),
        upper=bound,
        chunks=draw(chunks(number)),
        stages=tuple(draw(st.sampled_from([[]] * 6 + [list(state.stages), ["a"]]))),
        from_offsets=source,
        to_offsets=onward,
        fingerprint=draw(st.sampled_from(["", "", "", "", collection.fingerprint, "v1", "v2"])),
        token=token_of(collection, name),
    )


@st.composite
def replacements(draw: st.DrawFn, collection: CollectionState, number: int) -> Replace:
    ordered = sorted(collection.batches, key=lambda batch: (batch.lower, batch.offset))
    size = draw(st.integers(0, len(ordered)))
    start = draw(st.integers(0, len(ordered) - size))
    since = 0 if collection.since.is_empty else collection.since.time
    return Replace(
        collection=collection.id,
        replaced=tuple(batch.name for batch in ordered[start : start + size]),
        chunks=draw(chunks(number)),
        since=Timestamp(draw(st.integers(0, since))),
    )
