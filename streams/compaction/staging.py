"""Stages the chunks of an unfinished merge, which protects them from collectors.

A Stage names chunks in the log (rule 7): until its lease ends no collector takes them, whatever
their age. A process that follows the log submits the event and reads it back; a task follows no
log, and only appends the event after its chunks. It need not learn the outcome: if a collector
was faster, the Replace that links the chunks is void.

A merged batch may have more chunks than an event can name: then its Replace names a stage,
which names them in as many events as needed.

The driver renews the leases as long as it lives, and ends them when the merge is decided.
"""

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from streams.errors import SlackwaterError
from streams.ids import CollectionId, EventId, Offset, Topic
from streams.kafka.log import ChunkRef, Logs
from streams.kafka.topics import MAXIMUM_RECORD_BYTES
from streams.periodic import periodically
from streams.storage.client.shards import Shards
from streams.storage.log import event_codec, outcomes
from streams.storage.log.events import Body, Event, Stage
from streams.storage.log.outcomes import Outcome

log = logging.getLogger(__name__)

LEASE_MS = 600_000
"""Lease of staged chunks after the last renewal."""

LARGEST_EVENT_BYTES = MAXIMUM_RECORD_BYTES - (64 << 10)
"""Bytes left for the record's frame."""

LONGEST_ID = 64
"""Maximum of characters of the ids in an event's envelope."""

RENEWAL_S = LEASE_MS / 4_000

UNENDED = "cannot end stages; they stay until their leases end"


@dataclass(frozen=True, slots=True)
class Staging:
    """A stage in the form sent to a task: its name, and the log and the UUID of its group."""

    name: str
    log: Topic
    group: str


def staging_of(shards: Shards, collection: CollectionId, name: str) -> Staging:
    """Return a stage in the group of a collection. Errors: as `Shards.group_of`."""
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
                event_codec.encode(Event(EventId(uuid.uuid4().hex), staging.group, seen, body)),
            )
            for body in stages(staging.name, refs)
        ]
    )


def stage(
    shards: Shards, collection: CollectionId, name: str, refs: tuple[ChunkRef, ...]
) -> Outcome:
    """Stage chunks, or without any renew the lease; return the first failure, if any.

    Errors: as `Shards.submit`.
    """
    group = shards.group_of(collection)
    outcomes = [shards.submit([(group, body)])[0] for body in stages(name, refs)]
    return next((outcome for outcome in outcomes if not is_staged(outcome)), outcomes[0])


def stages(name: str, refs: tuple[ChunkRef, ...]) -> Iterator[Stage]:
    """Return events that stage chunks, each of which fits in a record."""
    body = Stage(stage=name, chunks=refs, lease_ms=LEASE_MS)
    if len(refs) < 2 or fits(body):  # noqa: PLR2004  a single reference cannot be split
        yield body
        return
    middle = len(refs) // 2
    yield from stages(name, refs[:middle])
    yield from stages(name, refs[middle:])


def fits(body: Body) -> bool:
    """Whether the event fits in one record of a log."""
    event = Event(EventId("0" * LONGEST_ID), "0" * LONGEST_ID, Offset(0), body)
    return len(event_codec.encode(event)) <= LARGEST_EVENT_BYTES


def release(shards: Shards, staged: Sequence[tuple[CollectionId, str]]) -> None:
    """End stages: chunks that were not linked become garbage now, not when the leases end."""
    ends: list[tuple[str, Body]] = []
    for collection, name in staged:
        with _tolerated(UNENDED):
            group = shards.group_of(collection)
            ends.append((group, Stage(stage=name, chunks=(), lease_ms=0)))
    with _tolerated(UNENDED):
        shards.submit(ends)


@contextmanager
def _tolerated(warning: str) -> Iterator[None]:
    """Log a failure."""
    try:
        yield
    except SlackwaterError as error:
        log.warning(warning, extra={"cause": str(error)})


@contextmanager
def renewed(shards: Shards, staged: Sequence[tuple[CollectionId, str]]) -> Iterator[None]:
    """Renew the leases of stages while the block runs, and end them after it."""

    def renew() -> None:
        for collection, name in staged:
            with _tolerated("cannot renew the lease of a stage"):
                stage(shards, collection, name, ())

    try:
        with periodically(renew, RENEWAL_S, name="stages", warning="cannot renew leases"):
            yield
    finally:
        release(shards, staged)


def is_staged(outcome: Outcome) -> bool:
    """Whether the chunks are staged."""
    return isinstance(outcome, outcomes.Staged)
