"""The state of a group: the fold of its log, as immutable values.

    since   read frontier of a collection: the meet of its live read capabilities; only forward,
            and it stays where it is when none is left (rule 4)
    upper   write frontier: the meet of its live write capabilities; only forward; empty, that
            is sealed, when the last one is dropped, or expires while it is sealing (rules 2, 3)

`clock_ms` is the group's own clock, derived from append times so that every reader agrees on
what has expired (rule 11): it starts at the first append time and advances by the time between
two records. `appended_ms` is the last one, from which the next is counted. `superseded` are
chunks that a Replace, a Drop or a newer Rollup removed; they are named until every reader's
plan has passed (rule 10).
"""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar, overload

from streams.ids import CapabilityId, CollectionId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import EMPTY, Antichain, frontier
from streams.storage.log.batches import Trace
from streams.storage.log.dedup_window import RecentOutcomes, Window
from streams.storage.log.events import Offsets, Right, Rollup
from streams.storage.log.lease_ends import (
    LeaseEnds,
    holder_of,
    lease_ends_of,
    name_of_capability,
    name_of_stage,
)
from streams.storage.log.persistent_heap import Heap, current, heap_of, pushed
from streams.storage.log.persistent_map import SMALL, Map
from streams.values import value

BEFORE_THE_LOG = Offset(-1)
LAST_MS = (1 << 63) - 1
"""The latest time that a state can hold: 64 bits, in every language."""

D = TypeVar("D")

NOTHING = Window()
NOTHING_KEPT = RecentOutcomes()
NO_LEASES = LeaseEnds()


@value(frozen=True, slots=True)
class Capability:
    """A live capability. Its frontier is not empty: a capability to nothing does not exist.

    `lease_ms` and `expires_ms` are None for a critical one. `plan` is the oldest
    log offset whose chunks its holder still reads, None when it reads none. `token`, unless it
    is empty, has to be presented with the id.
    """

    right: Right
    frontier: Antichain
    plan: Offset | None = None
    lease_ms: int | None = None
    expires_ms: int | None = None
    token: str = ""


class Capabilities(Mapping[CapabilityId, Capability]):
    """The live capabilities of a collection, by name; changed only by `set` and `remove`.

    If there are many, a heap for each right gives the earliest frontier. An entry is at or
    before the frontier of its name and is corrected when it comes first, which is not
    observable.
    """

    __slots__ = ("_entries", "_heaps", "_held")

    def __init__(
        self,
        capabilities: Mapping[CapabilityId, Capability] | None = None,
        heaps: Mapping[Right, Heap] | None = None,
        entries: int = 0,
    ) -> None:
        self._held = capabilities if isinstance(capabilities, Map) else Map(capabilities)
        self._heaps = None if heaps is None or len(self._held) <= SMALL else dict(heaps)
        self._entries = entries

    def __getitem__(self, name: CapabilityId) -> Capability:
        return self._held[name]

    @overload
    def get(self, name: CapabilityId, /) -> Capability | None: ...

    @overload
    def get(self, name: CapabilityId, /, default: Capability | D) -> Capability | D: ...

    def get(
        self, name: CapabilityId, /, default: Capability | D | None = None
    ) -> Capability | D | None:
        """Return the capability of this name, or the default."""
        return self._held.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[CapabilityId]:
        return iter(self._held)

    def items(self) -> ItemsView[CapabilityId, Capability]:
        """All of them, as of a dict."""
        return self._held.items()

    def values(self) -> ValuesView[Capability]:
        """All of them."""
        return self._held.values()

    def set(self, name: CapabilityId, capability: Capability) -> "Capabilities":
        """Return the capabilities with one added or replaced."""
        old, heaps = self._held.get(name), self._heaps
        is_entered = (
            old is not None
            and old.right is capability.right
            and old.frontier.precedes(capability.frontier)
        )
        if heaps is not None and not is_entered:
            heap = pushed(heaps[capability.right], capability.frontier.time, name)
            heaps = {**heaps, capability.right: heap}
        entries = self._entries + (not is_entered)
        return Capabilities(self._held.set(name, capability), heaps, entries)

    def remove(self, *names: CapabilityId) -> "Capabilities":
        """Return the capabilities without some, which may be missing."""
        remaining = self._held
        for name in names:
            remaining = remaining.remove(name)
        return Capabilities(remaining, self._heaps, self._entries)

    def earliest(self, right: Right) -> Timestamp | None:
        """The earliest frontier of this right; None if there is none. Usually O(log n)."""
        if len(self._held) <= SMALL:
            first: Timestamp | None = None  # spelled out: this is the hot path
            for hold in self._held.values():
                if hold.right is right and (first is None or hold.frontier.time < first):
                    first = hold.frontier.time
            return first
        # dropped entries stay in a heap until they come first, so heaps are rebuilt at times
        if self._heaps is None or self._entries > 2 * len(self._held) + SMALL:
            self._heaps = {
                right: heap_of(
                    (capability.frontier.time, name)
                    for name, capability in self._held.items()
                    if capability.right is right
                )
                for right in Right
            }
            self._entries = len(self._held)
        heap = current(self._heaps[right], lambda name: self._time(name, right))
        self._heaps[right] = heap
        return None if heap is None else Timestamp(heap.time)

    def _time(self, name: str, right: Right) -> Timestamp | None:
        capability = self._held.get(CapabilityId(name))
        return (
            capability.frontier.time
            if capability is not None and capability.right is right
            else None
        )


