"""The end of a run: an independent reader reads every collection to its last update.

A process that died with a write capability holds upper back until its lease expires, so the
log's clock must advance first: `wait` advances it, one record at a time.
"""

from collections.abc import Callable, Sequence

from streams.errors import SlackwaterError
from streams.progress import frontier
from streams.storage.client.handles import ReadCapability, WriteCapability
from streams.storage.log.outcomes import UpperMismatch
from streams.torture.actor_context import ActorPlace, Target
from streams.torture.journal import Entry, ReadResult, Wrong, Wrote

MOST_TRIES = 200


def ends(entries: Sequence[Entry]) -> dict[str, int]:
    """The upper bound of the times of all possible writes, by collection."""
    uppers: dict[str, int] = {}
    for entry in entries:
        for share in entry.shares if isinstance(entry, Wrote) else ():
            uppers[share.collection] = max(uppers.get(share.collection, 0), share.upper)
    return uppers


def last_looks(seat: ActorPlace, entries: Sequence[Entry], wait: Callable[[], None]) -> None:
    """Read everything, and note it."""
    uppers = ends(entries)
    for target in seat.targets:
        try:
            as_of = close(seat, target, uppers.get(target.id, 0) + 1, wait)
            look(seat, target, as_of)
        except SlackwaterError as error:
            what = f"{target.id} cannot be read at the end: {type(error).__name__}: {error}"
            seat.journal.note(Wrong(seat.name, what))


def close(seat: ActorPlace, target: Target, upper: int, wait: Callable[[], None]) -> int:
    """Move upper beyond all writes; returns the last time before it."""
    storage = seat.storage
    capability = storage.heartbeat(WriteCapability(target.id, frontier(0), target.write))
    upper = max(upper, int(capability.frontier.time) + 1)
    done = storage.update_and_downgrade(capability, None, upper)
    if isinstance(done, UpperMismatch):
        seat.journal.note(Wrong(seat.name, f"{target.id}: a dead writer has written"))
    for _ in range(MOST_TRIES):
        storage.heartbeat(capability)
        if storage.shards.state(target.id).upper.time >= upper:
            return upper - 1
        wait()
    seat.journal.note(Wrong(seat.name, f"{target.id}: upper does not reach {upper}"))
    return int(storage.shards.state(target.id).upper.time) - 1


def look(seat: ActorPlace, target: Target, as_of: int) -> None:
    """The contents at a time, for good."""
    storage = seat.storage
    capability = storage.clone(ReadCapability(target.id, frontier(0), target.read))
    subscription = storage.subscribe_at(storage.downgrade(capability, as_of))
    delivery = subscription.next(timeout_ms=60_000)
    if delivery is None:
        seat.journal.note(Wrong(seat.name, f"{target.id}: nothing comes as of {as_of}"))
        return
    contents = tuple(
        ((row["c0"], row["c1"]), row["diff"]) for row in delivery.updates.to_pylist()
    )
    seat.journal.note(ReadResult(seat.name, target.id, as_of, None, contents, is_last=True))
