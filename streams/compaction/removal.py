"""Deletes the topics of a group in which everything was dropped.

A dropped collection leaves its id, and nothing else; its group's two topics, with all that it
held, would stay for ever, and everybody would follow them. They may go when

    every collection of the group is dropped, and there was one
    nothing was appended to its log for `QUIET_MS`
    the registry of ids gave each of them to this very log

The registry is what remembers: it is told first that the ids were dropped, so who asks for one
hears that, and not that its log is lost (`streams.storage.directory`). What it does not know,
such as the catalog's objects, is deleted by whoever made it. A group may be used again, by
other ids. A Create of another id that comes at the very moment fails, and its id is then used
up.
"""

from streams.storage.directory import REGISTRY, Directory, Entry
from streams.storage.shards import Shards
from streams.storage.state import State

QUIET_MS = 24 * 3_600_000
"""How long a group rests before its topics go: readers of its last contents have gone by then.

Units: milliseconds, from the broker's last append time to this process's clock.
"""


def remove(shards: Shards, group: str, now_ms: int) -> bool:
    """Delete the topics of the group if nothing in it can ever be used again.

    Whoever dies in between is followed by whoever calls this next.

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
    """Whether all that was ever in the group is dropped, and was a while ago."""
    is_quiet = now_ms - state.appended_ms >= QUIET_MS
    return is_quiet and state.collections.are_over


def is_remembered(directory: Directory, group: str, state: State) -> bool:
    """Whether the registry says of each id of the group that it was in this log, or retired."""
    here = Entry(group, directory.shards.identity(group) or "")
    entries = directory.all_registered(state.collections)
    return all(each is not None and (each.is_retired or each == here) for each in entries)