@value(frozen=True, slots=True, kw_only=True)
class CollectionState:
    """One collection.

    `source` is the source binding at its upper, `fenced` are the fingerprints that may no
    longer append. `changed` is the offset of the last record that linked chunks, or replaced
    batches with chunks: a reader of the log up to there has seen all updates (rule 28). A
    collection that `is_released` was dropped by its holder, and is forgotten with the last of
    its read capabilities. In one that `is_sealing` the last write was a capability's move to
    the empty frontier while others were live: it is sealed with the last of them, even if that
    expires.
    """

    id: CollectionId
    description: str
    since: Antichain
    upper: Antichain
    batches: Trace
    capabilities: Capabilities
    source: Offsets | None = None
    fingerprint: str = ""
    fenced: frozenset[str] = frozenset()
    changed: Offset | None = None
    is_released: bool = False
    is_sealing: bool = False

    @property
    def is_dropped(self) -> bool:
        """Whether it is permanently unreadable."""
        return self.since.is_empty


def forgotten_collection(id_: CollectionId) -> CollectionState:
    """Return what remains of a dropped collection: its id, so that it is never reused."""
    return CollectionState(
        id=id_,
        description="",
        since=EMPTY,
        upper=EMPTY,
        batches=Trace(),
        capabilities=Capabilities(),
    )


def settled(
    collection: CollectionState,
    capabilities: Capabilities,
    batches: Trace,
    source: Offsets | None,
) -> CollectionState:
    """Return the collection with these capabilities, batches and binding, its frontiers moved.

    Without a capability of its kind a frontier stays. Since stays before upper, even if its
    holders allow more: otherwise no time could be read (rule 5).
    """
    since, upper = collection.since, collection.upper
    written = capabilities.earliest(Right.WRITE)
    read = capabilities.earliest(Right.READ)
    if written is not None:
        upper = upper.join(frontier(written))
    if read is not None:
        newest = read if upper.is_empty else min(upper.time - 1, read)
        since = since.join(frontier(newest))
    # spelled out, here and in `State.moved`: `replace` is three times slower, and this is the
    # path of every event
    return CollectionState(
        id=collection.id,
        description=collection.description,
        since=since,
        upper=upper,
        batches=batches,
        capabilities=capabilities,
        source=source,
        fingerprint=collection.fingerprint,
        fenced=collection.fenced,
        changed=collection.changed,
        is_released=collection.is_released,
        is_sealing=collection.is_sealing,
    )


@value(frozen=True, slots=True)
class Collections(Mapping[CollectionId, CollectionState]):
    """All collections that a log ever created, by id; only the ids of dropped ones.

    Scans use only the `live` ones: ids are never reused, so the number of the others only
    grows.
    """

    live: Map[CollectionId, CollectionState] = field(default_factory=Map)
    dropped: Map[CollectionId, bool] = field(default_factory=Map)

    @property
    def are_over(self) -> bool:
        """Whether there were some and all were dropped: their topics may be deleted."""
        return bool(self.dropped) and not self.live

    def __getitem__(self, id_: CollectionId) -> CollectionState:
        collection = self.get(id_)
        if collection is None:
            raise KeyError(id_)
        return collection

    @overload
    def get(self, id_: CollectionId, /) -> CollectionState | None: ...

    @overload
    def get(
        self, id_: CollectionId, /, default: CollectionState | D
    ) -> CollectionState | D: ...

    def get(
        self, id_: CollectionId, /, default: CollectionState | D | None = None
    ) -> CollectionState | D | None:
        """Return the collection of this id, or the default."""
        collection = self.live.get(id_)
        if collection is not None:
            return collection
        return forgotten_collection(id_) if id_ in self.dropped else default

    def __contains__(self, id_: object) -> bool:
        return id_ in self.live or id_ in self.dropped

    def __len__(self) -> int:
        return len(self.live) + len(self.dropped)

    def __iter__(self) -> Iterator[CollectionId]:
        return chain(self.live, self.dropped)

    def set(self, collection: CollectionState) -> "Collections":
        """Return the collections with one added or changed."""
        if collection.is_dropped:
            gone = self.dropped.update({collection.id: True})
            return Collections(self.live.remove(collection.id), gone)
        return Collections(self.live.set(collection.id, collection), self.dropped)


