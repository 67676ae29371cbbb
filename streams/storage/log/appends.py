"""Decides whether an Append counts, and applies it. Pure.

The checks of each part, in this order; the first that fails is the outcome of the whole Append:

    the collection is there, the capability is live, its token fits     rule 2
    the fingerprint was not fenced by a newer one                       rule 24
    the capability's frontier is the part's lower                       rule 2
    the source binding is what the part continues                       rule 18
    its stages are there, and no chunk of it may have been reclaimed    rule 7

Renewals are checked after the parts, by the first and the third check. An Append with
`read_upto` is checked last: it counts only if no updates were linked to any of its collections
since that offset (rule 28). Comparing uppers would not suffice: with several write
capabilities, a collection is written while its upper does not move.

Then chunks are linked, frontiers and bindings move, and stages are used up: for all parts or,
when any of them fails, for none.
"""

from collections.abc import Mapping
from dataclasses import replace

from streams.ids import CapabilityId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import EMPTY, Antichain
from streams.storage.log.batches import Batch
from streams.storage.log.events import Append, Part, Renewal, Replace, Right
from streams.storage.log.outcomes import (
    Appended,
    ChunksReclaimed,
    Decision,
    Fenced,
    Misuse,
    OffsetsMismatch,
    Overtaken,
    Refused,
    TokenMismatch,
    UnknownCapability,
    UnknownCollection,
    UnknownStage,
    UpperMismatch,
)
from streams.storage.log.state import Capability, CollectionState, StagedChunks, State, settled


def append(state: State, body: Append, offset: Offset) -> tuple[State, Decision]:
    """Return the state after an Append, and its outcome."""
    if not body.parts:
        return state, Refused(Misuse.NO_PARTS)
    draft = state
    for number, part in enumerate(body.parts):
        refusal = obstacle(draft, part)
        if refusal is not None:
            return state, refusal
        draft = link(draft, part, offset, number)
    for renewal in body.renewals:
        refusal = invalid(draft, renewal)
        if refusal is not None:
            return state, refusal
        draft = renew_lease(draft, renewal)
    late = overtaken_by(state, body)
    if late is not None:
        return state, late
    return draft, Appended(tuple(part.upper for part in body.parts))


def obstacle(state: State, part: Part) -> Decision | None:
    """Return the reason why the part cannot count; None if it can."""
    misuse = malformed(part)
    if misuse is not None:
        return misuse
    refusal = not_held(state, part)
    if refusal is not None:
        return refusal
    collection = state.collections[part.collection]
    lost = lost_race(collection, collection.capabilities[part.capability], part)
    return lost if lost is not None else missing_chunks(state, part)


def not_held(state: State, presented: Part | Renewal) -> Decision | None:
    """Why the presented write capability gives no right to the write; None if it does."""
    collection = state.collections.get(presented.collection)
    if collection is None or collection.is_dropped:
        return UnknownCollection(presented.collection)
    capability = collection.capabilities.get(presented.capability)
    if capability is None or capability.right is not Right.WRITE:
        return UnknownCapability(presented.capability)
    if capability.token != presented.token:
        return TokenMismatch(capability.token)
    return None


def invalid(state: State, renewal: Renewal) -> Decision | None:
    """Why a capability that does not move is invalid as presented; None if it is valid."""
    refusal = not_held(state, renewal)
    if refusal is not None:
        return refusal
    capability = state.collections[renewal.collection].capabilities[renewal.capability]
    if capability.frontier != renewal.frontier:
        return UpperMismatch(capability.frontier, renewal.collection)
    return None


def renew_lease(state: State, renewal: Renewal) -> State:
    """The state with the capability's lease renewed; no other lease ends earlier for it."""
    collection = state.collections[renewal.collection]
    capability = collection.capabilities[renewal.capability]
    if capability.lease_ms is None:
        return state
    later = replace(capability, expires_ms=state.expiry(capability.lease_ms))
    capabilities = collection.capabilities.set(renewal.capability, later)
    return with_collection(state, replace(collection, capabilities=capabilities))


def overtaken_by(state: State, body: Append) -> Overtaken | None:
    """Whether updates were linked to a collection after the offset that the writer had read."""
    if body.read_upto is None:
        return None
    for part in body.parts:
        changed = state.collections[part.collection].changed
        if changed is not None and changed > body.read_upto:
            return Overtaken(part.collection)
    return None


