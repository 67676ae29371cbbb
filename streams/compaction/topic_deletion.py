"""Deletes the topics of a group in which everything was dropped.

A dropped collection leaves only its id; its group's two topics, with all their records, would
stay permanently, and every client would follow them. They are deleted if

    every collection of the group is dropped, and there was one
    nothing was appended to its log for `QUIET_MS`
    the registry of ids gave each of them to this very log

The registry records first that the ids were dropped, so that a lookup reports a dropped id, and
not a lost log (`streams.storage.client.id_registry`). Collections that it does not know,
such as most of the catalog's objects, are deleted by their creator. A group may be used again,
by other ids. A concurrent Create of another id fails, and its id cannot be used any more.
"""

from streams.storage.client.id_registry import Directory, Entry
from streams.storage.client.reserved_names import REGISTRY
from streams.storage.client.shards import Shards
from streams.storage.log.state import State

QUIET_MS = 24 * 3_600_000
"""Time without records before a group's topics are deleted, so that readers have finished.

Units: milliseconds, from the broker's last append time to this process's clock.
"""


def remove(shards: Shards, group: str, now_ms: int) -> bool:
    """Delete the topics of the group if nothing in it can ever be used again.

    If the process dies in between, the next call finishes the deletion.

    Errors: as `Shards.sync_group`, `Directory.retire` and `Shards.delete`.
    """
    if not is_over(shards.group_state(group), now_ms) or group == REGISTRY:
        return False
    shards.sync_group(group)
    state, directory = shards.group_state(group), Directory(shards)
    if not is_over(state, now_ms) or not is_remembered(directory, group, state):
        return False
    directory.retire(group, state.collections)
    shards.delete(group)
    return True


def is_over(state: State, now_ms: int) -> bool:
    """Whether everything that was ever in the group is dropped, and has been for a while."""
    is_quiet = now_ms - state.appended_ms >= QUIET_MS
    return is_quiet and state.collections.are_over


def is_remembered(directory: Directory, group: str, state: State) -> bool:
    """Whether the registry has each id of the group as given to this log, or as retired."""
    here = Entry(group, directory.shards.identity(group) or "")
    entries = directory.all_registered(state.collections)
    return all(entry is not None and (entry.is_retired or entry == here) for entry in entries)
