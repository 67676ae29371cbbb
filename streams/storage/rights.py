"""Collections come, capabilities come, move and go. Pure.

A capability belongs to whoever presents its id; replicas of one dataflow share one. It moves
forward only, and never comes back once dropped or expired.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from streams.ids import CapabilityId, Offset, Timestamp
from streams.progress import EMPTY, Antichain, frontier
from streams.storage.appends import advance, seal_if_last, with_collection
from streams.storage.batches import Batch, Trace
from streams.storage.events import Acquire, Create, Downgrade, Drop, Right
from streams.storage.outcomes import (
    Acquired,
    Created,
    Decision,
    Downgraded,
    Dropped,
    Misuse,
    Refused,
    UnknownCapability,
    UnknownCollection,
)
from streams.storage.state import Capability, CollectionState, State, settled


def create(state: State, body: Create, group: str) -> tuple[State, Decision]:
    """Bind an id for ever. The first Create of a log gives the group its UUID."""
    known = state.collections.get(body.collection)
    if known is not None:
        if known.is_dropped:
            return state, Refused(Misuse.DROPPED_ID)
        if known.description != body.description:
            return state, Refused(Misuse.OTHER_DESCRIPTION)
        return state, Created()
    start = frontier(body.frontier)
    capabilities = {body.write: Capability(Right.WRITE, start)}
    if body.read is not None:
        capabilities[body.read] = Capability(Right.READ, start)
    created = CollectionState(
        id=body.collection,
        description=body.description,
        since=start,
        upper=start,
        batches=Trace(),
        capabilities=capabilities,
    )
    return with_collection(replace(state, group=group), created), Created()


def decide(
    state: State, body: Acquire | Downgrade | Drop, offset: Offset
) -> tuple[State, Decision]:
    """The state after a capability was asked for, moved or given up."""
    collection = state.collections.get(body.collection)
    if collection is None or collection.is_dropped:
        gone = isinstance(body, Drop) and collection is not None
        return state, Dropped() if gone else UnknownCollection(body.collection)
    match body:
        case Acquire():
            return acquire(state, collection, body)
        case Downgrade():
            return downgrade(state, collection, body, offset)
        case Drop():
            return drop(state, collection, body, offset)
        case _:
            assert_never(body)


def acquire(state: State, collection: CollectionState, body: Acquire) -> tuple[State, Decision]:
    """Make a capability, or renew the one of this name where it stands."""
    old = collection.capabilities.get(body.capability)
    if old is not None and old.right is not body.right:
        return state, Refused(Misuse.OTHER_RIGHT)
    start = old.frontier if old is not None else first_frontier(collection, body)
    if start.is_empty:
        return state, Acquired(EMPTY)
    # what is held already keeps its lease, or a critical capability could be made to expire
    lease_ms = old.lease_ms if old is not None else body.lease_ms
    expires = None if lease_ms is None else state.clock_ms + lease_ms
    plan = later_plan(old, body.plan)
    made = Capability(body.right, start, plan, lease_ms, expires)
    capabilities = {**collection.capabilities, body.capability: made}
    state = with_collection(
        state, settled(collection, capabilities, collection.batches, collection.source)
    )
    return with_expiry(state, expires), Acquired(start)


def first_frontier(collection: CollectionState, body: Acquire) -> Antichain:
    """Where a new capability starts: nothing that was given up comes back."""
    if body.right is Right.WRITE:
        return collection.upper
    if body.frontier is None:
        return collection.since
    return collection.since.join(frontier(body.frontier))


def downgrade(
    state: State, collection: CollectionState, body: Downgrade, offset: Offset
) -> tuple[State, Decision]:
    """Move a capability forward and renew its lease."""
    old = collection.capabilities.get(body.capability)
    if old is None:
        return state, UnknownCapability(body.capability)
    if body.frontier.is_empty:
        return state, Refused(Misuse.EMPTY_DOWNGRADE)
    target = old.frontier.join(body.frontier)
    expires = None if old.lease_ms is None else state.clock_ms + old.lease_ms
    plan = later_plan(old, body.plan)
    capabilities: Mapping[CapabilityId, Capability] = {
        **collection.capabilities,
        body.capability: Capability(old.right, target, plan, old.lease_ms, expires),
    }
    moved = replace(collection, capabilities=capabilities)
    if old.right is Right.WRITE and target != old.frontier:
        # nothing happened in between: a batch says so, and batches stay contiguous (rule 9)
        start = old.frontier.time
        quiet = Batch(start, target, (), offset, 0, Timestamp(0), collection.source)
        moved = advance(moved, body.capability, target, quiet)
    else:
        moved = settled(moved, capabilities, moved.batches, moved.source)
    return with_expiry(with_collection(state, moved), expires), Downgraded(target)


def later_plan(old: Capability | None, new: Offset | None) -> Offset | None:
    """The plan of a capability that names a new one: it moves forward, or ends."""
    if old is None or old.plan is None or new is None:
        return new
    return max(old.plan, new)


def drop(
    state: State, collection: CollectionState, body: Drop, offset: Offset
) -> tuple[State, Decision]:
    """Give up one capability, or the whole collection."""
    if body.capability is None:
        return drop_collection(state, collection, offset), Dropped()
    old = collection.capabilities.get(body.capability)
    if old is None:
        return state, Dropped()
    rest = {id_: each for id_, each in collection.capabilities.items() if each is not old}
    left = settled(collection, rest, collection.batches, collection.source)
    left = seal_if_last(left) if old.right is Right.WRITE else left
    return with_collection(state, left), Dropped()


def drop_collection(state: State, collection: CollectionState, offset: Offset) -> State:
    """The collection keeps its id, so that nobody takes it again, and nothing else."""
    chunks = tuple(chunk for batch in collection.batches for chunk in batch.chunks)
    husk = CollectionState(
        id=collection.id,
        description=collection.description,
        since=EMPTY,
        upper=EMPTY,
        batches=Trace(),
        capabilities={},
    )
    state = with_collection(state, husk)
    return replace(state, superseded=state.superseding(offset, chunks))


def with_expiry(state: State, expires_ms: int | None) -> State:
    """The state, which will look for expired leases at `expires_ms` at the latest."""
    if expires_ms is None:
        return state
    known = state.next_expiry_ms
    return replace(
        state, next_expiry_ms=expires_ms if known is None else min(known, expires_ms)
    )
