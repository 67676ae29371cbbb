"""Rollup codec: the whole state of a group as bytes, with a hash that followers check (rule 8).

The body is one Avro message, cut into chunks of the data topic. All folds of the same log
encode to the same bytes: maps are written in the order of their keys, batches in the order of
the events that made them, and the in-memory representation is left out. So the hash is a hash
of the state, and a different hash means that one of the folds is wrong.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from operator import attrgetter

from schemas import codec
from schemas.chunk import LIMIT
from schemas.codec import Record
from streams.errors import Corrupt
from streams.ids import CollectionId, Offset
from streams.storage.log import outcome_codec
from streams.storage.log.batches import Batch, trace_of
from streams.storage.log.dedup_window import (
    RecentOutcomes,
    RecordedOutcome,
    RememberedOutcomes,
    Window,
    earlier_of,
)
from streams.storage.log.event_codec import (
    chunk_records,
    frontier_record,
    offset_records,
    ranged_records,
    to_chunks,
    to_frontier,
    to_offsets,
)
from streams.storage.log.events import Right, Rollup
from streams.storage.log.persistent_map import Map
from streams.storage.log.state import (
    Capabilities,
    Capability,
    Collections,
    CollectionState,
    StagedChunks,
    State,
    Superseded,
    all_lease_ends,
    collections_of,
)

SCHEMA = "shard_state"
OUTCOMES = frozenset({"decided", "kept"})
"""The fields of a state that are decoded only when an outcome is looked up."""


def encode(state: State) -> bytes:
    """Encode the state: equal states give equal bytes."""
    live, dropped = state.collections.live, sorted(state.collections.dropped)
    collections = [live[id_] for id_ in sorted(live)]
    stages = sorted(state.stages.items())
    record = {
        "group": state.group,
        "upto": state.upto,
        "clock_ms": state.clock_ms,
        "appended_ms": state.appended_ms,
        "collections": [collection_record(collection) for collection in collections],
        "dropped": dropped,
        "decided": [
            outcome_codec.to_record(stage) for stage in state.window.remembered(state.upto)
        ],
        "kept": [outcome_codec.to_record(stage) for stage in state.kept],
        "floor": offset_records(state.floor),
        "stages": [
            {
                "name": name,
                "chunks": chunk_records(stage.chunks),
                "expires_ms": stage.expires_ms,
            }
            for name, stage in stages
        ],
        "superseded": [
            {"offset": stage.offset, "chunks": chunk_records(stage.chunks)}
            for stage in state.superseded
        ],
        "rollups": [
            {"upto": rollup.upto, "chunks": chunk_records(rollup.chunks), "hash": rollup.hash}
            for rollup in state.rollups
        ],
    }
    return codec.encode(SCHEMA, record)


def hash_of(body: bytes) -> str:
    """Return the hash that a Rollup carries."""
    return hashlib.sha256(body).hexdigest()


def cut(body: bytes) -> list[tuple[bytes, int]]:
    """Cut the body into chunks; they hold no rows of a collection."""
    return [(body[start : start + LIMIT], 0) for start in range(0, len(body), LIMIT)]


def join(event: Rollup, bodies: Sequence[bytes]) -> State:
    """Return the state in a Rollup's chunks.

    Errors: Corrupt if they do not match the event.
    """
    body = b"".join(bodies)
    actual = hash_of(body)
    if actual != event.hash:
        raise Corrupt(f"rollup at {event.upto}: expected hash {event.hash}, actual {actual}")
    state = decode(body)
    if state.upto != event.upto:
        raise Corrupt(f"rollup: expected upto {event.upto}, actual {state.upto}")
    return state


def decode(body: bytes) -> State:
    """Return the state in these bytes.

    Errors: Corrupt if they do not encode a state.
    """
    name, record = codec.decode(body, leave_out=OUTCOMES)
    if name != SCHEMA:
        raise Corrupt(f"rollup: expected a {SCHEMA}, actual a {name}")
    decoded = collections_of(to_collection(collection) for collection in record["collections"])
    fresh = Map({CollectionId(id_): True for id_ in record["dropped"]})
    collections = Collections(decoded.live, decoded.dropped.update(fresh))
    stages = {
        stage["name"]: StagedChunks(to_chunks(stage["chunks"]), stage["expires_ms"])
        for stage in record["stages"]
    }
    return State(
        group=record["group"],
        upto=record["upto"],
        clock_ms=record["clock_ms"],
        appended_ms=record["appended_ms"],
        collections=collections,
        window=Window(earlier=remembered_outcomes(body, "decided", record["upto"])),
        kept=RecentOutcomes(earlier=remembered_outcomes(body, "kept", record["upto"])),
        floor=to_offsets(record["floor"]) or {},
        stages=stages,
        superseded=tuple(
            Superseded(batch["offset"], to_chunks(batch["chunks"]))
            for batch in record["superseded"]
        ),
        rollups=tuple(
            Rollup(upto=rollup["upto"], chunks=to_chunks(rollup["chunks"]), hash=rollup["hash"])
            for rollup in record["rollups"]
        ),
        lease_ends=all_lease_ends(collections.live, stages),
    )


def remembered_outcomes(body: bytes, field: str, upto: Offset) -> RememberedOutcomes:
    """Return the remembered outcomes in a field of the body, decoded at the first lookup."""

    @cache
    def read() -> tuple[RecordedOutcome, ...]:
        _, record = codec.decode(body)
        return tuple(outcome_codec.from_record(decision) for decision in record[field])

    return earlier_of(upto, read, lambda id_: id_.encode() in body)


def collection_record(collection: CollectionState) -> Record:
    """Return one collection's fields."""
    ordered = sorted(collection.batches, key=attrgetter("offset", "part"))
    return {
        "id": collection.id,
        "description": collection.description,
        "since": frontier_record(collection.since),
        "upper": frontier_record(collection.upper),
        "batches": [batch_record(batch) for batch in ordered],
        "capabilities": [
            {
                "id": id_,
                "right": capability.right.value,
                "frontier": capability.frontier.time,
                "plan": capability.plan,
                "lease_ms": capability.lease_ms,
                "expires_ms": capability.expires_ms,
                "token": capability.token,
            }
            for id_, capability in sorted(collection.capabilities.items())
        ],
        "source": offset_records(collection.source),
        "fingerprint": collection.fingerprint,
        "fenced": sorted(collection.fenced),
        "changed": collection.changed,
        "released": collection.is_released,
        "sealing": collection.is_sealing,
    }


