"""Facts about a shard, derived from its group's state alone. Pure.

Everything here is computed from the fold of the log: no chunk is read. Rows and bytes are those
of the chunks as written, so a row that was inserted and retracted counts twice until it is
compacted, and a chunk that two batches link counts once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from streams.errors import InvalidUsage
from streams.ids import CapabilityId, CollectionId, Offset
from streams.kafka.log import ChunkRef
from streams.progress import Antichain, frontier
from streams.storage.description import Description, loads
from streams.storage.log.events import Right
from streams.storage.log.machine import clock_at
from streams.storage.log.state import Capability, CollectionState, State

OPEN, SEALED, DROPPED = "open", "sealed", "dropped"


@dataclass(frozen=True, slots=True)
class Size:
    """Chunks, the updates in them (errors included) and their bytes."""

    chunks: int = 0
    rows: int = 0
    bytes: int = 0


def size_of(chunks: Iterable[ChunkRef]) -> Size:
    """The size of distinct chunks."""
    every = set(chunks)
    return Size(
        len(every), sum(chunk.rows for chunk in every), sum(chunk.size for chunk in every)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFacts:
    """One shard. `description` is None where the log holds one that we cannot read.

    `status` is `open`, `sealed` (upper is empty: no more writes) or `dropped` (since is
    empty: no more reads). `compacted` counts batches whose times were advanced.
    """

    id: CollectionId
    group: str
    description: Description | None
    status: str
    since: Antichain
    upper: Antichain
    batches: int
    compacted: int
    live: Size
    capabilities: int


def status_of(collection: CollectionState) -> str:
    """The phase of a collection's life."""
    if collection.since.is_empty:
        return DROPPED
    return SEALED if collection.upper.is_empty else OPEN


def facts_of(group: str, collection: CollectionState) -> ShardFacts:
    """The facts about a collection of this group."""
    return ShardFacts(
        id=collection.id,
        group=group,
        description=described(collection),
        status=status_of(collection),
        since=collection.since,
        upper=collection.upper,
        batches=collection.batches.count,
        compacted=sum(1 for batch in collection.batches if batch.since > 0),
        live=size_of(linked(collection)),
        capabilities=len(collection.capabilities),
    )


def described(collection: CollectionState) -> Description | None:
    """The description, if it is one of ours: another client may have written any text."""
    try:
        return loads(collection.description)
    except InvalidUsage:
        return None


def linked(collection: CollectionState) -> Iterator[ChunkRef]:
    """The chunks of the batches; one that two batches link comes twice."""
    return (chunk for batch in collection.batches for chunk in batch.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A live capability and what it holds back.

    `held_back` is by how much since (of a reader) or upper (of a writer) would move if this
    capability alone were dropped: 0 when others stand as far back. It is None for the last of
    its kind: without any reader since stays, without any writer the shard is sealed.
    `kept` are superseded chunks that may not be reclaimed while its plan stands where it does.
    `expires_in_ms` is None for a critical capability; 0 or less when an event of the log that
    comes now ends it, and none has come yet.
    """

    id: CapabilityId
    right: Right
    frontier: Antichain
    held_back: int | None
    plan: Offset | None
    kept: Size
    lease_ms: int | None
    expires_in_ms: int | None


def holders_of(state: State, collection: CollectionState, now_ms: int) -> tuple[Holder, ...]:
    """The capabilities of a collection: readers first, those furthest back first.

    Units: `now_ms` is milliseconds since the epoch, by the clock that append times come from.
    """
    holders = [
        holder(state, collection, id_, capability, now_ms)
        for id_, capability in collection.capabilities.items()
    ]
    return tuple(sorted(holders, key=_place))


def _place(holder: Holder) -> tuple[str, bool, int, str]:
    empty = holder.frontier.is_empty
    return holder.right.value, empty, 0 if empty else holder.frontier.time, holder.id


def holder(
    state: State,
    collection: CollectionState,
    id_: CapabilityId,
    capability: Capability,
    now_ms: int,
) -> Holder:
    """One capability and what it holds back."""
    ends = capability.expires_ms
    return Holder(
        id=id_,
        right=capability.right,
        frontier=capability.frontier,
        held_back=held_back(collection, id_),
        plan=capability.plan,
        kept=kept_by(state, capability.plan),
        lease_ms=capability.lease_ms,
        expires_in_ms=None if ends is None else ends - clock_at(state, now_ms),
    )


def held_back(collection: CollectionState, id_: CapabilityId) -> int | None:
    """The distance the frontier would move without one capability; None for the last one.

    The rules are those of `streams.storage.log.state.settled`: a frontier is the meet of the
    capabilities of its kind, moves forward only, and since stays below upper.
    """
    mine = collection.capabilities[id_]
    others = [
        capability.frontier
        for other, capability in collection.capabilities.items()
        if other != id_ and capability.right is mine.right and not capability.frontier.is_empty
    ]
    if not others:
        return None
    target = min(others, key=lambda frontier_of: frontier_of.time)
    now = collection.upper if mine.right is Right.WRITE else collection.since
    if mine.right is Right.READ and not collection.upper.is_empty:
        target = target.meet(frontier(collection.upper.time - 1))
    if now.is_empty:
        return 0
    return max(0, target.time - now.time)


def kept_by(state: State, plan: Offset | None) -> Size:
    """The superseded chunks that a reader with this plan may still read (rule 10)."""
    if plan is None:
        return Size()
    return size_of(
        chunk for batch in state.superseded if plan <= batch.offset for chunk in batch.chunks
    )
