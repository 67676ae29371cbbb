"""Event codec: the only module that knows both the dataclasses and the Avro fields.

`decode` runs for every record of every log, so it builds its values directly. Each kind of
event has one schema; `schemas/CLIENTS.md`, part 1, has the rules of schema evolution.
"""

from collections.abc import Callable, Mapping
from typing import assert_never

from schemas import codec
from schemas.codec import Record
from streams.errors import Corrupt
from streams.ids import CapabilityId, CollectionId, EventId, Offset, Timestamp
from streams.kafka.log import ChunkRef, Range
from streams.progress import EMPTY, Antichain
from streams.storage.log.events import (
    Acquire,
    Advance,
    Append,
    BatchName,
    Body,
    Clone,
    Create,
    Downgrade,
    Drop,
    Event,
    Grant,
    Offsets,
    Part,
    Reclaim,
    Renewal,
    Replace,
    Right,
    Rollup,
    Stage,
    Transfer,
)

ROLLUP = "shard_rollup"


def encode(event: Event) -> bytes:
    """Encode the event as a log record's value."""
    name, fields = body_record(event.body)
    envelope = {"id": event.id, "group": event.group, "seen": event.seen}
    return codec.encode(name, {**envelope, **fields})


def decode(value: bytes) -> Event:
    """Decode the event in a log record's value.

    Errors: Corrupt if the record is of an unknown kind or damaged (rule 11).
    """
    name, record = codec.decode(value)
    make = DECODERS.get(name)
    if make is None:
        raise Corrupt(f"log record: expected an event of a shard, actual {name}")
    return Event(EventId(record["id"]), record["group"], Offset(record["seen"]), make(record))


def body_record(body: Body) -> tuple[str, Record]:
    """Return the schema's name and the fields beside the envelope."""
    match body:
        case Append():
            return "shard_append", append_record(body)
        case Advance(lower, upper):
            return "shard_advance", {"lower": lower, "upper": upper}
        case Create():
            return "shard_create", create_record(body)
        case Replace():
            return "shard_replace", replace_record(body)
        case Acquire() | Clone() | Transfer() | Downgrade() | Drop():
            return right_record(body)
        case Stage() | Reclaim() | Rollup():
            return retention_record(body)
        case _:
            assert_never(body)


def append_record(body: Append) -> Record:
    """The fields of an Append."""
    return {
        "parts": [part_record(part) for part in body.parts],
        "renewals": [renewal_record(renewal) for renewal in body.renewals],
        "read_upto": body.read_upto,
    }


def renewal_record(renewal: Renewal) -> Record:
    """The fields of a renewal."""
    return {
        "collection": renewal.collection,
        "capability": renewal.capability,
        "frontier": renewal.frontier.time,
        "token": renewal.token,
    }


def create_record(body: Create) -> Record:
    """The fields of a Create."""
    return {
        "collection": body.collection,
        "description": body.description,
        "frontier": body.frontier,
        "read": body.read,
        "write": body.write,
        "lease_ms": body.lease_ms,
        "is_write_critical": body.is_write_critical,
    }


def replace_record(body: Replace) -> Record:
    """The fields of a Replace."""
    names = [
        {
            "offset": name.offset,
            "part": name.part,
            "lower": name.lower,
            "upper": frontier_record(name.upper),
        }
        for name in body.replaced
    ]
    return {
        "collection": body.collection,
        "replaced": names,
        "chunks": ranged_records(body.chunks),
        "stages": list(body.stages),
        "since": body.since,
    }


def right_record(body: Grant) -> tuple[str, Record]:
    """The schema and fields of an event about a capability."""
    names: Record = {"collection": body.collection, "capability": body.capability}
    match body:
        case Acquire():
            name, own = "shard_acquire", acquire_record(body)
        case Clone():
            name, own = "shard_clone", {"clone": body.clone, "lease_ms": body.lease_ms}
        case Transfer():
            name, own = "shard_transfer", {"to": body.to}
        case Downgrade():
            own = {"frontier": frontier_record(body.frontier), "plan": body.plan}
            name, own = "shard_downgrade", {**own, "new_token": body.new_token}
        case Drop():
            name, own = "shard_drop", {"whole": body.whole, "sole": body.sole}
        case _:
            assert_never(body)
    return name, {**names, "token": body.token, **own}


