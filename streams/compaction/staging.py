"""Chunks of a merge that is still being made, safe from collectors however long it takes.

A Stage names chunks in the log (rule 7): until its lease ends no collector takes them, whatever
it believes of their age. Whoever follows the log stages what it wrote and reads that back; a
task follows no log, and appends the event behind its chunks. It need not hear what became of
it: if a collector was faster, the Replace that brings the chunks up is void.

A merged batch may have more chunks than an event can name: then its Replace names a stage,
which holds them by as many events as that takes.

The driver renews the leases as long as it lives, and ends them when the merge is decided.
"""

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from streams.errors import SlackwaterError
from streams.ids import CollectionId, EventId, Offset, Topic
from streams.kafka.log import ChunkRef, Logs
from streams.kafka.topics import MAXIMUM_RECORD_BYTES
from streams.storage import outcomes, records
from streams.storage.events import Body, Event, Stage
from streams.storage.outcomes import Outcome
from streams.storage.shards import Shards

log = logging.getLogger(__name__)

LEASE_MS = 600_000
"""How long staged chunks are safe after the last renewal."""

LARGEST_EVENT_BYTES = MAXIMUM_RECORD_BYTES - (64 << 10)
"""What is left is for the record's frame."""

LONGEST_ID = 64
"""Characters of the ids in an event's envelope, at most."""

RENEWAL_S = LEASE_MS / 4_000


@dataclass(frozen=True, slots=True)
class Staging:
    """A stage as a task is told it: its name, and the log and the UUID of its group."""

    name: str
    log: Topic
    group: str


def staging_of(shards: Shards, collection: CollectionId, name: str) -> Staging:
    """A stage in the group of a collection. Errors: as `Shards.group_of`."""
    group = shards.group_of(collection)
    return Staging(name, shards.names(group).log, shards.following.group(group).uuid)


def announce(logs: Logs, staging: Staging, refs: tuple[ChunkRef, ...]) -> None:
    """Stage chunks without following the log. Errors: Determinate, Indeterminate.

    The event is new, so all of the log before it holds no copy: it is not stale (rule 1).
    """
    if not refs:
        return
    seen = Offset(logs.bounds(staging.log)[1] - 1)
    logs.append(
        [
            (
                staging.log,
                records.encode(Event(EventId(uuid.uuid4().hex), staging.group, seen, body)),
            )
            for body in stages(staging.name, refs)
        ]
    )


def stage(
    shards: Shards, collection: CollectionId, name: str, refs: tuple[ChunkRef, ...]
) -> Outcome:
    """Stage chunks, or without any renew the lease; the first failure, if there is one.

    Errors: as `Shards.submit`.
    """
    group = shards.group_of(collection)
    found = [shards.submit([(group, body)])[0] for body in stages(name, refs)]
    return next((each for each in found if not is_staged(each)), found[0])


def stages(name: str, refs: tuple[ChunkRef, ...]) -> Iterator[Stage]:
    """Events that stage chunks, each of which fits a record."""
    body = Stage(stage=name, chunks=refs, lease_ms=LEASE_MS)
    if len(refs) < 2 or fits(body):  # noqa: PLR2004  one reference cannot be cut
        yield body
        return
    middle = len(refs) // 2
    yield from stages(name, refs[:middle])
    yield from stages(name, refs[middle:])


def fits(body: Body) -> bool:
    """Whether a log takes the event as one record."""
    event = Event(EventId("0" * LONGEST_ID), "0" * LONGEST_ID, Offset(0), body)
    return len(records.encode(event)) <= LARGEST_EVENT_BYTES


def release(shards: Shards, staged: Sequence[tuple[CollectionId, str]]) -> None:
    """End stages: what was not linked becomes garbage now, and not when the leases end."""
    ends: list[tuple[str, Body]] = []
    for collection, name in staged:
        with _tolerated():
            group = shards.group_of(collection)
            ends.append((group, Stage(stage=name, chunks=(), lease_ms=0)))
    with _tolerated():
        shards.submit(ends)


@contextmanager
def _tolerated() -> Iterator[None]:
    """What fails to be ended ends with its lease all the same."""
    try:
        yield
    except SlackwaterError as error:
        log.warning("stages stay until their leases end", extra={"cause": str(error)})


@contextmanager
def renewed(
    shards: Shards,
    staged: Sequence[tuple[CollectionId, str]],
    wait: Callable[[threading.Event], bool] = lambda ended: ended.wait(RENEWAL_S),
) -> Iterator[None]:
    """Keep the leases of stages alive while the block runs, and end them after it."""
    ended = threading.Event()

    def renew() -> None:
        while not wait(ended):
            for collection, name in staged:
                try:
                    stage(shards, collection, name, ())
                except SlackwaterError as error:
                    log.warning("a stage was not renewed", extra={"cause": str(error)})

    thread = threading.Thread(target=renew, name="stages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        release(shards, staged)


def is_staged(outcome: Outcome) -> bool:
    """Whether the chunks are safe."""
    return isinstance(outcome, outcomes.Staged)
