"""Capability events: decide Create, Acquire, Clone, Transfer, Downgrade and Drop. Pure.

Any holder of a capability's id, and of its token if it has one, may use it; the replicas of a
dataflow share one. A capability only moves forward, and a dropped or expired one never comes
back.
"""

from dataclasses import replace
from typing import assert_never

from streams.ids import CapabilityId, CollectionId, Offset, Timestamp
from streams.progress import EMPTY, Antichain, frontier
from streams.storage.log.appends import advance, seal_if_last, with_collection
from streams.storage.log.batches import Batch, Trace
from streams.storage.log.events import (
    Acquire,
    Clone,
    Create,
    Downgrade,
    Drop,
    Grant,
    Right,
    Transfer,
)
from streams.storage.log.lease_ends import name_of_capability
from streams.storage.log.outcomes import (
    Acquired,
    Cloned,
    Created,
    Decision,
    Downgraded,
    Dropped,
    Misuse,
    Refused,
    TokenMismatch,
    Transferred,
    UnknownCapability,
    UnknownCollection,
)
from streams.storage.log.state import (
    Capabilities,
    Capability,
    CollectionState,
    State,
    forgotten_collection,
    settled,
)


def create(state: State, body: Create, group: str) -> tuple[State, Decision]:
    """Bind an id permanently. The first Create in a log sets the UUID of the group."""
    collection = state.collections.get(body.collection)
    if collection is not None:
        if collection.is_dropped:
            return state, Refused(Misuse.DROPPED_ID)
        if collection.description != body.description:
            return state, Refused(Misuse.OTHER_DESCRIPTION)
        return state, Created()
    start = frontier(body.frontier)
    lease = body.lease_ms
    expires = state.expiry(lease)
    writing = (None, None) if body.is_write_critical else (lease, expires)
    capabilities = {body.write: Capability(Right.WRITE, start, None, *writing)}
    if body.read is not None:
        capabilities[body.read] = Capability(Right.READ, start, None, lease, expires)
    created = CollectionState(
        id=body.collection,
        description=body.description,
        since=start,
        upper=start,
        batches=Trace(),
        capabilities=Capabilities(capabilities),
    )
    bound = with_collection(replace(state, group=group), created)
    for name in capabilities:
        bound = leased(bound, body.collection, name)
    return bound, Created()


def decide(state: State, body: Grant, offset: Offset) -> tuple[State, Decision]:
    """Decide an Acquire, Clone, Transfer, Downgrade or Drop; return the state after it."""
    collection = state.collections.get(body.collection)
    if collection is None or collection.is_dropped:
        gone = isinstance(body, Drop) and collection is not None
        return state, Dropped() if gone else UnknownCollection(body.collection)
    capability = (
        None if body.capability is None else collection.capabilities.get(body.capability)
    )
    if capability is not None and capability.token != body.token:
        return state, TokenMismatch(capability.token)
    return grant(state, collection, body, offset)


def grant(
    state: State, collection: CollectionState, body: Grant, offset: Offset
) -> tuple[State, Decision]:
    """Apply the event, whose capability and token have been checked."""
    match body:
        case Acquire():
            return acquire(state, collection, body)
        case Clone():
            return clone(state, collection, body)
        case Transfer():
            return transfer(state, collection, body)
        case Downgrade():
            return downgrade(state, collection, body, offset)
        case Drop():
            return drop(state, collection, body, offset)
        case _:
            assert_never(body)


def acquire(state: State, collection: CollectionState, body: Acquire) -> tuple[State, Decision]:
    """Create a capability, or renew the lease of the one with this name."""
    old = collection.capabilities.get(body.capability)
    if old is not None and old.right is not body.right:
        return state, Refused(Misuse.OTHER_RIGHT)
    if body.token and body.lease_ms is not None:
        return state, Refused(Misuse.FENCED_LEASE)
    start = old.frontier if old is not None else first_frontier(collection, body)
    if start.is_empty:
        return state, Acquired(EMPTY)
    # a held capability keeps its lease, or a critical one could be made to expire
    lease_ms = old.lease_ms if old is not None else body.lease_ms
    expires = state.expiry(lease_ms)
    plan = later_plan(old, body.plan)
    capability = Capability(body.right, start, plan, lease_ms, expires, body.token)
    capabilities = collection.capabilities.set(body.capability, capability)
    state = with_collection(
        state, settled(collection, capabilities, collection.batches, collection.source)
    )
    if old is None:  # a lease that is renewed ends later
        state = leased(state, body.collection, body.capability)
    return state, Acquired(start)


def first_frontier(collection: CollectionState, body: Acquire) -> Antichain:
    """Return the frontier of a new capability: upper, or since or later for a read one."""
    if body.right is Right.WRITE:
        return collection.upper
    if body.frontier is None:
        return collection.since
    return collection.since.join(frontier(body.frontier))