def acquire_record(body: Acquire) -> Record:
    """The fields of an Acquire beside its names and token."""
    return {
        "right": body.right.value,
        "frontier": body.frontier,
        "lease_ms": body.lease_ms,
        "plan": body.plan,
    }


def retention_record(body: Stage | Reclaim | Rollup) -> tuple[str, Record]:
    """The schema and fields of an event about chunks."""
    match body:
        case Stage():
            chunks = chunk_records(body.chunks)
            record = {"stage": body.stage, "chunks": chunks, "lease_ms": body.lease_ms}
            return "shard_stage", record
        case Reclaim():
            return "shard_reclaim", {"floor": offset_records(body.floor)}
        case Rollup():
            record = {
                "upto": body.upto,
                "chunks": chunk_records(body.chunks),
                "hash": body.hash,
            }
            return ROLLUP, record
        case _:
            assert_never(body)


def part_record(part: Part) -> Record:
    """One part of an Append."""
    return {
        "collection": part.collection,
        "capability": part.capability,
        "lower": part.lower.time,
        "upper": frontier_record(part.upper),
        "chunks": ranged_records(part.chunks),
        "stages": list(part.stages),
        "from_offsets": offset_records(part.from_offsets),
        "to_offsets": offset_records(part.to_offsets),
        "fingerprint": part.fingerprint,
        "token": part.token,
    }


def frontier_record(value: Antichain) -> int | None:
    """A frontier: its time, or null when it is empty."""
    return None if value.is_empty else value.time


def offset_records(offsets: Offsets | None) -> list[Record] | None:
    """A binding, in the order of partitions."""
    if offsets is None:
        return None
    return [{"partition": offset, "offset": offsets[offset]} for offset in sorted(offsets)]


def chunk_records(chunks: tuple[ChunkRef, ...]) -> list[Record]:
    """References to chunks."""
    return [
        {
            "partition": chunk.partition,
            "offset": chunk.offset,
            "key": chunk.key,
            "checksum": chunk.checksum,
            "rows": chunk.rows,
            "size": chunk.size,
        }
        for chunk in chunks
    ]


def ranged_records(chunks: tuple[ChunkRef, ...]) -> list[Record]:
    """References to chunks, with their ranges if any."""
    records = chunk_records(chunks)
    for chunk, record in zip(chunks, records, strict=True):
        if chunk.ranges:
            record["ranges"] = [
                None if range_ is None else {"low": range_.low, "high": range_.high}
                for range_ in chunk.ranges
            ]
    return records


def to_ranges(records: list[Record | None] | None) -> tuple[Range | None, ...]:
    """The ranges in a field; none if it is null."""
    if records is None:
        return ()
    return tuple(
        None if record is None else Range(record["low"], record["high"]) for record in records
    )


def to_frontier(value: int | None) -> Antichain:
    """The frontier of a field."""
    return EMPTY if value is None else Antichain((Timestamp(value),))


def to_offsets(records: list[Record] | None) -> Offsets | None:
    """The binding of a field."""
    if records is None:
        return None
    return {record["partition"]: record["offset"] for record in records}


def to_chunks(records: list[Record]) -> tuple[ChunkRef, ...]:
    """The references of a field."""
    return tuple([
        ChunkRef(
            record["partition"],
            record["offset"],
            record["key"],
            record["checksum"],
            record["rows"],
            record["size"],
            to_ranges(record.get("ranges")),
        )
        for record in records
    ])  # fmt: skip


def to_part(record: Record) -> Part:
    """One part of an Append."""
    return Part(
        collection=record["collection"],
        capability=record["capability"],
        lower=Antichain((record["lower"],)),
        upper=to_frontier(record["upper"]),
        chunks=to_chunks(record["chunks"]),
        stages=tuple(record["stages"]),
        from_offsets=to_offsets(record["from_offsets"]),
        to_offsets=to_offsets(record["to_offsets"]),
        fingerprint=record["fingerprint"],
        token=record["token"],
    )


