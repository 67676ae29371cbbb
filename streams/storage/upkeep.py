"""What keeps a group small: Rollups, truncation, and tombstones for what nobody names.

Anybody may do this at any time, twice or at once: the log decides whose Rollup counts, and
nothing is deleted before the event that allows it was read back (rules 7, 8). The caller
decides when; `due` says whether it is worth it.
"""

import logging

from streams.ids import Offset, Topic
from streams.kafka.log import ChunkRef
from streams.storage import rollup
from streams.storage.events import Reclaim, Rollup
from streams.storage.outcomes import Outcome, Reclaimed, RolledUp
from streams.storage.shards import Shards
from streams.storage.state import State

log = logging.getLogger(__name__)

LEAST_EVENTS = 1_000
"""Fewer new events than this are not worth a Rollup."""


def due(state: State) -> bool:
    """Whether the group has grown enough since its last Rollup.

    A Rollup costs what the state holds, so it waits for as many events as there are batches:
    its cost for each event is constant.
    """
    covered = state.rollups[-1].upto if state.rollups else Offset(-1)
    held = sum(each.batches.count for each in state.collections.live.values())
    return state.upto - covered >= max(LEAST_EVENTS, held)


def keep_small(shards: Shards) -> None:
    """Roll up and collect the open groups for which it is due; one that fails, fails alone."""
    for group in shards.groups():
        try:
            if due(shards.group_state(group)) and roll_up(shards, group) is not None:
                collect(shards, group)
        except Exception:  # the state comes of what anybody appended; the others need theirs
            log.warning("group maintenance failed", extra={"group": group}, exc_info=True)


def roll_up(shards: Shards, group: str) -> Outcome | None:
    """Write the state of a group as a Rollup and delete the records that it makes superfluous.

    None when there is nothing to roll up: a Rollup is made of the state at the end of a
    stretch, and there is none since the last.
    """
    state = shards.following.group(group).newest_retained()
    if state is None:
        return None
    body = rollup.encode(state)
    names = shards.names(group)
    headers = {"group": state.group.encode(), "rollup": str(state.upto).encode()}
    chunks = shards.chunks.write(names.data, rollup.cut(body), headers)
    event = Rollup(upto=state.upto, chunks=chunks, hash=rollup.hash_of(body))
    outcome = shards.submit([(group, event)])[0]
    if isinstance(outcome, RolledUp) and outcome.truncate >= 0:
        shards.logs.truncate(names.log, Offset(outcome.truncate + 1))
    return outcome


def collect(shards: Shards, group: str) -> tuple[ChunkRef, ...]:
    """Tombstone superseded chunks that no reader's plan needs; returns them.

    Chunks that were never linked by anything are not found here: that takes a scan of the data
    topic, which the compaction job does.
    """
    superseded = candidates(shards.group_state(group))
    if not superseded:
        return ()
    floor: dict[int, int] = {}
    for chunk in superseded:
        floor[chunk.partition] = max(floor.get(chunk.partition, 0), chunk.offset + 1)
    outcome = shards.submit([(group, Reclaim(floor))])[0]
    if not isinstance(outcome, Reclaimed):
        return ()
    named = shards.group_state(group).chunks()
    released = tuple(sorted(superseded - named, key=lambda each: (each.partition, each.offset)))
    topic: Topic = shards.names(group).data
    if released:
        shards.chunks.forget(topic, released)
    return released


def candidates(state: State) -> frozenset[ChunkRef]:
    """The chunks that a Reclaim now may release."""
    return frozenset(chunk for each in state.superseded for chunk in each.chunks)
