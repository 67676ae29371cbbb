"""What a log holds: events, each naming what its writer wants, none of them yet decided.

An event is an *attempt*. Whether it counts is decided by the fold when it reaches the event
(`streams.storage.machine`), so nothing here says what came of it. `Event` is the envelope that
all kinds share:

- `id` names the attempt. A writer in doubt sends the identical event again; the first copy in
  log order decides and the others change nothing (rule 1).
- `group` is the UUID of the group, so that an event cannot be taken for one of a topic of the
  same name (rule 12).
- `seen` is the last offset the writer had folded, so that a copy which surfaces long after
  its outcome was forgotten is known to be stale (rule 1).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from streams.ids import CapabilityId, CollectionId, EventId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import Antichain
from streams.values import value

Offsets = Mapping[int, int]
"""The next offset to read of each partition of a raw topic."""


def system_capability(owner: str, *role: str) -> CapabilityId:
    """The name of a capability that the system keeps to itself: a function of ids.

    So whoever knows the ids knows the name. It is no secret and need not be one: a name with a
    dot is honoured in no command (`is_system`), and those of clients are random, without one.
    """
    return CapabilityId(".".join((owner, *role)))


def is_system(capability: CapabilityId) -> bool:
    """Whether the name is one of `system_capability`'s, which no client was given."""
    return "." in capability


def write_capability(collection: CollectionId) -> CapabilityId:
    """The write capability by which the system itself writes to a collection (rule 3)."""
    return system_capability(collection, "write")


class Right(Enum):
    """What a capability entitles to."""

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
    `fingerprint` is empty where no computation made the updates. One that the log has not seen
    takes over from the one before, which is fenced for ever: to go back to an older version is
    to take over once more, under a fingerprint of its own (rule 24). `token` is what the
    capability is fenced by, if it is.
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
    """A write capability that an Append presents beside its parts, and does not move."""

    collection: CollectionId
    capability: CapabilityId
    frontier: Antichain
    token: str = ""


@value(frozen=True, slots=True)
class Append:
    """Link chunks and move uppers; every part counts or none does.

    Its `renewals` have to be valid as well, where they say; their leases begin anew.

    `read_upto`, when given, says that its writer has looked at the collections up to this
    offset of the log and that the updates hang on what was there: it counts only if no updates
    were linked to them since (rule 28).
    """

    parts: tuple[Part, ...]
    read_upto: Offset | None = None
    renewals: tuple[Renewal, ...] = ()


@value(frozen=True, slots=True)
class Advance:
    """Say of a whole group that nothing happens in [lower, upper) any more (rule 14).

    Every collection whose system write capability stands at `lower` or before goes on to
    `upper`, as if by an empty Append. Passed over are those that the system does not write,
    that it has written beyond `lower` already, or that another write capability, below `upper`,
    keeps back.
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
    """A batch as a compactor saw it: where it was made and what it covers.

    The bounds are part of the name because an empty batch grows in place.
    """

    offset: Offset
    part: int
    lower: Timestamp
    upper: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """Swap contiguous batches for one over their union, its times advanced to `since`.

    The chunks of `stages` come after its own; so a batch may have more than an event can name.
    """

    collection: CollectionId
    replaced: tuple[BatchName, ...]
    chunks: tuple[ChunkRef, ...]
    since: Timestamp
    stages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire:
    """Make a capability: a read one at `frontier` or since, a write one at upper.

    `plan` is the oldest log offset whose chunks its holder still reads, None when it reads none
    (rule 10). Without a lease the capability is critical: it never expires. A `token` fences
    it: whoever exercises the capability presents the token that it has at that moment.
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
    """Make a second capability with the rights of a live one: kind, frontier, lease, token.

    `lease_ms`, when given, is the clone's lease: a critical capability may have leased clones,
    and never the other way round.
    """

    collection: CollectionId
    capability: CapabilityId
    clone: CapabilityId
    lease_ms: int | None = None
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Give a live capability another id: whoever held it under the old one holds it no more."""

    collection: CollectionId
    capability: CapabilityId
    to: CapabilityId
    token: str = ""


@value(frozen=True, slots=True, kw_only=True)
class Downgrade:
    """Move a capability forward, to `frontier`; renews its lease and moves its plan.

    A frontier that it has already passed moves nothing, so this is the heartbeat too. For a
    write capability it says that nothing happened in between. `new_token`, when given, is
    compared and set: it takes the place of `token`, and whoever presents that is fenced; then a
    frontier that was passed already is misuse.
    """

    collection: CollectionId
    capability: CapabilityId
    frontier: Antichain
    plan: Offset | None = None
    token: str = ""
    new_token: str | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """Give up a capability; with none named, the collection itself, which ends all reads.

    Dropping the last write capability seals the collection (rule 3). Dropping the last read
    capability leaves since where it is (rule 4), unless the collection was released: by a Drop
    that is `whole`. Then since is empty as soon as no read capability is left, however it went.
    With `sole` it is void while another write capability than this one is live.
    Only the system drops a collection without a capability: that ends what others hold.
    """

    collection: CollectionId
    capability: CapabilityId | None = None
    token: str = ""
    whole: bool = False
    sole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    """The state after `upto` was written to the data topic; `hash` is of its bytes (rule 8)."""

    upto: Offset
    chunks: tuple[ChunkRef, ...]
    hash: str


Grant = Acquire | Clone | Transfer | Downgrade | Drop
"""What is asked of one capability."""

Body = Create | Append | Advance | Stage | Reclaim | Replace | Grant | Rollup


@value(frozen=True, slots=True)
class Event:
    """An attempt in a log."""

    id: EventId
    group: str
    seen: Offset
    body: Body
