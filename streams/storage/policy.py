"""Read policies: functions from upper, or the clock, to the desired since. Pure.

Since follows from the read capabilities (rule 4), so a policy cannot move it: it moves the
catalog's own hold, the critical read capability that the collection was created with. Other
holders keep since where they need it. No policy moves beyond upper - 1: the newest time stays
readable (rule 5).
"""

from dataclasses import dataclass
from typing import assert_never

from streams.ids import CapabilityId, CollectionId, Timestamp
from streams.progress import Antichain, frontier
from streams.storage.log.events import Downgrade, Right, system_capability
from streams.storage.log.state import CollectionState


@dataclass(frozen=True, slots=True)
class LagBehindUpper:
    """Keep history for `lag_ms` before the newest complete time.

    If the collection does not move, the same history is kept indefinitely.
    """

    lag_ms: int


@dataclass(frozen=True, slots=True)
class RetainHistory:
    """Keep history for `duration_ms` before now, whether or not the collection moves."""

    duration_ms: int


@dataclass(frozen=True, slots=True)
class Until:
    """Keep nothing before `since`, a time that the user gives."""

    since: Timestamp


Retention = LagBehindUpper | RetainHistory
"""The policies that move with time."""

Policy = Retention | Until


def catalog_hold(collection: CollectionId) -> CapabilityId:
    """The catalog's read capability on a collection; the read policy moves it."""
    return system_capability(collection, "catalog")


def desired_since(policy: Policy, upper: Antichain, now_ms: int) -> Antichain | None:
    """Return the since that a policy asks for; None if it asks for none.

    Units: `now_ms` is in milliseconds since the epoch, as the times of the default timeline.
    """
    match policy:
        case LagBehindUpper(lag_ms):
            time = None if upper.is_empty else upper.time - 1 - lag_ms
        case RetainHistory(duration_ms):
            time = now_ms - duration_ms
        case Until(since):
            time = since
        case _:
            assert_never(policy)
    if time is None:
        return None
    return frontier(time if upper.is_empty else min(time, upper.time - 1))


def window_ms(policy: Policy) -> int:
    """Return the length of the history that a policy keeps. Units: milliseconds."""
    match policy:
        case LagBehindUpper(lag_ms):
            return lag_ms
        case RetainHistory(duration_ms):
            return duration_ms
        case Until():
            return 0
        case _:
            assert_never(policy)


def due_ms(collection: CollectionState, hold: CapabilityId, policy: Retention) -> int | None:
    """Return the clock time from which on `downgrade` has something to move.

    None if the collection has to move first.
    """
    capability = collection.capabilities.get(hold)
    if (
        capability is None
        or capability.right is not Right.READ
        or not isinstance(policy, RetainHistory)
    ):
        return None
    least = capability.frontier.time + window_ms(policy) // 10 + 1
    if not collection.upper.is_empty and collection.upper.time - 1 < least:
        return None
    return least + policy.duration_ms


def downgrade(
    collection: CollectionState, hold: CapabilityId, policy: Policy, now_ms: int
) -> Downgrade | None:
    """Return the downgrade of the catalog's hold; None while there is little to gain.

    A move is a record in the log, so it waits until a tenth of the window would be released.
    """
    capability = collection.capabilities.get(hold)
    if capability is None or capability.right is not Right.READ:
        return None
    to = desired_since(policy, collection.upper, now_ms)
    if to is None or to.time <= capability.frontier.time + window_ms(policy) // 10:
        return None
    return Downgrade(collection=collection.id, capability=hold, frontier=to)
