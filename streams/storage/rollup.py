"""A Rollup's body: the whole state of a group as bytes, and the hash everybody checks (rule 8).

The body is one Avro message, cut into chunks of the data topic. Two folders that read the same
log make the same bytes: maps are written in the order of their keys, batches in the order of
the events that made them, and how this process keeps them in memory is left out. So the hash
is a hash of the state, and one that differs says that somebody folded wrongly.
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
from streams.storage import decided
from streams.storage.batches import Batch, Trace, trace_of
from streams.storage.events import Right, Rollup
from streams.storage.machine import first_expiry
from streams.storage.maps import Map
from streams.storage.records import (
    chunk_records,
    frontier_record,
    has_ranges,
    offset_records,
    ranged_records,
    to_chunks,
    to_frontier,
    to_offsets,
)
from streams.storage.state import (
    Capabilities,
    Capability,
    Collections,
    CollectionState,
    StagedChunks,
    State,
    Superseded,
    collections_of,
)
from streams.storage.window import Decided, Earlier, Kept, Window, earlier_of

SCHEMA = "shard_state"
WIDER = "shard_state_2"
"""The form of a state in which some capability has a token or some linked chunk ranges; the
oldest that holds a state is taken, so that equal states go on having equal bytes.
"""

KEEPING = "shard_state_3"
"""The form of a state that keeps outcomes of commands; it has all that `WIDER` has."""

OUTCOMES = frozenset({"decided", "kept"})
"""The fields of a state that are read when somebody asks for an outcome."""

LAGGING = "shard_state_4"
"""The form of a state whose clock is not at the last append time; it has all that `KEEPING`
has. In the others both are one number.
"""

RELEASING = "shard_state_5"
"""The form of a state that has ids of dropped collections, a collection that is released, or
one whose `changed` is not what its batches say; it has all that `LAGGING` has.
"""

SEALING = "shard_state_6"
"""The form of a state with a collection that is sealing; it has all that `RELEASING` has."""

FORMS = frozenset({SCHEMA, WIDER, KEEPING, LAGGING, RELEASING, SEALING})


def encode(state: State) -> bytes:
    """The state as bytes: equal for equal states."""
    live, dropped = state.collections.live, sorted(state.collections.dropped)
    collections = [live[id_] for id_ in sorted(live)]
    stages = sorted(state.stages.items())
    record = {  # older forms leave out what they do not have
        "group": state.group,
        "upto": state.upto,
        "clock_ms": state.clock_ms,
        "appended_ms": state.appended_ms,
        "collections": [collection_record(each) for each in collections],
        "dropped": dropped,
        "decided": [decided.to_record(each) for each in state.window.remembered(state.upto)],
        "kept": [decided.to_record(each) for each in state.kept],
        "floor": offset_records(state.floor),
        "stages": [
            {"name": name, "chunks": chunk_records(each.chunks), "expires_ms": each.expires_ms}
            for name, each in stages
        ],
        "superseded": [
            {"offset": each.offset, "chunks": chunk_records(each.chunks)}
            for each in state.superseded
        ],
        "rollups": [
            {"upto": each.upto, "chunks": chunk_records(each.chunks), "hash": each.hash}
            for each in state.rollups
        ],
    }
    return codec.encode(form_of(state), record)


def form_of(state: State) -> str:
    """The oldest form that says all of the state."""
    collections = state.collections.live.values()
    if any(each.is_sealing for each in collections):
        return SEALING
    if state.collections.dropped or any(needs_releasing(each) for each in collections):
        return RELEASING
    if state.appended_ms != state.clock_ms:
        return LAGGING
    if any(True for _ in state.kept):
        return KEEPING
    return WIDER if any(needs_wider(each) for each in collections) else SCHEMA


def needs_wider(collection: CollectionState) -> bool:
    """Whether the collection has something that the older form cannot say."""
    has_token = any(each.token for each in collection.capabilities.values())
    return has_token or any(has_ranges(batch.chunks) for batch in collection.batches)


def needs_releasing(collection: CollectionState) -> bool:
    """Whether the collection has something that no form before `RELEASING` can say."""
    return collection.is_released or collection.changed != last_linked(collection.batches)


def last_linked(batches: Trace) -> Offset | None:
    """Where the newest batch with chunks was made: `changed`, unless a merge cancelled all."""
    return max((batch.offset for batch in batches if batch.chunks), default=None)


def hash_of(body: bytes) -> str:
    """The hash that a Rollup carries."""
    return hashlib.sha256(body).hexdigest()


def cut(body: bytes) -> list[tuple[bytes, int]]:
    """The body in chunks; they hold no rows of a collection."""
    return [(body[start : start + LIMIT], 0) for start in range(0, len(body), LIMIT)]


def join(event: Rollup, bodies: Sequence[bytes]) -> State:
    """The state that a Rollup's chunks hold.

    Errors: Corrupt when they are not what the event says.
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
    """The state in these bytes.

    Errors: Corrupt when they are no state.
    """
    name, record = codec.decode(body, leave_out=OUTCOMES)
    if name not in FORMS:
        raise Corrupt(f"rollup: expected a {SCHEMA}, actual a {name}")
    known = collections_of(to_collection(each) for each in record["collections"])
    fresh = Map({CollectionId(id_): True for id_ in record.get("dropped", ())})
    collections = Collections(known.live, known.dropped.update(fresh))
    stages = {
        each["name"]: StagedChunks(to_chunks(each["chunks"]), each["expires_ms"])
        for each in record["stages"]
    }
    return State(
        group=record["group"],
        upto=record["upto"],
        clock_ms=record["clock_ms"],
        appended_ms=record["appended_ms"] if "appended_ms" in record else record["clock_ms"],
        collections=collections,
        window=Window(earlier=earlier(body, "decided", record["upto"])),
        kept=Kept(earlier=earlier(body, "kept", record["upto"])),
        floor=to_offsets(record["floor"]) or {},
        stages=stages,
        superseded=tuple(
            Superseded(each["offset"], to_chunks(each["chunks"]))
            for each in record["superseded"]
        ),
        rollups=tuple(
            Rollup(upto=each["upto"], chunks=to_chunks(each["chunks"]), hash=each["hash"])
            for each in record["rollups"]
        ),
        next_expiry_ms=first_expiry(collections.live, stages),
    )


