"""Chunk garbage collection: decides Stage, Reclaim, Replace and Rollup events. Pure.

A chunk is safe while the state *names* it: linked by a batch, staged under a lease, part of one
of the last two Rollups, or superseded while some reader's plan is not beyond (rule 10). A chunk
that is not named and lies below the floor may be deleted, so an event that names it is void
(rule 7): the log decides this, not a clock.
"""

from dataclasses import replace
from typing import assert_never

from streams.ids import Offset, Timestamp
from streams.progress import Antichain, frontier
from streams.storage.log.appends import (
    may_be_reclaimed,
    missing_chunks,
    used_up,
    with_collection,
)
from streams.storage.log.batches import Batch
from streams.storage.log.dedup_window import WINDOW
from streams.storage.log.events import Reclaim, Replace, Rollup, Stage
from streams.storage.log.lease_ends import name_of_stage
from streams.storage.log.outcomes import (
    BatchesChanged,
    ChunksReclaimed,
    Decision,
    Misuse,
    Reclaimed,
    Refused,
    Replaced,
    RolledUp,
    RollupSuperseded,
    Staged,
    UnknownCollection,
)
from streams.storage.log.state import LAST_MS, CollectionState, StagedChunks, State

ROLLUP_STRIDE = 64
"""A Rollup's `upto` is the last offset of a stretch of this many offsets.

Followers keep the states at these offsets for `WINDOW` offsets, so that every follower can
check every Rollup that counts (rule 8).
"""


def decide(
    state: State, body: Stage | Reclaim | Replace | Rollup, offset: Offset
) -> tuple[State, Decision]:
    """Decide an event about chunks; return the state after it."""
    match body:
        case Stage():
            return stage(state, body)
        case Reclaim():
            return reclaim(state, body)
        case Replace():
            return swap(state, body, offset)
        case Rollup():
            return roll_up(state, body, offset)
        case _:
            assert_never(body)


def stage(state: State, body: Stage) -> tuple[State, Decision]:
    """Protect chunks under a name until its lease ends or an Append links them."""
    if may_be_reclaimed(state, body.chunks):
        return state, ChunksReclaimed()
    expires = min(state.clock_ms + body.lease_ms, LAST_MS)
    old = state.stages.get(body.stage)
    chunks = (*old.chunks, *body.chunks) if old else body.chunks
    stages = {**state.stages, body.stage: StagedChunks(chunks, expires)}
    staged = replace(state, stages=stages)
    return staged.leased(name_of_stage(body.stage), expires), Staged()


def reclaim(state: State, body: Reclaim) -> tuple[State, Decision]:
    """Raise the floor, and stop naming superseded chunks that no plan reads any more."""
    floor = dict(state.floor)
    for partition, offset in body.floor.items():
        floor[partition] = max(floor.get(partition, 0), offset)
    plans = [
        capability.plan
        for collection in state.collections.live.values()
        for capability in collection.capabilities.values()
        if capability.plan is not None
    ]
    oldest = min(plans, default=None)
    still_read = tuple(
        batch for batch in state.superseded if oldest is not None and oldest <= batch.offset
    )
    return replace(state, floor=floor, superseded=still_read), Reclaimed()


def swap(state: State, body: Replace, offset: Offset) -> tuple[State, Decision]:
    """Replace contiguous batches by one, if all of them are still current (rule 9)."""
    collection = state.collections.get(body.collection)
    if collection is None or collection.is_dropped:
        return state, UnknownCollection(body.collection)
    if not body.replaced or len(set(body.replaced)) != len(body.replaced):
        return state, Refused(Misuse.NOT_DISTINCT)
    batches = [collection.batches.find(name) for name in body.replaced]
    gone = [batch for batch in batches if batch is not None]
    if len(gone) < len(batches):
        return state, BatchesChanged()
    upper = union(gone)
    misuse = broken_rule(collection, body, upper)
    if misuse is not None or upper is None:
        return state, misuse or Refused(Misuse.GAP)
    lost = missing_chunks(state, body)
    if lost is not None:
        return state, lost
    return swap_batches(state, collection, body, (gone, upper), offset), Replaced()


def union(batches: list[Batch]) -> Antichain | None:
    """Return the upper of the union of the batches' intervals; None if there is a gap."""
    ordered = sorted(batches, key=lambda batch: batch.lower)
    upper = ordered[0].upper
    for batch in ordered[1:]:
        if not upper.is_empty and upper.time < batch.lower:
            return None
        upper = upper.join(batch.upper)
    return upper


def broken_rule(
    collection: CollectionState, body: Replace, upper: Antichain | None
) -> Refused | None:
    """Return the rule that the new batch would break by changing readable or writable times."""
    if not frontier(body.since).precedes(collection.since):
        return Refused(Misuse.BEYOND_SINCE)
    if upper is not None and not upper.precedes(collection.upper):
        return Refused(Misuse.BEYOND_UPPER)
    return None


def swap_batches(
    state: State,
    collection: CollectionState,
    body: Replace,
    union_: tuple[list[Batch], Antichain],
    offset: Offset,
) -> State:
    """Return the state with the new batch in place of the old ones."""
    gone, upper = union_
    last = max(gone, key=lambda batch: batch.lower)
    chunks, stages = used_up(state, body)
    new = Batch(
        min(batch.lower for batch in gone),
        upper,
        chunks,
        offset,
        0,
        Timestamp(body.since),
        last.source,
    )
    old = tuple(chunk for batch in gone for chunk in batch.chunks)
    # cancelled rows are in no batch any more: a writer that counted them has to count again
    changed = offset if old or body.chunks else collection.changed
    moved = replace(collection, batches=collection.batches.replace(gone, new), changed=changed)
    state = with_collection(state, moved)
    return replace(state, superseded=state.superseding(offset, old), stages=stages)


def roll_up(state: State, body: Rollup, offset: Offset) -> tuple[State, Decision]:
    """Record a Rollup; the one before the last is not needed any more (rule 8)."""
    if body.upto >= offset or body.upto % ROLLUP_STRIDE != ROLLUP_STRIDE - 1:
        return state, Refused(Misuse.MID_STRETCH)
    newest = state.rollups[-1].upto if state.rollups else Offset(-1)
    if body.upto <= newest or body.upto < offset - WINDOW:
        return state, RollupSuperseded()
    if may_be_reclaimed(state, body.chunks):
        return state, ChunksReclaimed()
    out = tuple(chunk for old in state.rollups[:-1] for chunk in old.chunks)
    rollups = (*state.rollups[-1:], body)
    moved = replace(state, rollups=rollups, superseded=state.superseding(offset, out))
    return moved, RolledUp(truncate=newest)
