"""Actors that write: under a capability that all share, and under ones of their own.

Every write inserts its witness row and some other rows, and retracts some earlier rows of the
same writer that are known to have been written.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from streams.errors import Determinate, Indeterminate, InvalidUsage
from streams.progress import frontier
from streams.storage.client.handles import (
    InvalidCapability,
    ReadCapability,
    WriteCapability,
)
from streams.storage.log.outcomes import UpperMismatch
from streams.storage.write.update import Write
from streams.torture.actor_context import ActorPlace, Target
from streams.torture.journal import Answer, Event, Row, Share, Update, Wrong, Wrote
from streams.torture.leases import Lease

SCHEMA = pa.schema(
    [
        ("writer", pa.utf8()),
        ("number", pa.int64()),
        ("time", pa.int64()),
        ("diff", pa.int64()),
    ]
)
FARTHEST = 6
"""The maximum of times that a write covers."""

MOST_ROWS = 5
SEVERAL = 0.3
"""The frequency of writes to all collections of a group."""

GUEST_LEASE_MS = 3_000


def table(updates: tuple[Update, ...]) -> pa.Table:
    """Updates as Storage takes them."""
    columns = [
        [writer for (writer, _), _, _ in updates],
        [number for (_, number), _, _ in updates],
        [time for _, time, _ in updates],
        [diff for _, _, diff in updates],
    ]
    return pa.table(
        [pa.array(column, field_.type) for column, field_ in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


@dataclass(slots=True)
class UpdateMaker:
    """Makes updates of one writer; remembers the rows that may be retracted."""

    seat: ActorPlace
    number: int = 0
    live: dict[str, list[Row]] = field(default_factory=dict)

    def fresh(self) -> Row:
        """A row that was never written before."""
        self.number += 1
        return self.seat.name, self.number

    def share(self, capability: WriteCapability, upper: int) -> Share:
        """Some updates for [frontier, upper)."""
        rng, lower = self.seat.rng, int(capability.frontier.time)
        rows = [(self.fresh(), 1) for _ in range(rng.randint(1, MOST_ROWS))]
        mine = self.live.setdefault(capability.id, [])
        gone = [
            (mine.pop(rng.randrange(len(mine))), -1) for _ in range(rng.randint(0, 3)) if mine
        ]
        updates = tuple((row, rng.randrange(lower, upper), diff) for row, diff in rows + gone)
        return Share(capability.id, capability.name, lower, upper, updates)

    def counted(self, share: Share) -> None:
        """The rows of a write that counted may be retracted, but for its witness."""
        rows = [row for row, _, diff in share.updates[1:] if diff > 0]
        self.live.setdefault(share.collection, []).extend(rows)


def write(
    seat: ActorPlace, pen: UpdateMaker, capabilities: list[WriteCapability]
) -> list[WriteCapability] | UpperMismatch | None:
    """One write under capabilities of one group; None when the outcome is not known.

    Errors: InvalidUsage, noted as a write that did not count; Determinate, likewise.
    """
    uppers = [
        int(capability.frontier.time) + seat.rng.randint(1, FARTHEST)
        for capability in capabilities
    ]
    shares = tuple(pen.share(*share) for share in zip(capabilities, uppers, strict=True))
    id_ = f"{seat.name}.{pen.number}"
    seat.journal.note(Wrote(id_, shares))
    first, *rest = (
        Write(capability, table(share.updates), frontier(share.upper))
        for capability, share in zip(capabilities, shares, strict=True)
    )
    try:
        done = send(seat, first, rest)
    except Indeterminate:
        return None
    except (InvalidUsage, Determinate):
        seat.journal.note(Answer(id_, counted=False))
        raise
    seat.journal.note(Answer(id_, counted=not isinstance(done, UpperMismatch)))
    if isinstance(done, UpperMismatch):
        return done
    for share in shares:
        pen.counted(share)
    return done


def send(
    seat: ActorPlace, first: Write, rest: list[Write]
) -> list[WriteCapability] | UpperMismatch:
    """One UpdateAndDowngrade of one collection or of several."""
    updates, upper = first.updates, first.new_frontier
    update = seat.storage.update_and_downgrade
    if rest:
        several = update(first.capability, updates, upper, *rest)
        return several if isinstance(several, UpperMismatch) else list(several)
    batch = update(first.capability, updates, upper)
    return batch if isinstance(batch, UpperMismatch) else [batch]


@dataclass(slots=True)
class Writer:
    """Writes under the capabilities that all writers share, and races for them."""

    seat: ActorPlace
    pen: UpdateMaker = field(init=False)
    held: dict[str, WriteCapability] = field(init=False)

    def __post_init__(self) -> None:
        self.pen = UpdateMaker(self.seat)
        self.held = {
            target.id: WriteCapability(target.id, frontier(0), target.write)
            for target in self.seat.targets
        }

    def step(self) -> None:
        """One write, or one lost race. Errors: as `write`."""
        target = self.seat.some_target()
        targets = [target]
        if self.seat.rng.random() < SEVERAL:
            targets = [
                target_ for target_ in self.seat.targets if target_.group == target.group
            ]
        done = write(self.seat, self.pen, [self.held[target.id] for target in targets])
        match done:
            case None:
                self.held |= {target.id: self._where(target) for target in targets}
            case UpperMismatch(current, collection):
                self.seat.journal.note(Event(self.seat.name, "races lost"))
                self.held[collection] = replace(self.held[collection], frontier=current)
            case _:
                self.held |= {capability.id: capability for capability in done}

    def _where(self, target: Target) -> WriteCapability:
        """The shared capability where it stands now."""
        return self.seat.storage.heartbeat(self.held[target.id])


@dataclass(slots=True)
class LeasedWriter:
    """Writes under its own leased capability; transfers it, drops it or lets it expire."""

    seat: ActorPlace
    pen: UpdateMaker = field(init=False)
    held: WriteCapability | None = None
    lease: Lease | None = None

    def __post_init__(self) -> None:
        self.pen = UpdateMaker(self.seat)

    def step(self) -> None:
        """Come, write, pass on, go. Errors: as `write`."""
        capability, lease = self.held, self.lease
        if capability is None or lease is None:
            with suppress(
                InvalidCapability
            ):  # what was acquired may expire before it is cloned
                self._come()
            return
        self.seat.storage.shards.sync_group(lease.group)
        sent_at = lease.clock()
        wrong = lease.too_late(sent_at)
        try:
            was_honoured = self._act(capability, lease, sent_at)
        except InvalidCapability:
            self.held = None
            self.seat.note_if(lease.refused())
        except Indeterminate:
            self.held = None
            raise
        else:
            self.seat.note_if(wrong if was_honoured else None)

    def _come(self) -> None:
        target, storage = self.seat.some_target(), self.seat.storage
        read, write_ = storage.acquire_capabilities(target.id)
        storage.drop(read)
        before = storage.shards.group_state(target.group).clock_ms
        self.held = storage.clone(write_, lease_ms=GUEST_LEASE_MS)
        self.lease = Lease(self.seat.name, storage, target.group, GUEST_LEASE_MS)
        self.lease.renewed(before)
        storage.drop(write_)

    def _act(self, capability: WriteCapability, lease: Lease, sent_at: int) -> bool:
        """Whether the capability was exercised, and honoured."""
        storage = self.seat.storage
        match self.seat.rng.randrange(8):
            case 0:
                self.held = None
                storage.drop(capability)
                refuse(self.seat, capability)
                return False  # to drop what is gone is no error
            case 1:
                self.held = None  # no process has it, and it expires
                return False
            case 2:
                self.held = storage.transfer(capability)
                lease.renewed(sent_at)
                refuse(self.seat, capability)
            case 3:
                self.held = storage.heartbeat(capability)
                lease.renewed(sent_at)
            case _:
                return self._write(capability, lease)
        return True

    def _write(self, capability: WriteCapability, lease: Lease) -> bool:
        done = write(self.seat, self.pen, [capability])
        lease.perhaps_renewed()
        if isinstance(done, UpperMismatch):
            what = f"lost a race without another writer: {done}"
            self.seat.journal.note(Wrong(self.seat.name, what))
        self.held = done[0] if isinstance(done, list) else None
        return isinstance(done, list)


def refuse(seat: ActorPlace, gone: WriteCapability | ReadCapability) -> None:
    """A capability that was dropped or passed on must not be honoured any more."""
    try:
        seat.storage.heartbeat(gone)
    except InvalidUsage:
        return
    seat.journal.note(Wrong(seat.name, f"a capability that is gone was honoured: {gone}"))