def malformed(part: Part) -> Refused | None:
    """Return the rule that the Append breaks in any state; None if it is well formed."""
    if part.lower.is_empty or not part.lower.strictly_precedes(part.upper):
        return Refused(Misuse.BOUNDS)
    if (part.from_offsets is None) != (part.to_offsets is None):
        return Refused(Misuse.HALF_A_BINDING)
    if part.from_offsets is not None and not continues_binding(
        part.from_offsets, part.to_offsets or {}
    ):
        return Refused(Misuse.BACKWARD_OFFSETS)
    return None


def continues_binding(old: Mapping[int, int], new: Mapping[int, int]) -> bool:
    """Whether `new` has every partition of `old`, at the same offset or a later one."""
    return all(partition in new and new[partition] >= old[partition] for partition in old)


def lost_race(
    collection: CollectionState, capability: Capability, part: Part
) -> Decision | None:
    """Return the outcome if another writer was faster or has taken over; else None."""
    if part.fingerprint and part.fingerprint in collection.fenced:
        return Fenced(collection.fingerprint, collection.id)
    if capability.frontier != part.lower:
        return UpperMismatch(capability.frontier, collection.id)
    if part.from_offsets is not None and dict(part.from_offsets) != dict(
        collection.source or {}
    ):
        return OffsetsMismatch(collection.source or {}, collection.id)
    return None


def missing_chunks(state: State, linking: Part | Replace) -> Decision | None:
    """Return the outcome if a stage is gone or a chunk may have been reclaimed; else None."""
    for stage in linking.stages:
        if stage not in state.stages:
            return UnknownStage(stage)
    return ChunksReclaimed() if may_be_reclaimed(state, linking.chunks) else None


def used_up(
    state: State, linking: Part | Replace
) -> tuple[tuple[ChunkRef, ...], Mapping[str, StagedChunks]]:
    """Return all chunks to link, those of stages last, and the stages that remain."""
    if not linking.stages:
        return linking.chunks, state.stages
    chunks = list(linking.chunks)
    for stage in linking.stages:
        chunks += state.stages[stage].chunks
    left = {name: stage for name, stage in state.stages.items() if name not in linking.stages}
    return tuple(chunks), left


def may_be_reclaimed(state: State, chunks: tuple[ChunkRef, ...]) -> bool:
    """Whether the collector may have taken one of the chunks (rule 7)."""
    if not state.floor:
        return False
    low = {chunk for chunk in chunks if chunk.offset < state.floor.get(chunk.partition, 0)}
    return bool(low) and not low <= state.chunks()


def link(state: State, part: Part, offset: Offset, number: int) -> State:
    """Return the state with the part's chunks linked and its frontiers moved."""
    collection = state.collections[part.collection]
    source = collection.source if part.to_offsets is None else dict(part.to_offsets)
    chunks, stages = used_up(state, part)
    batch = Batch(part.lower.time, part.upper, chunks, offset, number, Timestamp(0), source)
    moved = advance(collection, part.capability, part.upper, batch)
    if chunks:
        moved = replace(moved, changed=offset)
    if part.fingerprint and part.fingerprint != collection.fingerprint:
        fenced = collection.fenced | ({collection.fingerprint} - {""})
        moved = replace(moved, fingerprint=part.fingerprint, fenced=fenced)
    state = with_collection(state, moved)
    return replace(state, stages=stages) if part.stages else state


def advance(
    collection: CollectionState, id_: CapabilityId, upper: Antichain, batch: Batch
) -> CollectionState:
    """Return the collection with one more batch, by a capability that is now at `upper`.

    A capability at the empty frontier is gone; the collection is sealed with its last one. If
    others are left it is sealing, until one of them moves.
    """
    capabilities = collection.capabilities
    if upper.is_empty:
        capabilities = capabilities.remove(id_)
    else:
        old = capabilities[id_]
        capabilities = capabilities.set(
            id_,
            Capability(old.right, upper, old.plan, old.lease_ms, old.expires_ms, old.token),
        )
    moved = settled(collection, capabilities, collection.batches.add(batch), batch.source)
    if moved.is_sealing is not upper.is_empty:
        moved = replace(moved, is_sealing=upper.is_empty)
    return seal_if_last(moved) if upper.is_empty else moved


def seal_if_last(collection: CollectionState) -> CollectionState:
    """Return the collection, with an empty upper if no write capability is left (rule 3)."""
    if collection.capabilities.earliest(Right.WRITE) is not None:
        return collection
    sealed = replace(collection, upper=EMPTY, is_sealing=False)
    return settled(sealed, sealed.capabilities, sealed.batches, sealed.source)


def with_collection(state: State, collection: CollectionState) -> State:
    """The state with one collection changed."""
    return state.moved(collections=state.collections.set(collection))
