"""Codec of commands and responses: Avro bytes to dataclasses and back. Pure.

The schemas are `schemas/avro/command_*.avsc`; `schemas/CLIENTS.md` tells clients how to use
them.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from schemas import codec
from schemas.codec import Record
from streams.errors import Corrupt, InvalidUsage
from streams.ids import CapabilityId, CollectionId, Offset, Timestamp, Topic
from streams.kafka.log import ChunkRef
from streams.progress import Antichain
from streams.storage.client.handles import (
    Capability,
    ReadCapability,
    WriteCapability,
    right_of,
)
from streams.storage.log.event_codec import (
    chunk_records,
    frontier_record,
    to_chunks,
    to_frontier,
)
from streams.storage.read.options import Value
from streams.storage.read.reader import Piece

LONGEST_ID = 100
"""Longest id of a command, in characters."""


class Malformed(InvalidUsage):
    """The record is no command, so there is no client to answer."""


@dataclass(frozen=True, slots=True)
class Create:
    """Bind an id; `description` is JSON."""

    collection: CollectionId
    description: str
    start: int
    group: str
    lease_ms: int | None
    is_critical: bool


@dataclass(frozen=True, slots=True)
class SubscribeAt:
    """Read the contents at the capability's frontier, and the log position to continue from."""

    capability: Capability
    after: Timestamp | None
    until: Timestamp | None
    where: tuple[tuple[str, str, Value], ...]


@dataclass(frozen=True, slots=True)
class Share:
    """One collection's part of an update; `updates` is an Arrow IPC stream."""

    capability: Capability
    updates: bytes | None
    chunks: tuple[ChunkRef, ...]
    new_frontier: Antichain


@dataclass(frozen=True, slots=True)
class UpdateAndDowngrade:
    """Write several collections, all or none."""

    shares: tuple[Share, ...]
    checks_counts: bool


@dataclass(frozen=True, slots=True)
class Stage:
    """Protect chunks that were written beforehand; without chunks, renew the lease."""

    capability: Capability
    stage: str
    chunks: tuple[ChunkRef, ...]
    lease_ms: int | None


@dataclass(frozen=True, slots=True)
class AcquireCapabilities:
    """Acquire a read and a write capability."""

    collection: CollectionId
    lease_ms: int | None
    is_critical: bool
    token: str


@dataclass(frozen=True, slots=True)
class Clone:
    """Create a second capability with the same rights."""

    capability: Capability
    lease_ms: int | None


@dataclass(frozen=True, slots=True)
class Transfer:
    """Give a capability another name."""

    capability: Capability


@dataclass(frozen=True, slots=True)
class Downgrade:
    """Move a capability forward."""

    capability: Capability
    new_frontier: Antichain
    new_token: str | None


