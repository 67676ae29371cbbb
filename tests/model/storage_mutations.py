"""Defects of storage and compaction, put in on purpose, one at a time.

Each is a mistake that somebody could make in one line. The soak has to find every one of them,
or it is not worth its time.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

import pytest

from streams.compaction import plan
from streams.progress import frontier
from streams.storage.client import garbage
from streams.storage.log import appends, capability_events, chunk_gc, machine, state
from streams.storage.log.batches import Batch
from streams.storage.log.events import Right
from streams.storage.log.outcomes import Appended, Replaced
from streams.storage.read import reader as read
from streams.storage.read import subscription

Patch = pytest.MonkeyPatch


class Mutation(Enum):
    """A defect in words."""

    LOWER = "an Append counts though it begins one time before the capability's frontier"
    HOLD = "since follows the furthest read capability, not the nearest"
    REFERENCED = "the collector takes chunks that batches still name"
    REPLACE = "a Replace counts though some of its batches are gone"
    LEASE = "leases never end"
    ADVANCE = "a merge advances times beyond since"
    CLIP = "a snapshot leaves out the updates at its own time"
    HALF = "an Append of several parts that lost counts as far as it did not"
    TRANSFER = "a capability that was passed on is still honoured"
    REVERSED = "a merge replaces its batches by nothing"


def lower(patch: Patch) -> None:
    honest = appends.lost_race

    def lost_race(collection: Any, capability: Any, part: Any) -> Any:
        if part.lower.time == capability.frontier.time - 1:
            return None
        return honest(collection, capability, part)

    patch.setattr(appends, "lost_race", lost_race)


def hold(patch: Patch) -> None:
    honest = state.settled

    def settled(collection: Any, capabilities: Any, batches: Any, source: Any) -> Any:
        changed = honest(collection, capabilities, batches, source)
        reads = [c.frontier.time for c in capabilities.values() if c.right is Right.READ]
        if not reads or changed.upper.is_empty:
            return changed
        newest = frontier(max(0, min(changed.upper.time - 1, max(reads))))
        return replace(changed, since=changed.since.join(newest))

    for module in (appends, capability_events, machine):
        patch.setattr(module, "settled", settled)


def referenced(patch: Patch) -> None:
    honest = garbage.tombstone

    def tombstone(shards: Any, group: Any, chunks: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(state.State, "chunks", lambda _: frozenset())
            return honest(shards, group, chunks)

    patch.setattr(garbage, "tombstone", tombstone)


def replaced(patch: Patch) -> None:
    honest = chunk_gc.swap

    def swap(before: Any, body: Any, offset: Any) -> Any:
        collection = before.collections.get(body.collection)
        trace = None if collection is None else collection.batches
        if trace is None or all(trace.find(name) is not None for name in body.replaced):
            return honest(before, body, offset)
        upper = body.replaced[0].upper
        for name in body.replaced:
            upper = upper.join(name.upper)
        lower = min(name.lower for name in body.replaced)
        merged = Batch(lower, upper, body.chunks, offset, 0, body.since, None)
        removed = [batch for name in body.replaced if (batch := trace.find(name)) is not None]
        batches = trace.replace(removed, merged) if removed else trace.add(merged)
        moved = replace(collection, batches=batches)
        return appends.with_collection(before, moved), Replaced()

    patch.setattr(chunk_gc, "swap", swap)


def lease(patch: Patch) -> None:
    patch.setattr(machine, "expire", lambda collection, clock_ms: collection)


def advance(patch: Patch) -> None:
    honest = plan.Merge.advance_to.fget  # type: ignore[attr-defined]  # a property
    patch.setattr(plan.Merge, "advance_to", property(lambda self: honest(self) + 1))


def clip(patch: Patch) -> None:
    honest = read.load_stable

    def load_stable(shards: Any, id_: Any, interval: Any, as_of: Any, selected: Any) -> Any:
        lower, upper = interval
        return honest(shards, id_, (lower, upper - (lower == 0)), as_of, selected)

    patch.setattr(subscription, "load_stable", load_stable)


def half(patch: Patch) -> None:
    def append(before: Any, body: Any, offset: Any) -> Any:
        draft = before
        for number, part in enumerate(body.parts):
            refusal = appends.obstacle(draft, part)
            if refusal is not None:
                return draft, refusal
            draft = appends.link(draft, part, offset, number)
        return draft, Appended(tuple(part.upper for part in body.parts))

    patch.setattr(appends, "append", append)


def transfer(patch: Patch) -> None:
    honest = capability_events.transfer

    def passed_on(before: Any, collection: Any, body: Any) -> Any:
        after, outcome = honest(before, collection, body)
        capability = collection.capabilities.get(body.capability)
        moved = after.collections[collection.id]
        if capability is None:
            return after, outcome
        both = moved.capabilities.set(body.capability, capability)
        return appends.with_collection(after, replace(moved, capabilities=both)), outcome

    patch.setattr(capability_events, "transfer", passed_on)


def reversed_(patch: Patch) -> None:
    honest = chunk_gc.swap_batches

    def swapped(before: Any, collection: Any, body: Any, union: Any, offset: Any) -> Any:
        return honest(before, collection, replace(body, chunks=()), union, offset)

    patch.setattr(chunk_gc, "swap_batches", swapped)


PATCHES: Mapping[Mutation, Callable[[Patch], None]] = {
    Mutation.LOWER: lower,
    Mutation.HOLD: hold,
    Mutation.REFERENCED: referenced,
    Mutation.REPLACE: replaced,
    Mutation.LEASE: lease,
    Mutation.ADVANCE: advance,
    Mutation.CLIP: clip,
    Mutation.HALF: half,
    Mutation.TRANSFER: transfer,
    Mutation.REVERSED: reversed_,
}
