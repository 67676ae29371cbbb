"""Advance: one record moves the uppers of all idle collections of a group (rule 14). Pure.

One Advance replaces a thousand empty Appends per tick for a thousand idle tables. It moves only
the system's own write capability of each collection and skips what it cannot move, so it always
counts. An Append that it overtakes has lost a race.
"""

from streams.ids import CollectionId, Offset, Timestamp
from streams.progress import frontier
from streams.storage.log.appends import advance
from streams.storage.log.batches import Batch
from streams.storage.log.events import Advance, Right, write_capability
from streams.storage.log.outcomes import Advanced, Decision, Misuse, Refused
from streams.storage.log.state import Collections, CollectionState, State


def pass_time(state: State, body: Advance, offset: Offset) -> tuple[State, Decision]:
    """Return the state after the system has declared that nothing happens before `upper`."""
    if body.lower >= body.upper:
        return state, Refused(Misuse.BOUNDS)
    moved: dict[CollectionId, CollectionState] = {
        id_: moved_on(collection, body, offset)
        for id_, collection in state.collections.live.items()
        if is_idle(collection, body)
    }
    live = state.collections.live.update(moved)
    collections = Collections(live, state.collections.dropped)
    return state.moved(collections=collections), Advanced(len(moved))


def is_idle(collection: CollectionState, body: Advance) -> bool:
    """Whether the system may move the collection: it writes there, and no writer lags it."""
    system = write_capability(collection.id)
    capability = collection.capabilities.get(system)
    if (
        capability is None
        or capability.right is not Right.WRITE
        or capability.frontier.time > body.lower
    ):
        return False
    if len(collection.capabilities) == 1:
        return True
    return all(
        capability.frontier.time >= body.upper
        for id_, capability in collection.capabilities.items()
        if capability.right is Right.WRITE and id_ != system
    )


def moved_on(collection: CollectionState, body: Advance, offset: Offset) -> CollectionState:
    """Return the collection after an empty Append by the system."""
    system = write_capability(collection.id)
    start = collection.capabilities[system].frontier.time
    upper = frontier(body.upper)
    quiet = Batch(start, upper, (), offset, 0, Timestamp(0), collection.source)
    return advance(collection, system, upper, quiet)