def batch_record(batch: Batch) -> Record:
    """Return one batch's fields."""
    return {
        "offset": batch.offset,
        "part": batch.part,
        "lower": batch.lower,
        "upper": frontier_record(batch.upper),
        "since": batch.since,
        "chunks": ranged_records(batch.chunks),
        "source": offset_records(batch.source),
    }


def to_collection(record: Record) -> CollectionState:
    """Return a collection from its fields."""
    capabilities = {
        capability["id"]: Capability(
            Right(capability["right"]),
            to_frontier(capability["frontier"]),
            capability["plan"],
            capability["lease_ms"],
            capability["expires_ms"],
            capability["token"],
        )
        for capability in record["capabilities"]
    }
    return CollectionState(
        id=record["id"],
        description=record["description"],
        since=to_frontier(record["since"]),
        upper=to_frontier(record["upper"]),
        batches=trace_of([to_batch(batch) for batch in record["batches"]]),
        capabilities=Capabilities(capabilities),
        source=to_offsets(record["source"]),
        fingerprint=record["fingerprint"],
        fenced=frozenset(record["fenced"]),
        changed=record["changed"],
        is_released=record["released"],
        is_sealing=record["sealing"],
    )


def to_batch(record: Record) -> Batch:
    """Return a batch from its fields."""
    return Batch(
        record["lower"],
        to_frontier(record["upper"]),
        to_chunks(record["chunks"]),
        record["offset"],
        record["part"],
        record["since"],
        to_offsets(record["source"]),
    )
