"""UpdateAndDowngrade: validates, stores and links updates atomically (rules 1 to 3).

The chunks are written first; the single Append that links them decides. If it lost a race they
are orphans, which the collector finds.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from streams.errors import InvalidUsage
from streams.ids import MINIMUM_TIME, CapabilityId, CollectionId, Offset
from streams.kafka.log import ChunkRef
from streams.progress import END, Antichain, frontier
from streams.storage.client.handles import Capability, NotForward, WriteCapability
from streams.storage.client.lifecycle import description_of
from streams.storage.client.shards import Shards
from streams.storage.description import Description
from streams.storage.limits import LARGEST_COUNTED, check_size
from streams.storage.log.events import Append, Body, Downgrade, Part, Renewal
from streams.storage.read.reader import load_stable
from streams.storage.write.affected_rows import affected_rows
from streams.storage.write.chunk_validation import check_refs, read_staged
from streams.storage.write.validation import (
    WrongRows,
    check_counts,
    check_times,
    conform,
)
from streams.trace.kernel.kernel import arrow_schema
from streams.trace.kernel.pool import KernelPool
from streams.trace.updates import flatten


class NothingBetween(InvalidUsage):
    """The frontier does not move, so there is no time for the updates."""

    def __init__(self, capability: WriteCapability) -> None:
        super().__init__(capability)
        self.capability = capability

    def __str__(self) -> str:
        return (
            f"updates of collection {self.capability.id}: the new frontier is the old,"
            f" {self.capability.frontier}, so there is no time for them"
        )


class RepeatedCapability(InvalidUsage):
    """A capability is named twice, and the second write does not begin where the first ends."""

    def __init__(self, capability: WriteCapability, expected: Antichain) -> None:
        super().__init__(capability, expected)
        self.capability, self.expected = capability, expected

    def __str__(self) -> str:
        return (
            f"updates of collection {self.capability.id}: a capability is named twice: expected"
            f" its next write from {self.expected} on, actual {self.capability.frontier}: write"
            " once, or one interval after the other"
        )


@dataclass(frozen=True, slots=True)
class Write:
    """One collection's share of an UpdateAndDowngrade.

    `chunks` are further updates that the caller has written to the group's data topic.

    Shape: `updates` has the collection's columns, then time and diff; None for no updates.
    """

    capability: WriteCapability
    updates: pa.Table | None
    new_frontier: Antichain | int
    chunks: tuple[ChunkRef, ...] = ()

    @property
    def upper(self) -> Antichain:
        """The new frontier."""
        return as_frontier(self.new_frontier)

    @property
    def is_heartbeat(self) -> bool:
        """Whether the frontier does not move: the write is only a heartbeat."""
        return self.upper == self.capability.frontier


def as_frontier(value: Antichain | int) -> Antichain:
    """Return a frontier, given as a frontier or as its time.

    Errors: InvalidUsage if it is not a time, or before the first time, where a snapshot begins.
    """
    if isinstance(value, Antichain):
        return value
    try:
        time = operator.index(value)  # numpy's integers, too
    except TypeError:
        time = -1
    if not MINIMUM_TIME <= time <= END:
        raise InvalidUsage(
            f"frontier: expected a frontier, or a time from {MINIMUM_TIME} to {END},"
            f" actual {value!r}"
        )
    return frontier(time)


def moved_capability(write: Write) -> WriteCapability:
    """Return the capability after the write."""
    return replace(write.capability, frontier=write.upper)


@dataclass(frozen=True, slots=True)
class ValidatedWrites:
    """The validated rows of each write, in the order of the writes.

    `read_upto` is the log offset up to which the collections were read, if the check read them.
    """

    rows: tuple[pa.Table | None, ...]
    read_upto: Offset | None


@dataclass(frozen=True, slots=True)
class UpdateWriter:
    """Turns writes into Appends. With `kernels` it checks for negative multiplicities."""

    shards: Shards
    kernels: KernelPool | None

    def group(self, writes: Sequence[Write]) -> str:
        """The one group of all the collections. Errors: InvalidUsage if there are several."""
        groups = {self.shards.group_of(write.capability.id) for write in writes}
        if len(groups) > 1:
            raise InvalidUsage(f"one command writes to one group, actual {sorted(groups)}")
        return groups.pop()

    def events(
        self,
        group: str,
        writes: Sequence[Write],
        chunks: Sequence[tuple[ChunkRef, ...]],
        read_upto: Offset | None,
    ) -> list[tuple[str, Body]]:
        """Return the events to submit, given the chunks of each write and the offset read.

        If anything moves, the first event is the Append, which presents capabilities that do
        not move as well. It renews the leases that are due, so that one record moves a thousand
        tables; for a single part a second event renews the lease. If nothing moves all events
        are heartbeats.
        """
        pairs = tuple(zip(writes, chunks, strict=True))
        parts = [part_of(write, refs) for write, refs in pairs if not write.is_heartbeat]
        if not parts:
            return [(group, renewal(write.capability)) for write in writes]
        ends = {part.capability: part.upper for part in parts}
        unmoved = [write.capability for write in writes if write.capability.name not in ends]
        due = [moved_capability(write) for write in writes if self.is_due(write)]
        last = [
            capability for capability in due if capability.frontier == ends[capability.name]
        ]
        if len(parts) > 1:
            unmoved, last = [*unmoved, *last], []
        renewals = tuple(held_of(capability) for capability in unmoved)
        append = Append(tuple(parts), read_upto, renewals)
        return [(group, append), *((group, renewal(capability)) for capability in last)]

    def checked(self, writes: Sequence[Write]) -> ValidatedWrites:
        """Return the rows of all writes in the engine's types; None for a write without rows.

        Errors: NotForward, NothingBetween, WrongRows, OutsideInterval, RepeatedCapability,
        NegativeMultiplicity.
        """
        check_chained(writes)
        check_refs([(write.capability.id, write.chunks) for write in writes])
        rows: list[pa.Table | None] = []
        fresh: dict[CollectionId, list[pa.Table]] = {}
        for write in writes:
            own, staged = self.conformed(write)
            rows.append(own)
            tables = [*([] if own is None else [own]), *staged]
            if tables:
                fresh[write.capability.id] = [*fresh.get(write.capability.id, ()), *tables]
        if self.kernels is None or not fresh:
            return ValidatedWrites(tuple(rows), None)
        group = self.group(writes)
        self.shards.sync_group(group)  # others may have written rows that these updates retract
        upto = self.shards.group_state(group).upto
        if any(self.is_lost(write) for write in writes):
            return ValidatedWrites(tuple(rows), None)  # the log decides which writer was faster
        self.count(fresh, self.kernels)
        return ValidatedWrites(tuple(rows), upto)

    def conformed(self, write: Write) -> tuple[pa.Table | None, list[pa.Table]]:
        """Return the rows of one write, and those of its chunks.

        Errors: as `checked`, but for NegativeMultiplicity.
        """
        id_, lower = write.capability.id, write.capability.frontier
        if not lower.precedes(write.upper):
            raise NotForward(id_, lower, write.upper)
        if not isinstance(write.updates, pa.Table | None):
            raise WrongRows(id_, f"expected an Arrow table, actual {type(write.updates)}")
        is_empty = write.updates is None or not write.updates.num_rows
        if is_empty and not write.chunks:
            return None, []
        if write.is_heartbeat:
            raise NothingBetween(write.capability)
        description = description_of(self.shards.state(id_))
        rows = None if is_empty else conform(id_, write.updates, description)
        if rows is not None:
            check_times(id_, rows, lower, write.upper)
        return rows, self.staged(write, description)

    def count(
        self, fresh: Mapping[CollectionId, Sequence[pa.Table]], kernels: KernelPool
    ) -> None:
        """Check the multiplicities after the updates.

        Errors: NegativeMultiplicity.
        """
        for id_, tables in fresh.items():
            schema = arrow_schema(description_of(self.shards.state(id_)).types)
            own = flatten(tables, schema)
            with kernels.lent() as kernel:
                chosen = affected_rows(own, kernel)
                past, _ = load_stable(self.shards, id_, (MINIMUM_TIME, END), END, chosen)
                check_counts(id_, flatten([past, own], schema), own.num_rows, kernel)

    def is_lost(self, write: Write) -> bool:
        """Whether the capability is gone, or already beyond the write's frontier."""
        capabilities = self.shards.state(write.capability.id).capabilities
        capability = capabilities.get(write.capability.name)
        return capability is None or write.capability.frontier.strictly_precedes(
            capability.frontier
        )

    def staged(self, write: Write, description: Description) -> list[pa.Table]:
        """Return the rows of the chunks that the caller has written, in the engine's types.

        They are read a few at a time, and kept only if multiplicities are checked.

        Errors: as `chunk_validation.staged`; OutsideInterval.
        """
        id_, checked_rows, size = write.capability.id, [], 0
        if not write.chunks:
            return []
        about = (id_, description, self.shards.headers(id_))
        for rows in read_staged(
            self.shards.chunks, self.shards.data_topic(id_), write.chunks, about
        ):
            check_times(id_, rows, write.capability.frontier, write.upper)
            if self.kernels is not None:
                checked_rows.append(rows)
                size += rows.nbytes
                check_size(
                    "bytes of chunks whose multiplicities are checked", LARGEST_COUNTED, size
                )
        return checked_rows

    def is_due(self, write: Write) -> bool:
        """Whether the capability moves and half of its lease is over."""
        id_, name = write.capability.id, write.capability.name
        capability = self.shards.state(id_).capabilities.get(name)
        if (
            write.is_heartbeat
            or capability is None
            or capability.lease_ms is None
            or capability.expires_ms is None
        ):
            return False
        clock = self.shards.group_state(self.shards.group_of(id_)).clock_ms
        return (
            capability.expires_ms - clock < capability.lease_ms // 2
            and not write.upper.is_empty
        )


def check_chained(writes: Sequence[Write]) -> None:
    """Errors: RepeatedCapability if writes of one capability are not consecutive."""
    ends: dict[CapabilityId, Antichain] = {}
    for write in writes:
        capability = write.capability
        expected = ends.get(capability.name, capability.frontier)
        if capability.frontier != expected:
            raise RepeatedCapability(capability, expected)
        ends[capability.name] = write.upper


def part_of(write: Write, chunks: tuple[ChunkRef, ...]) -> Part:
    """Return one part of the Append."""
    return Part(
        collection=write.capability.id,
        capability=write.capability.name,
        lower=write.capability.frontier,
        upper=write.upper,
        chunks=chunks,
        token=write.capability.token,
    )


def held_of(capability: WriteCapability) -> Renewal:
    """Return a capability that an Append presents beside its parts."""
    return Renewal(
        collection=capability.id,
        capability=capability.name,
        frontier=capability.frontier,
        token=capability.token,
    )


def renewal(capability: Capability) -> Downgrade:
    """Return an event that moves nothing and renews the lease."""
    return Downgrade(
        collection=capability.id,
        capability=capability.name,
        frontier=frontier(MINIMUM_TIME),
        token=capability.token,
    )