def collections_of(every: Iterable[CollectionState]) -> Collections:
    """Return the collections by their ids."""
    live: dict[CollectionId, CollectionState] = {}
    dropped: dict[CollectionId, bool] = {}
    for collection in every:
        if collection.is_dropped:
            dropped[collection.id] = True
        else:
            live[collection.id] = collection
    return Collections(Map(live), Map(dropped))


@dataclass(frozen=True, slots=True)
class StagedChunks:
    """Chunks that are protected until the group's clock passes `expires_ms`."""

    chunks: tuple[ChunkRef, ...]
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Superseded:
    """Chunks that the event at `offset` removed."""

    offset: Offset
    chunks: tuple[ChunkRef, ...]


@value(frozen=True, slots=True, kw_only=True)
class State:
    """The fold of a group's log through `upto`. `group` is empty before the first event."""

    group: str = ""
    upto: Offset = BEFORE_THE_LOG
    clock_ms: int = 0
    appended_ms: int = 0
    collections: Collections = field(default_factory=Collections)
    window: Window = NOTHING
    kept: RecentOutcomes = NOTHING_KEPT
    floor: Mapping[int, int] = field(default_factory=dict)
    stages: Mapping[str, StagedChunks] = field(default_factory=dict)
    superseded: tuple[Superseded, ...] = ()
    rollups: tuple[Rollup, ...] = ()
    lease_ends: LeaseEnds = field(default=NO_LEASES, compare=False)

    def moved(
        self,
        *,
        upto: Offset | None = None,
        clock_ms: int | None = None,
        appended_ms: int | None = None,
        collections: Collections | None = None,
        window: Window | None = None,
        kept: RecentOutcomes | None = None,
    ) -> "State":
        """Return the state with the given changes; faster than `replace`."""
        return State(
            group=self.group,
            upto=self.upto if upto is None else upto,
            clock_ms=self.clock_ms if clock_ms is None else clock_ms,
            appended_ms=self.appended_ms if appended_ms is None else appended_ms,
            collections=self.collections if collections is None else collections,
            window=self.window if window is None else window,
            kept=self.kept if kept is None else kept,
            floor=self.floor,
            stages=self.stages,
            superseded=self.superseded,
            rollups=self.rollups,
            lease_ends=self.lease_ends,
        )

    def expiry(self, lease_ms: int | None) -> int | None:
        """Return when a lease that begins now ends; None for a critical capability.

        A lease beyond the range of a state ends at `LAST_MS`: else no Rollup of the group could
        be written.
        """
        return None if lease_ms is None else min(self.clock_ms + lease_ms, LAST_MS)

    def leased(self, name: str, ends_ms: int | None) -> "State":
        """Return the state with a lease that is new, or may end earlier; None: it has none."""
        if ends_ms is None:
            return self
        lease_ends = self.lease_ends.add(name, ends_ms)
        if lease_ends.is_full:
            lease_ends = all_lease_ends(self.collections.live, self.stages)
        return replace(self, lease_ends=lease_ends)

    def end_of_lease(self, name: str) -> int | None:
        """Return when a lease ends; None if there is none of this name."""
        id_, holder = holder_of(name)
        if id_ is None:
            stage = self.stages.get(holder)
            return None if stage is None else stage.expires_ms
        collection = self.collections.live.get(id_)
        capability = collection and collection.capabilities.get(CapabilityId(holder))
        return capability.expires_ms if capability else None

    def superseding(
        self, offset: Offset, chunks: tuple[ChunkRef, ...]
    ) -> tuple[Superseded, ...]:
        """Return the superseded chunks, and those that the event at `offset` removes."""
        return (*self.superseded, Superseded(offset, chunks)) if chunks else self.superseded

    def _named(self) -> Iterator[tuple[ChunkRef, ...]]:
        yield from (stage.chunks for stage in self.stages.values())
        yield from (rollup.chunks for rollup in self.rollups)
        yield from (batch.chunks for batch in self.superseded)
        for collection in self.collections.live.values():
            yield from (batch.chunks for batch in collection.batches)

    def chunks(self) -> frozenset[ChunkRef]:
        """Return every chunk that the state links, stages or keeps: none may be reclaimed."""
        return frozenset(chunk for chunks in self._named() for chunk in chunks)


def all_lease_ends(
    live: Mapping[CollectionId, CollectionState], stages: Mapping[str, StagedChunks]
) -> LeaseEnds:
    """Return when all leases of a group end."""
    leases = [
        (capability.expires_ms, name_of_capability(id_, name))
        for id_, collection in live.items()
        for name, capability in collection.capabilities.items()
        if capability.expires_ms is not None
    ]
    staged = [(stage.expires_ms, name_of_stage(name)) for name, stage in stages.items()]
    return lease_ends_of([*leases, *staged])
