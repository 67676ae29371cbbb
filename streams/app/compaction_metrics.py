"""The metrics of compaction: what it did, what it has still to do, what is stored."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from streams.compaction import plan
from streams.errors import SlackwaterError
from streams.http.metrics import Family, counter, gauge
from streams.storage.client.shards import Shards
from streams.storage.log.state import CollectionState


@dataclass(frozen=True, slots=True)
class Stored:
    """What a collection has stored: bytes of chunks, batches, and bytes that merges are due."""

    bytes: int
    batches: int
    debt_bytes: int


class Done(Protocol):
    """What compaction has done since the process began (`streams.app.compaction.Counts`)."""

    rounds: int
    last_ms: int | None
    merges: int
    merged_bytes: int
    reclaimed_chunks: int
    failures: int
    stored: Mapping[str, Stored]


def measured(shards: Shards) -> dict[str, Stored]:
    """Look at the collections of all groups that are followed, as they are in memory."""
    by_collection: dict[str, Stored] = {}
    for group in shards.groups():
        with suppress(SlackwaterError):  # closed meanwhile
            live = shards.group_state(group).collections.live
            by_collection |= {id_: stored(collection) for id_, collection in live.items()}
    return by_collection


def stored(collection: CollectionState) -> Stored:
    """What a collection has stored, and what compaction would rewrite of it now."""
    batches = list(collection.batches)
    debt = sum(merge.size for merge in plan.geometric(collection))
    return Stored(sum(map(plan.size, batches)), len(batches), debt)


def of_compaction(done: Done) -> Iterator[Family]:
    """Return the metrics of compaction."""
    yield counter("compaction_rounds_total", "Rounds.", [({}, done.rounds)])
    yield counter("compaction_merges_total", "Collections merged.", [({}, done.merges)])
    yield counter("compaction_merged_bytes_total", "Bytes written.", [({}, done.merged_bytes)])
    yield counter(
        "compaction_reclaimed_chunks_total",
        "Unused chunks deleted.",
        [({}, done.reclaimed_chunks)],
    )
    yield counter(
        "compaction_failures_total", "Rounds and merges that failed.", [({}, done.failures)]
    )
    yield gauge(
        "compaction_last_round_timestamp_seconds",
        "When the last round ended, in seconds since 1970.",
        [] if done.last_ms is None else [({}, done.last_ms / 1000)],
    )
    yield from of_collections(done.stored)


def of_collections(by_collection: Mapping[str, Stored]) -> Iterator[Family]:
    """What collections have stored, as it was after the last round."""
    yield gauge(
        "compaction_debt_bytes",
        "Bytes that merges would read now, by collection.",
        [({"collection": id_}, stored_.debt_bytes) for id_, stored_ in by_collection.items()],
    )
    yield gauge(
        "collection_stored_bytes",
        "Bytes of chunks, by collection.",
        [({"collection": id_}, stored_.bytes) for id_, stored_ in by_collection.items()],
    )
    yield gauge(
        "collection_batches",
        "Batches, by collection: how many parts a read of all of it has.",
        [({"collection": id_}, stored_.batches) for id_, stored_ in by_collection.items()],
    )
