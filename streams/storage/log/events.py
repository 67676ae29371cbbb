"""The events in a log. Each is a request by its writer; the fold decides it.

An event is an *attempt*. The fold decides whether it counts (`streams.storage.log.machine`), so
nothing here tells the outcome. All kinds share the envelope `Event`:

- `id` names the attempt. A writer in doubt sends the identical event again; the first copy in
  log order decides and the others change nothing (rule 1).
- `group` is the UUID of the group, so that an event for a deleted topic does not count in a new
  topic of the same name (rule 12).
- `seen` is the last offset that the writer had folded. By it the fold recognises a copy that
  arrives after its outcome was forgotten as stale (rule 1).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from streams.ids import CapabilityId, CollectionId, EventId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import Antichain
from streams.values import value

Offsets = Mapping[int, int]
"""The next offset to read in each partition of a raw topic."""


def system_capability(owner: str, *role: str) -> CapabilityId:
    """Return the name of a capability of the system, which is a function of ids.

    A client that knows the ids knows the name, so it is no secret and gives no right: commands
    refuse every name with a dot (`is_system`), and the names of clients are random, without
    a dot.
    """
    return CapabilityId(".".join((owner, *role)))


def is_system(capability: CapabilityId) -> bool:
    """Tell whether the name was made by `system_capability`; clients get no such name."""
    return "." in capability


def write_capability(collection: CollectionId) -> CapabilityId:
    """Return the name of the write capability of the system (rule 3)."""
    return system_capability(collection, "write")


class Right(Enum):
    """The kind of a capability."""

    READ = "READ"
    WRITE = "WRITE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Bind an id to a description. Since and upper both start at `frontier`.

    `write` names the write capability that comes with it (rule 3); `read`, when given, the read
    capability of the catalog object (rule 4). Both are critical, or leased for `lease_ms`; with
    `is_write_critical` that is the read capability's lease alone.
    """

    collection: CollectionId
    description: str
    frontier: Timestamp
    write: CapabilityId
    read: CapabilityId | None = None
    lease_ms: int | None = None
    is_write_critical: bool = False


@value(frozen=True, slots=True, kw_only=True)
class Part:
    """One collection's share of an Append: chunks, and the interval [lower, upper) they fill.

    `from_offsets` and `to_offsets` continue a source binding (rule 18), both or neither.
    `fingerprint` names the computation that made the updates; it is empty if none did. A new
    fingerprint fences the previous one permanently, so a return to an older version needs a new
    fingerprint (rule 24). `token` is the token of the capability, if it has one.
    """

    collection: CollectionId
    capability: CapabilityId
    lower: Antichain
    upper: Antichain
    chunks: tuple[ChunkRef, ...] = ()
    stages: tuple[str, ...] = ()
    from_offsets: Offsets | None = None
    to_offsets: Offsets | None = None
    fingerprint: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """A write capability whose lease an Append renews without moving it."""

    collection: CollectionId
    capability: CapabilityId
    frontier: Antichain
    token: str = ""


@value(frozen=True, slots=True)
class Append:
    """Link chunks and move uppers; every part counts or none does.

    Its `renewals` have to be live and at the given frontiers; their leases are renewed.

    `read_upto`, when given, is the log offset up to which the writer has read the collections.
    The Append counts only if no updates were linked to them after it (rule 28).
    """

    parts: tuple[Part, ...]
    read_upto: Offset | None = None
    renewals: tuple[Renewal, ...] = ()


@value(frozen=True, slots=True)
class Advance:
    """Move all idle collections of a group to `upper` (rule 14).

    Each collection whose system write capability stands at `lower` or before moves to `upper`,
    as by an empty Append. The fold skips collections that the system does not write, that it
    has written beyond `lower`, and that another write capability holds below `upper`.
    """

    lower: Timestamp
    upper: Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Protect chunks under a name before an Append links them (rule 7).

    A second Stage of the same name adds its chunks and renews the lease.
    """

    stage: str
    chunks: tuple[ChunkRef, ...]
    lease_ms: int


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Raise the floor of data partitions: chunks below it are free unless named (rule 7)."""

    floor: Mapping[int, int]


@dataclass(frozen=True, slots=True, order=True)
class BatchName:
    """A batch as a compactor saw it: the place of the event that made it, and its interval.

    The interval is part of the name, because an empty batch grows in place.
    """

    offset: Offset
    part: int
    lower: Timestamp
    upper: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """Swap contiguous batches for one over their union, its times advanced to `since`.

    The chunks of `stages` follow its own, so a batch can have more chunks than an event can
    name.
    """

    collection: CollectionId
    replaced: tuple[BatchName, ...]
    chunks: tuple[ChunkRef, ...]
    since: Timestamp
    stages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire:
    """Create a capability: a read one at `frontier` or since, a write one at upper.

    `plan` is the oldest log offset whose chunks its holder still reads, None when it reads none
    (rule 10). Without a lease the capability is critical: it never expires. A capability with a
    `token` can be used only with the token that it has at that moment.
    """

    collection: CollectionId
    capability: CapabilityId
    right: Right
    frontier: Timestamp | None = None
    lease_ms: int | None = None
    plan: Offset | None = None
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """Create a second capability with the kind, frontier, lease and token of a live one.

    `lease_ms`, when given, is the lease of the clone. A critical capability can have leased
    clones; a leased one cannot have critical clones.
    """

    collection: CollectionId
    capability: CapabilityId
    clone: CapabilityId
    lease_ms: int | None = None
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Give a live capability another id; the old id is void."""

    collection: CollectionId
    capability: CapabilityId
    to: CapabilityId
    token: str = ""


@value(frozen=True, slots=True, kw_only=True)
class Downgrade:
    """Move a capability forward to `frontier`, renew its lease and move its plan.

    A frontier that the capability has passed moves nothing, so this is the heartbeat too. A
    write capability that moves says that nothing happened in between. `new_token`, when given,
    replaces `token`, and a holder of the old one is fenced; a frontier that the capability
    has passed is then misuse.
    """

    collection: CollectionId
    capability: CapabilityId
    frontier: Antichain
    plan: Offset | None = None
    token: str = ""
    new_token: str | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop a capability; with none named, drop the collection, which ends all reads.

    Dropping the last write capability seals the collection (rule 3). Dropping the last read
    capability leaves since where it is (rule 4). A `whole` Drop releases the collection
    besides: since is empty as soon as no read capability is left, dropped or expired. With
    `sole` the event counts only if no other write capability is live. Only the system drops a
    collection without a capability, which voids what others hold.
    """

    collection: CollectionId
    capability: CapabilityId | None = None
    token: str = ""
    whole: bool = False
    sole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    """The state at `upto` was written to the data topic; `hash` is of its bytes (rule 8)."""

    upto: Offset
    chunks: tuple[ChunkRef, ...]
    hash: str


Grant = Acquire | Clone | Transfer | Downgrade | Drop
"""Events about one capability."""

Body = Create | Append | Advance | Stage | Reclaim | Replace | Grant | Rollup


@value(frozen=True, slots=True)
class Event:
    """An attempt in a log."""

    id: EventId
    group: str
    seen: Offset
    body: Body