def to_append(record: Record) -> Append:
    """An Append."""
    parts = tuple([to_part(part) for part in record["parts"]])
    renewals = tuple([to_renewal(renewal) for renewal in record["renewals"]])
    return Append(parts, record["read_upto"], renewals)


def to_renewal(record: Record) -> Renewal:
    """A capability that an Append presents beside its parts."""
    return Renewal(
        collection=CollectionId(record["collection"]),
        capability=CapabilityId(record["capability"]),
        frontier=Antichain((Timestamp(record["frontier"]),)),
        token=record["token"],
    )


def to_create(record: Record) -> Create:
    """A Create."""
    return Create(
        collection=CollectionId(record["collection"]),
        description=record["description"],
        frontier=Timestamp(record["frontier"]),
        write=CapabilityId(record["write"]),
        read=record["read"],
        lease_ms=record["lease_ms"],
        is_write_critical=record["is_write_critical"],
    )


def to_replace(record: Record) -> Replace:
    """A Replace."""
    names = tuple(
        BatchName(name["offset"], name["part"], name["lower"], to_frontier(name["upper"]))
        for name in record["replaced"]
    )
    return Replace(
        collection=CollectionId(record["collection"]),
        replaced=names,
        chunks=to_chunks(record["chunks"]),
        since=Timestamp(record["since"]),
        stages=tuple(record["stages"]),
    )


def to_acquire(record: Record) -> Acquire:
    """An Acquire."""
    return Acquire(
        collection=CollectionId(record["collection"]),
        capability=CapabilityId(record["capability"]),
        right=Right(record["right"]),
        frontier=record["frontier"],
        lease_ms=record["lease_ms"],
        plan=record["plan"],
        token=record["token"],
    )


def to_clone(record: Record) -> Clone:
    """A Clone."""
    return Clone(
        collection=CollectionId(record["collection"]),
        capability=CapabilityId(record["capability"]),
        clone=CapabilityId(record["clone"]),
        lease_ms=record["lease_ms"],
        token=record["token"],
    )


def to_transfer(record: Record) -> Transfer:
    """A Transfer."""
    return Transfer(
        collection=CollectionId(record["collection"]),
        capability=CapabilityId(record["capability"]),
        to=CapabilityId(record["to"]),
        token=record["token"],
    )


def to_drop(record: Record) -> Drop:
    """A Drop."""
    return Drop(
        CollectionId(record["collection"]),
        record["capability"],
        record["token"],
        record["whole"],
        record["sole"],
    )


def to_downgrade(record: Record) -> Downgrade:
    """A Downgrade."""
    return Downgrade(
        collection=CollectionId(record["collection"]),
        capability=CapabilityId(record["capability"]),
        frontier=to_frontier(record["frontier"]),
        plan=record["plan"],
        token=record["token"],
        new_token=record["new_token"],
    )


def to_rollup(record: Record) -> Rollup:
    """A Rollup."""
    return Rollup(
        upto=Offset(record["upto"]), chunks=to_chunks(record["chunks"]), hash=record["hash"]
    )


def to_stage(record: Record) -> Stage:
    """A Stage."""
    chunks = to_chunks(record["chunks"])
    return Stage(stage=record["stage"], chunks=chunks, lease_ms=record["lease_ms"])


DECODERS: Mapping[str, Callable[[Record], Body]] = {
    "shard_append": to_append,
    "shard_advance": lambda record: Advance(
        Timestamp(record["lower"]), Timestamp(record["upper"])
    ),
    "shard_create": to_create,
    "shard_stage": to_stage,
    "shard_reclaim": lambda record: Reclaim(to_offsets(record["floor"]) or {}),
    "shard_replace": to_replace,
    "shard_acquire": to_acquire,
    "shard_clone": to_clone,
    "shard_transfer": to_transfer,
    "shard_downgrade": to_downgrade,
    "shard_drop": to_drop,
    ROLLUP: to_rollup,
}