def earlier(body: bytes, field: str, upto: Offset) -> Earlier:
    """The outcomes that the body remembers in a field, to be read when somebody asks."""

    @cache
    def read() -> tuple[Decided, ...]:
        _, record = codec.decode(body)
        return tuple(decided.from_record(each) for each in record.get(field, ()))

    return earlier_of(upto, read, lambda id_: id_.encode() in body)


def collection_record(collection: CollectionState) -> Record:
    """One collection's fields."""
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
                "right": each.right.value,
                "frontier": each.frontier.time,
                "plan": each.plan,
                "lease_ms": each.lease_ms,
                "expires_ms": each.expires_ms,
                "token": each.token,
            }
            for id_, each in sorted(collection.capabilities.items())
        ],
        "source": offset_records(collection.source),
        "fingerprint": collection.fingerprint,
        "fenced": sorted(collection.fenced),
        "changed": collection.changed,
        "released": collection.is_released,
        "sealing": collection.is_sealing,
    }


def batch_record(batch: Batch) -> Record:
    """One batch's fields."""
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
    """A collection from its fields."""
    capabilities = {
        each["id"]: Capability(
            Right(each["right"]),
            to_frontier(each["frontier"]),
            each["plan"],
            each["lease_ms"],
            each["expires_ms"],
            each.get("token", ""),
        )
        for each in record["capabilities"]
    }
    batches = trace_of([to_batch(each) for each in record["batches"]])
    return CollectionState(
        id=record["id"],
        description=record["description"],
        since=to_frontier(record["since"]),
        upper=to_frontier(record["upper"]),
        batches=batches,
        capabilities=Capabilities(capabilities),
        source=to_offsets(record["source"]),
        fingerprint=record["fingerprint"],
        fenced=frozenset(record["fenced"]),
        changed=record["changed"] if "changed" in record else last_linked(batches),
        is_released=record.get("released", False),
        is_sealing=record.get("sealing", False),
    )


def to_batch(record: Record) -> Batch:
    """A batch from its fields."""
    return Batch(
        record["lower"],
        to_frontier(record["upper"]),
        to_chunks(record["chunks"]),
        record["offset"],
        record["part"],
        record["since"],
        to_offsets(record["source"]),
    )