def clone(state: State, collection: CollectionState, body: Clone) -> tuple[State, Decision]:
    """Create a second capability at the frontier of a live one."""
    old = collection.capabilities.get(body.capability)
    if old is None:
        return state, UnknownCapability(body.capability)
    if body.clone in collection.capabilities:
        return state, Refused(Misuse.TAKEN_NAME)
    lease_ms = old.lease_ms if body.lease_ms is None else body.lease_ms
    expires = state.expiry(lease_ms)
    token = old.token if lease_ms is None else ""
    # its holder begins to read later: what the original's plan protects is not the clone's
    capability = Capability(old.right, old.frontier, None, lease_ms, expires, token)
    capabilities = collection.capabilities.set(body.clone, capability)
    # nothing moves: a second capability at the frontier of one
    moved = replace(collection, capabilities=capabilities)
    state = leased(with_collection(state, moved), collection.id, body.clone)
    return state, Cloned(old.frontier)


def transfer(
    state: State, collection: CollectionState, body: Transfer
) -> tuple[State, Decision]:
    """Rename a capability and renew its lease."""
    old = collection.capabilities.get(body.capability)
    if old is None:
        return state, UnknownCapability(body.capability)
    if body.to in collection.capabilities:
        return state, Refused(Misuse.TAKEN_NAME)
    expires = state.expiry(old.lease_ms)
    rest = collection.capabilities.remove(body.capability)
    capabilities = rest.set(body.to, replace(old, expires_ms=expires))
    moved = replace(collection, capabilities=capabilities)
    state = leased(with_collection(state, moved), collection.id, body.to)
    return state, Transferred(old.frontier)


def downgrade(
    state: State, collection: CollectionState, body: Downgrade, offset: Offset
) -> tuple[State, Decision]:
    """Move a capability forward and renew its lease."""
    old = collection.capabilities.get(body.capability)
    if old is None:
        return state, UnknownCapability(body.capability)
    if body.frontier.is_empty:
        return state, Refused(Misuse.EMPTY_DOWNGRADE)
    misuse = None if body.new_token is None else unfit_token(old, body)
    if misuse is not None:
        return state, Refused(misuse)
    target = old.frontier.join(body.frontier)
    token = old.token if body.new_token is None else body.new_token
    expires = state.expiry(old.lease_ms)
    plan = later_plan(old, body.plan)
    capabilities = collection.capabilities.set(
        body.capability,
        Capability(old.right, target, plan, old.lease_ms, expires, token),
    )
    moved = replace(collection, capabilities=capabilities)
    if old.right is Right.WRITE and target != old.frontier:
        # nothing happened in between: a batch says so, and batches stay contiguous (rule 9)
        start = old.frontier.time
        quiet = Batch(start, target, (), offset, 0, Timestamp(0), collection.source)
        moved = advance(moved, body.capability, target, quiet)
    else:
        moved = settled(moved, capabilities, moved.batches, moved.source)
    return with_collection(state, moved), Downgraded(target)  # a lease only grows longer


def unfit_token(old: Capability, body: Downgrade) -> Misuse | None:
    """Return why the new token cannot be set; None when it can."""
    if old.lease_ms is not None:
        return Misuse.FENCED_LEASE
    return None if old.frontier.precedes(body.frontier) else Misuse.BACKWARD_DOWNGRADE


def later_plan(old: Capability | None, new: Offset | None) -> Offset | None:
    """Return the plan after an event with a new one: the later of both, or none."""
    if old is None or old.plan is None or new is None:
        return new
    return max(old.plan, new)


def drop(
    state: State, collection: CollectionState, body: Drop, offset: Offset
) -> tuple[State, Decision]:
    """Drop one capability, or the whole collection when the event names none."""
    if body.capability is None:
        return drop_collection(state, collection, offset), Dropped()
    old = collection.capabilities.get(body.capability)
    if old is None:
        # a holder that released the collection lost the capability with it
        is_over = collection.is_released or not body.whole
        return state, Dropped() if is_over else UnknownCapability(body.capability)
    if body.sole and others_write(collection, body.capability):
        return state, Refused(Misuse.OTHER_WRITERS)
    rest = collection.capabilities.remove(body.capability)
    left = settled(collection, rest, collection.batches, collection.source)
    left = seal_if_last(left) if old.right is Right.WRITE else left
    left = replace(left, is_released=True) if body.whole else left
    return ended_if_last(with_collection(state, left), left, offset), Dropped()


def others_write(collection: CollectionState, capability: CapabilityId) -> bool:
    """Tell whether a write capability other than this one is live."""
    return any(
        other.right is Right.WRITE and name != capability
        for name, other in collection.capabilities.items()
    )


def ended_if_last(state: State, collection: CollectionState, offset: Offset) -> State:
    """Forget the collection if it was released and has no read capability left."""
    if not collection.is_released or collection.capabilities.earliest(Right.READ) is not None:
        return state
    return drop_collection(state, collection, offset)


def drop_collection(state: State, collection: CollectionState, offset: Offset) -> State:
    """Forget all of a collection but its id, which must not be used again."""
    # in the order of the log, which is the same for a fold of a part of it
    chunks = tuple(ref for batch in collection.batches.ordered() for ref in batch.chunks)
    state = with_collection(state, forgotten_collection(collection.id))
    return replace(state, superseded=state.superseding(offset, chunks))


def leased(state: State, collection: CollectionId, capability: CapabilityId) -> State:
    """Return the state, set to look at a new lease when it ends."""
    name = name_of_capability(collection, capability)
    return state.leased(name, state.end_of_lease(name))
