"""Read policies: where a collection's since is wished to be. Pure.

Since follows from the read capabilities (rule 4), so a policy cannot move it: it says where to
move the catalog's own hold, the critical read capability that a collection was created with.
Whoever holds less keeps since where they need it. No policy reaches beyond upper - 1: the
newest time stays readable (rule 5).
"""

from dataclasses import dataclass
from typing import assert_never

from streams.ids import CapabilityId, CollectionId, Timestamp
from streams.progress import Antichain, frontier
from streams.storage.events import Downgrade, Right, system_capability
from streams.storage.state import CollectionState


@dataclass(frozen=True, slots=True)
class LagBehindUpper:
    """Keep what is at most `lag_ms` older than the newest complete time.

    Of a collection that stands still this keeps the same history for ever.
    """

    lag_ms: int


@dataclass(frozen=True, slots=True)
class RetainHistory:
    """Keep what is at most `duration_ms` older than now, whether or not anything happens."""

    duration_ms: int


@dataclass(frozen=True, slots=True)
class Until:
    """Keep nothing before `since`: what a user asks for by a time."""

    since: Timestamp


Retention = LagBehindUpper | RetainHistory
"""What goes on holding, as time passes."""

Policy = Retention | Until


def catalog_hold(collection: CollectionId) -> CapabilityId:
    """The read capability of the catalog on a collection; its read policy moves it."""
    return system_capability(collection, "catalog")


def wish(policy: Policy, upper: Antichain, now_ms: int) -> Antichain | None:
    """The since that a policy wishes for; None when it wishes for none.

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
    """The history that a policy keeps."""
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
    """From when on, by the clock, `downgrade` has something to move.

    None when no time brings it about, unless the collection moves first.
    """
    held = collection.capabilities.get(hold)
    if held is None or held.right is not Right.READ or not isinstance(policy, RetainHistory):
        return None
    least = held.frontier.time + window_ms(policy) // 10 + 1
    if not collection.upper.is_empty and collection.upper.time - 1 < least:
        return None
    return least + policy.duration_ms


def downgrade(
    collection: CollectionState, hold: CapabilityId, policy: Policy, now_ms: int
) -> Downgrade | None:
    """How to move the catalog's hold; None while there is nothing to gain.

    A move is a record in the log, so it waits until a tenth of the window would be released.
    """
    held = collection.capabilities.get(hold)
    if held is None or held.right is not Right.READ:
        return None
    to = wish(policy, collection.upper, now_ms)
    if to is None or to.time <= held.frontier.time + window_ms(policy) // 10:
        return None
    return Downgrade(collection=collection.id, capability=hold, frontier=to)