@dataclass(frozen=True, slots=True)
class Drop:
    """Give up a capability and, if `whole`, the collection with it."""

    collection: CollectionId
    capability: Capability | None
    whole: bool


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Renew a lease."""

    capability: Capability


Command = (
    Create
    | SubscribeAt
    | UpdateAndDowngrade
    | Stage
    | AcquireCapabilities
    | Clone
    | Transfer
    | Downgrade
    | Drop
    | Heartbeat
)


@dataclass(frozen=True, slots=True)
class Request:
    """A record of the command topic that holds a command."""

    id: str
    offset: Offset
    checksum: int
    command: Command


def decode(offset: Offset, value: bytes) -> Request:
    """Decode the command in a record. Errors: Malformed."""
    try:
        name, record = codec.decode(value)
    except Corrupt as cause:
        raise Malformed(f"record at offset {offset}: {cause}") from cause
    except Exception as cause:
        # the topic is open to any writer: no record may stop the service
        raise Malformed(f"record at offset {offset}: {cause!r}") from cause
    make = DECODERS.get(name)
    if make is None:
        raise Malformed(f"record at offset {offset}: expected a command, actual {name}")
    if not 1 <= len(record["id"]) <= LONGEST_ID:
        raise Malformed(
            f"record at offset {offset}: expected an id of 1 to {LONGEST_ID} characters,"
            f" actual {len(record['id'])}"
        )
    return Request(record["id"], offset, zlib.crc32(value), make(record))


def id_of(value: bytes) -> str:
    """Return the command's id without decoding the rest; "" if there is none.

    It is the first field of every command: a length in zigzag, which is one byte up to 63, and
    UTF-8.
    """
    if codec.name_of(value) not in DECODERS:
        return ""
    body = value[codec.HEADER_SIZE : codec.HEADER_SIZE + 2 + 4 * LONGEST_ID]
    length, taken = 0, 0
    for taken, byte in enumerate(body[:2], 1):
        length |= (byte & 0x7F) << 7 * (taken - 1)
        if byte < 1 << 7:
            break
    size = length >> 1
    bytes_ = body[taken : taken + size]
    try:
        text = bytes_.decode()
    except UnicodeDecodeError:
        return ""
    is_whole = length % 2 == 0 and len(bytes_) == size
    return text if is_whole and len(text) <= LONGEST_ID else ""


def to_capability(record: Record) -> Capability:
    """Return a capability from its fields."""
    kind = ReadCapability if record["right"] == "READ" else WriteCapability
    return kind(
        CollectionId(record["collection"]),
        to_frontier(record["frontier"]),
        CapabilityId(record["name"]),
        record["token"],
    )


def capability_record(capability: Capability) -> Record:
    """Return the fields of a capability."""
    return {
        "collection": capability.id,
        "right": right_of(capability).value,
        "frontier": frontier_record(capability.frontier),
        "name": capability.name,
        "token": capability.token,
    }


def _create(record: Record) -> Command:
    return Create(
        record["collection"],
        record["description"],
        record["start"],
        record["collection"] if record["group"] is None else record["group"],
        record["lease_ms"],
        record["critical"],
    )


def _subscribe_at(record: Record) -> Command:
    where = tuple(
        (comparison["column"], comparison["operator"], comparison["value"])
        for comparison in record["where"]
    )
    capability = to_capability(record["capability"])
    return SubscribeAt(capability, record["after"], record["until"], where)


def _update(record: Record) -> Command:
    shares = tuple(
        Share(
            to_capability(write["capability"]),
            write["updates"],
            to_chunks(write["chunks"]),
            to_frontier(write["new_frontier"]),
        )
        for write in record["writes"]
    )
    return UpdateAndDowngrade(shares, record["check_counts"])


def _stage(record: Record) -> Command:
    return Stage(
        to_capability(record["capability"]),
        record["stage"],
        to_chunks(record["chunks"]),
        record["lease_ms"],
    )


def _acquire(record: Record) -> Command:
    return AcquireCapabilities(
        record["collection"], record["lease_ms"], record["critical"], record["token"]
    )


def _downgrade(record: Record) -> Command:
    return Downgrade(
        to_capability(record["capability"]),
        to_frontier(record["new_frontier"]),
        record["new_token"],
    )


def _drop(record: Record) -> Command:
    capability = record["capability"]
    presented = None if capability is None else to_capability(capability)
    return Drop(record["collection"], presented, record["whole"])


DECODERS: Mapping[str, Callable[[Record], Command]] = {
    "command_create": _create,
    "command_subscribe_at": _subscribe_at,
    "command_update_and_downgrade": _update,
    "command_stage": _stage,
    "command_acquire_capabilities": _acquire,
    "command_clone": lambda record: Clone(
        to_capability(record["capability"]), record["lease_ms"]
    ),
    "command_transfer": lambda record: Transfer(to_capability(record["capability"])),
    "command_downgrade": _downgrade,
    "command_drop": _drop,
    "command_heartbeat": lambda record: Heartbeat(to_capability(record["capability"])),
}


class Status(StrEnum):
    """The status of a response."""

    DONE = "DONE"
    LOST = "LOST"
    REFUSED = "REFUSED"
    FAILED = "FAILED"
    MALFORMED = "MALFORMED"
    REPEATED = "REPEATED"


@dataclass(frozen=True, slots=True)
class Cut:
    """The chunks of a collection at a time: the result of a SubscribeAt."""

    since: Antichain
    upper: Antichain
    topic: Topic
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Current:
    """The present frontier of a capability that another holder has moved."""

    collection: CollectionId
    frontier: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a command."""

    status: Status
    code: str = ""
    message: str = ""
    capabilities: tuple[Capability, ...] = ()
    current: Current | None = None
    cut: Cut | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """The response to the record at `offset`; `command` is empty if that was no command."""

    command: str
    origin: str
    offset: Offset
    checksum: int
    outcome: Outcome


def encode(response: Response) -> bytes:
    """Encode the response as a record's value."""
    outcome = response.outcome
    problem = {"code": outcome.code, "message": outcome.message} if outcome.code else None
    current = outcome.current
    return codec.encode(
        "command_response",
        {
            "command": response.command,
            "origin": response.origin,
            "offset": response.offset,
            "checksum": response.checksum,
            "status": outcome.status.value,
            "error": problem,
            "capabilities": [
                capability_record(capability) for capability in outcome.capabilities
            ],
            "current": None
            if current is None
            else {
                "collection": current.collection,
                "frontier": frontier_record(current.frontier),
            },
            "cut": None if outcome.cut is None else cut_record(outcome.cut),
        },
    )


def cut_record(cut: Cut) -> Record:
    """Return the fields of a cut."""
    references = chunk_records(tuple(piece.ref for piece in cut.pieces))
    return {
        "since": frontier_record(cut.since),
        "upper": frontier_record(cut.upper),
        "topic": cut.topic,
        "chunks": [
            {**reference, "lower": piece.lower, "upper": piece.upper}
            for reference, piece in zip(references, cut.pieces, strict=True)
        ],
    }
