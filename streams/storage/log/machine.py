"""The fold of a group's log: `step(state, event, offset, at_ms) -> (state, outcome)`. Pure.

The fold reads only its arguments, so the same records folded from the same state give the same
state in any language. The outcome of an event depends on its place in the log alone (rule 1),
and a writer learns it by reading its own event back.

    an event counts at most once        copies by id, stale ones by `seen`      rule 1
    and so does a command               its outcome is kept (`dedup_window.RecentOutcomes`)
    an Append meets its capability      `appends`                       rules 2, 18, 24
    an Advance speaks for idle ones     `advances`                      rule 14
    frontiers follow capabilities       `capability_events`             rules 3, 4, 5
    chunks outlive what names them      `chunk_gc`                      rules 7 to 10
    leases end by the log's own clock   here                                    rule 11
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from streams.ids import CapabilityId, CollectionId, Offset
from streams.storage.log import advances, appends, capability_events, chunk_gc
from streams.storage.log.dedup_window import COMMAND, RecordedOutcome, is_stale
from streams.storage.log.events import (
    Acquire,
    Advance,
    Append,
    Clone,
    Create,
    Downgrade,
    Drop,
    Event,
    Reclaim,
    Replace,
    Rollup,
    Stage,
    Transfer,
)
from streams.storage.log.lease_ends import holder_of
from streams.storage.log.outcomes import (
    Decision,
    Fenced,
    Stale,
    TokenMismatch,
    UnknownCapability,
    UnknownCollection,
    UnknownStage,
    WrongGroup,
)
from streams.storage.log.state import (
    LAST_MS,
    Collections,
    CollectionState,
    State,
    settled,
)

MAX_TICK_MS = 30_000
"""How far one record may move the clock, in milliseconds.

Neither a pause without records nor a broker with a wrong clock may expire all leases (rule 11).
"""

LONGEST_TEXT = 256
"""Longest text in a remembered outcome, in characters."""


def step(state: State, event: Event, offset: Offset, at_ms: int) -> tuple[State, Decision]:
    """Fold one event.

    Units: `at_ms` is the broker's append time, in milliseconds since the epoch.
    """
    assert offset > state.upto, f"offset {offset} was folded already: upto is {state.upto}"
    state = tick(state, offset, at_ms)
    if state.group and event.group != state.group:
        return state, WrongGroup(expected=state.group)
    recalled = recall(state, event, offset)
    if recalled is not None:
        return state, recalled
    state, outcome = decide(state, event, offset)
    decided = RecordedOutcome(event.id, offset, shorten(outcome))
    if event.id.startswith(COMMAND):
        return state.moved(kept=state.kept.record(decided)), outcome
    return state.moved(window=state.window.record(decided)), outcome


def shorten(outcome: Decision) -> Decision:
    """Return the outcome as it is remembered: long texts of refused events are cut.

    The state and each Rollup hold thousands of outcomes.
    """
    match outcome:
        case TokenMismatch(text) if len(text) > LONGEST_TEXT:
            return TokenMismatch(text[:LONGEST_TEXT])
        case UnknownCapability(text) if len(text) > LONGEST_TEXT:
            return UnknownCapability(text[:LONGEST_TEXT])
        case UnknownStage(text) if len(text) > LONGEST_TEXT:
            return UnknownStage(text[:LONGEST_TEXT])
        case UnknownCollection(id_) if len(id_) > LONGEST_TEXT:
            return UnknownCollection(CollectionId(id_[:LONGEST_TEXT]))
        case Fenced(text, id_) if len(text) > LONGEST_TEXT:
            return Fenced(text[:LONGEST_TEXT], id_)
        case _:
            return outcome


def recall(state: State, event: Event, offset: Offset) -> Decision | None:
    """The recorded outcome of an earlier copy, or Stale if it may have been forgotten."""
    if event.id.startswith(COMMAND):
        outcome = state.kept.find(event.id)
        return Stale() if outcome is None and is_stale(event.seen, offset) else outcome
    if is_stale(event.seen, offset):
        return Stale()
    return None if event.seen == offset - 1 else state.window.find(event.id, event.seen)


def decide(state: State, event: Event, offset: Offset) -> tuple[State, Decision]:
    """Decide an event that is neither a copy nor stale; return the state after it."""
    match event.body:
        case Append() as body:
            return appends.append(state, body, offset)
        case Create() as body:
            return capability_events.create(state, body, event.group)
        case Advance() as body:
            return advances.pass_time(state, body, offset)
        case Acquire() | Clone() | Transfer() | Downgrade() | Drop() as body:
            return capability_events.decide(state, body, offset)
        case Stage() | Reclaim() | Replace() | Rollup() as body:
            return chunk_gc.decide(state, body, offset)
        case _:
            assert_never(event.body)


def tick(state: State, offset: Offset, at_ms: int) -> State:
    """Return the state at `offset` with its clock moved and expired leases released."""
    clock = clock_at(state, at_ms)
    next_ms = state.lease_ends.next_ms
    if next_ms is None or clock < next_ms:
        return state.moved(upto=offset, clock_ms=clock, appended_ms=at_ms)
    names, lease_ends = state.lease_ends.due(clock, state.end_of_lease)
    over = defaultdict[CollectionId | None, list[str]](list)
    for name in names:
        id_, holder = holder_of(name)
        over[id_].append(holder)
    ended = over.pop(None, [])
    stages = {name: stage for name, stage in state.stages.items() if name not in ended}
    moved = {
        id_: expire(state.collections.live[id_], capabilities)
        for id_, capabilities in over.items()
        if id_ is not None
    }
    collections = Collections(state.collections.live.update(moved), state.collections.dropped)
    state = replace(
        state,
        upto=offset,
        clock_ms=clock,
        appended_ms=at_ms,
        stages=stages if ended else state.stages,
        collections=collections,
        lease_ends=lease_ends,
    )
    for id_ in sorted(id_ for id_, collection in moved.items() if collection.is_released):
        state = capability_events.ended_if_last(state, moved[id_], offset)
    return state


def clock_at(state: State, at_ms: int) -> int:
    """Return the clock at a record that is appended next.

    It adds the time between records, at most `MAX_TICK_MS` per record, and nothing if append
    times go back. So a lease never ends before its duration has passed by the log's append
    times. Time that was not counted, in a pause or a jump of the broker's clock, is never added
    later, which would shorten newer leases.

    Units: milliseconds since the epoch, less the time that was not counted.
    """
    if state.upto < 0:
        return at_ms
    passed = min(max(at_ms - state.appended_ms, 0), MAX_TICK_MS)
    return min(state.clock_ms + passed, LAST_MS)


def expire(collection: CollectionState, capabilities: Iterable[str]) -> CollectionState:
    """Return the collection without capabilities that have expired.

    If none is left its frontiers stay (rule 4): a writer that died has not finished. But if one
    writer has finished, the death of the last other one seals the collection.
    """
    left = collection.capabilities.remove(*map(CapabilityId, capabilities))
    moved = settled(collection, left, collection.batches, collection.source)
    return appends.seal_if_last(moved) if moved.is_sealing else moved
