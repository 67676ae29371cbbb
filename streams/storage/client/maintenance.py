"""Group maintenance: Rollups, log truncation, and tombstones for superseded chunks.

Any process may do this at any time, repeatedly or concurrently: the log decides whose Rollup
counts, and nothing is deleted before the event that allows it was read back (rules 7, 8). The
caller decides when; `due` says whether it is worthwhile.
"""

import logging

from streams.ids import Offset
from streams.kafka.log import ChunkRef
from streams.storage.client import garbage
from streams.storage.client.shards import Shards
from streams.storage.log import rollup
from streams.storage.log.events import Rollup
from streams.storage.log.outcomes import Outcome, RolledUp
from streams.storage.log.state import State

log = logging.getLogger(__name__)

LEAST_EVENTS = 1_000
"""Minimum of new events for a Rollup."""


def due(state: State) -> bool:
    """Whether the group has grown enough since its last Rollup.

    The cost of a Rollup is proportional to the state, so it waits for as many events as there
    are batches: the cost per event is constant.
    """
    covered = state.rollups[-1].upto if state.rollups else Offset(-1)
    batches = sum(collection.batches.count for collection in state.collections.live.values())
    return state.upto - covered >= max(LEAST_EVENTS, batches)


def keep_small(shards: Shards) -> None:
    """Roll up and collect the open groups that are due; a failure affects only its group."""
    for group in shards.groups():
        try:
            if due(shards.group_state(group)) and roll_up(shards, group) is not None:
                collect(shards, group)
        except Exception:
            # any client's events make the state; the other groups need their maintenance
            log.warning("group maintenance failed", extra={"group": group}, exc_info=True)


def roll_up(shards: Shards, group: str) -> Outcome | None:
    """Write the state of a group as a Rollup and delete the log records that it replaces.

    None if there is no state to roll up: a Rollup is made of the state at the end of a stretch,
    and none has ended since the last Rollup.
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
    """Write tombstones for superseded chunks that no reader's plan needs; return them.

    Chunks that were never linked are not found here: that takes a scan of the data topic, which
    the compaction job does.
    """
    superseded = garbage.superseded_chunks(shards.group_state(group))
    if not superseded or not garbage.raise_floor(shards, group, {}, superseded):
        return ()
    return garbage.tombstone(shards, group, superseded)
