"""UpdateAndDowngrade: checked, stored, linked; all collections named or none (rules 1 to 3).

The chunks are written first; the one Append that links them decides. When it lost a race they
are orphans, which the collector finds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

import pyarrow as pa

from streams.errors import InvalidUsage
from streams.ids import MINIMUM_TIME
from streams.kafka.log import ChunkRef
from streams.progress import Antichain, frontier
from streams.storage.capabilities import NotForward, WriteCapability
from streams.storage.description import loads
from streams.storage.events import Append, Body, Downgrade, Part
from streams.storage.read import LAST, load_stable
from streams.storage.shards import Shards
from streams.storage.written import check_counts, check_times, conform
from streams.trace.kernel import Kernel, arrow_schema
from streams.trace.updates import flatten


class NothingBetween(InvalidUsage):
    """There are updates, and no time that they could have: the frontier does not move."""

    def __init__(self, capability: WriteCapability) -> None:
        super().__init__(capability)
        self.capability = capability

    def __str__(self) -> str:
        return (
            f"updates of collection {self.capability.id}: the new frontier is the old,"
            f" {self.capability.frontier}, so there is no time for them"
        )


@dataclass(frozen=True, slots=True)
class Write:
    """One collection's share of an UpdateAndDowngrade.

    Shape: `updates` has the collection's columns, then time and diff; None for no updates.
    """

    capability: WriteCapability
    updates: pa.Table | None
    new_frontier: Antichain | int

    @property
    def upper(self) -> Antichain:
        """The new frontier."""
        return bound(self.new_frontier)

    @property
    def is_heartbeat(self) -> bool:
        """Whether nothing moves: the capability is exercised, and that is all."""
        return self.upper == self.capability.frontier


def bound(value: Antichain | int) -> Antichain:
    """A frontier, which may be given by its time."""
    return frontier(value) if isinstance(value, int) else value


def moved(write: Write) -> WriteCapability:
    """The capability after the write."""
    return replace(write.capability, frontier=write.upper)


@dataclass(frozen=True, slots=True)
class Writing:
    """Makes Appends of writes. With a `kernel` it looks for negative multiplicities."""

    shards: Shards
    kernel: Kernel | None
    checking: Lock = field(default_factory=Lock)  # a kernel serves one thread at a time

    def events(self, writes: Sequence[Write]) -> list[tuple[str, Body]]:
        """What to submit, to the one group of all the collections; chunks are stored.

        The first event is the Append, if anything moves; the others renew leases.

        Errors: NotForward, NothingBetween, WrongRows, OutsideInterval, NegativeMultiplicity,
        InvalidUsage when the collections are of several groups.
        """
        groups = {self.shards.group_of(each.capability.id) for each in writes}
        if len(groups) > 1:
            raise InvalidUsage(f"one command writes to one group, actual {sorted(groups)}")
        group = groups.pop()
        ready = [self.checked(each) for each in writes]  # all, before anything is stored
        parts = [
            part_of(write, self.stored(write, rows))
            for write, rows in zip(writes, ready, strict=True)
            if not write.is_heartbeat
        ]
        renewals = [(group, renewal(each.capability)) for each in writes if self.is_due(each)]
        return [(group, Append(tuple(parts))), *renewals] if parts else list(renewals)

    def checked(self, write: Write) -> pa.Table | None:
        """The rows as the engine has them; None when there are none."""
        id_, lower = write.capability.id, write.capability.frontier
        if not lower.precedes(write.upper):
            raise NotForward(id_, lower, write.upper)
        if write.updates is None or not write.updates.num_rows:
            return None
        if write.is_heartbeat:
            raise NothingBetween(write.capability)
        description = loads(self.shards.state(id_).description)
        rows = conform(id_, write.updates, description)
        check_times(id_, rows, lower, write.upper)
        if self.kernel is not None:
            past, _ = load_stable(self.shards, id_, (MINIMUM_TIME, LAST), LAST)
            every = flatten([past, rows], arrow_schema(description.types))
            with self.checking:
                check_counts(id_, every, self.kernel)
        return rows

    def stored(self, write: Write, rows: pa.Table | None) -> tuple[ChunkRef, ...]:
        """The chunks of the rows."""
        return () if rows is None else self.shards.write(write.capability.id, rows)

    def is_due(self, write: Write) -> bool:
        """Whether half of the capability's lease is over, or a heartbeat is all there is."""
        id_, name = write.capability.id, write.capability.name
        held = self.shards.state(id_).capabilities.get(name)
        if write.is_heartbeat:
            return True
        if held is None or held.lease_ms is None or held.expires_ms is None:
            return False
        clock = self.shards.group_state(self.shards.group_of(id_)).clock_ms
        return held.expires_ms - clock < held.lease_ms // 2 and not write.upper.is_empty


def part_of(write: Write, chunks: tuple[ChunkRef, ...]) -> Part:
    """One part of the Append."""
    return Part(
        collection=write.capability.id,
        capability=write.capability.name,
        lower=write.capability.frontier,
        upper=write.upper,
        chunks=chunks,
        token=write.capability.token,
    )


def renewal(capability: WriteCapability) -> Downgrade:
    """An event that moves nothing and renews the lease."""
    return Downgrade(
        collection=capability.id,
        capability=capability.name,
        frontier=frontier(MINIMUM_TIME),
        token=capability.token,
    )
