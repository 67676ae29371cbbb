"""The storage API: commands on durable collections, each durable on return.

A collection is a multiset that varies over time, named by an id that is never reused. A
`ReadCapability` keeps since from passing its frontier; a `WriteCapability` keeps upper from
passing its frontier. Any client that presents one may use it.

    create                 bind an id, with since = upper
    subscribe_at           the contents at the capability's frontier, then every change
    update_and_downgrade   write [frontier, new frontier), of one collection or of several
    stage                  keep chunks that were written beforehand until they are linked
    acquire_capabilities   new capabilities at since and at upper
    clone, transfer, downgrade, drop, heartbeat

The errors of each command in each state of an id are in `streams.storage.client.lifecycle`. A
lost race is a returned value, misuse raises, and a command that raises has changed nothing,
except with `Indeterminate`: then the command may have had its effect.

Capabilities are leased unless they are created as critical. A lease ends by the append times of
the group's log, not by a client's clock; every command but `subscribe_at` and `clone` that
presents the capability renews it; an UpdateAndDowngrade does if half of it is over. Clients may
batch: a deferred downgrade costs nothing but freshness. One update can move any number of idle
collections of a group: one record, with the leases that are due.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar, overload

import pyarrow as pa

from streams.errors import Determinate, Indeterminate, InvalidUsage
from streams.ids import MINIMUM_TIME, CollectionId
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.retries import PatientChunks, PatientLogs, PatientTopics, RetryLimits
from streams.kafka.log import ChunkRef, Unanswered
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.settings import ClientSettings
from streams.kafka.topic_settings import topic_choices
from streams.progress import Antichain
from streams.storage.client.handles import (
    Held,
    ReadCapability,
    WriteCapability,
    check_lease,
)
from streams.storage.client.id_registry import Directory
from streams.storage.client.preconditions import CapabilityConditions
from streams.storage.client.shards import Shards, fresh_uuid
from streams.storage.client.status import ClientStatus
from streams.storage.description import Description, loads
from streams.storage.log.outcomes import UpperMismatch
from streams.storage.read.options import Options
from streams.storage.read.subscription import Subscription
from streams.storage.sans_io import (
    CommandGenerators,
    Conversation,
    Reclaimed,
    Recount,
    run_generator,
)
from streams.storage.write.update import UpdateWriter, Write, as_frontier
from streams.trace.kernel.pool import KernelPool

T = TypeVar("T")

TRIES = 20
"""Attempts of a write that loses races without effect."""

LEASE_MS = 15 * 60_000
"""Default lease of a capability."""


def wall_clock_ms() -> int:
    """Return the wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Storage:
    """A client of an environment's storage; may be shared by many threads."""

    def __init__(
        self,
        shards: Shards,
        *,
        checks_counts: bool = False,
        lease_ms: int = LEASE_MS,
        new_id: Callable[[], str] = fresh_uuid,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        check_lease(lease_ms)
        self.shards = shards
        self._asking = CapabilityConditions(shards, Directory(shards), new_id)
        self._writing = UpdateWriter(shards, KernelPool() if checks_counts else None)
        self._kernels = KernelPool()
        self._lease_ms = lease_ms
        self._close = close
        self._is_closed = False

    @classmethod
    def memory(
        cls,
        broker: MemoryBroker | None = None,
        *,
        checks_counts: bool = False,
        lease_ms: int = LEASE_MS,
    ) -> Self:
        """Storage within this process; clients over one `broker` share their collections.

        With `checks_counts` an update that would make a row's multiplicity negative is refused.
        It reads the whole collection at every write, and again if others have written to it
        meanwhile.
        """
        storage_broker = broker or MemoryBroker(wall_clock_ms)
        shards = Shards(
            storage_broker.logs,
            storage_broker.chunks,
            storage_broker.topics,
            now_ms=wall_clock_ms,
        )
        return cls(shards, checks_counts=checks_counts, lease_ms=lease_ms)

    @classmethod
    def kafka(  # noqa: PLR0913  options of users, passed by name
        cls,
        bootstrap: str,
        settings: Mapping[str, str] | None = None,
        *,
        namespace: str = "sw",
        topics: Mapping[str, str] | None = None,
        checks_counts: bool = False,
        lease_ms: int = LEASE_MS,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> Self:
        """Return storage on a cluster at `host:port,...`, in the topics of `namespace`.

        `settings` are librdkafka's, TLS and SASL among them; `topics` are pairs as
        `streams.kafka.topic_settings` reads them; `checks_counts` is as in `memory`.

        Calls wait for brokers that do not answer, for about three minutes; `status` reports an
        outage, and `watch` its begin and end. `now_ms` is this client's clock: no outcome
        depends on it.
        """
        client = ClientSettings(bootstrap, tuple((settings or {}).items()))
        choices = topic_choices(topics or {})
        broker = KafkaBroker(client, choices)
        patience = RetryLimits()
        shards = Shards(
            PatientLogs(broker.logs, patience),
            PatientChunks(broker.chunks, patience),
            PatientTopics(broker.topics, patience),
            namespace=namespace,
            data_partitions=choices.data_partitions,
            now_ms=now_ms,
            pump=True,
        )
        return cls(shards, checks_counts=checks_counts, lease_ms=lease_ms, close=broker.close)

    def create(
        self,
        id_: CollectionId,
        description: Description,
        *,
        start: int = MINIMUM_TIME,
        group: str | None = None,
        critical: bool = False,
    ) -> tuple[ReadCapability, WriteCapability]:
        """Bind `id_` to a collection with since = upper = `start`.

        Collections of one `group` can be written in one command; by default each has its own.
        Users write to a collection of kind `table`. Any other kind is fed by the system, which
        keeps the write capability `<id>.write`; the user gets a useless one.

        Errors: AlreadyBound, NeverReused; InvalidUsage if no topic can have the name, `start`
        is before 0, or the columns have unknown types or repeated names.
        """
        commands = self._commands(critical=critical)
        return self._ask(lambda: commands.create(id_, description, start, group or id_), id_)

    def subscribe_at(
        self, capability: ReadCapability, options: Options | None = None
    ) -> Subscription:
        """Subscribe to the contents at the capability's frontier, then to every change.

        The capability must be held as long as the subscription lasts, at a frontier before the
        last delivery. Returns at once; see `Subscription` for how to wait.

        Errors: NotBound, Unreadable, InvalidCapability; InvalidUsage if the options name
        columns that do not exist.
        """
        self._check_open()
        collection = self._current(lambda: self._asking.readable(capability), [capability.id])
        description = loads(collection.description)
        return Subscription(
            self.shards, capability, description, options or Options(), self._kernels
        )

    @overload
    def update_and_downgrade(
        self,
        capability: WriteCapability,
        updates: pa.Table | None,
        new_frontier: Antichain | int,
    ) -> WriteCapability | UpperMismatch: ...

    @overload
    def update_and_downgrade(
        self,
        capability: WriteCapability,
        updates: pa.Table | None,
        new_frontier: Antichain | int,
        first: Write,
        /,
        *also: Write,
    ) -> tuple[WriteCapability, ...] | UpperMismatch: ...

    def update_and_downgrade(
        self,
        capability: WriteCapability,
        updates: pa.Table | None,
        new_frontier: Antichain | int,
        *also: Write,
    ) -> WriteCapability | tuple[WriteCapability, ...] | UpperMismatch:
        """Write all updates in [frontier, new frontier), and move the capability there.

        With further writes, to collections of the same group, all of them count or none does,
        and the moved capabilities come back in their order. An empty new frontier gives the
        capability up; the last one seals the collection, and so does the expiry of the last
        remaining one if there was no write since. If the new frontier equals the old one there
        must be no updates: it is a heartbeat.

        A capability that several clients hold may have been moved by another: `UpperMismatch`
        has its present frontier, and nothing was written.

        Shape: `updates` has the collection's columns in order, then time and diff. Errors:
        NotBound, Sealed, Forgotten, InvalidCapability, FencedCapability, NotForward,
        NothingBetween, OutsideInterval, WrongRows, NegativeMultiplicity, RepeatedCapability;
        Recount if multiplicities are checked and others were faster repeatedly.
        """
        first = Write(capability, updates, as_frontier(new_frontier))
        done = self._update([first, *also])
        if isinstance(done, UpperMismatch):
            return done
        return done if also else done[0]

    def _update(self, writes: Sequence[Write]) -> tuple[WriteCapability, ...] | UpperMismatch:
        """Write; retry if the Append lost a race and had no effect.

        It loses to another writer, if multiplicities are checked, or to a collector. Chunks
        that the caller has written beforehand only the caller can write again (rule 7).

        Errors: Recount, Reclaimed after `TRIES` times.
        """
        commands, ids = self._commands(), [write.capability.id for write in writes]
        for _ in range(TRIES - 1):
            try:
                return self._ask(lambda: commands.update(writes), *ids)
            except Recount:
                continue
            except Reclaimed:
                if any(write.chunks for write in writes):
                    raise
        return self._ask(lambda: commands.update(writes), *ids)

    def stage(
        self,
        capability: WriteCapability,
        name: str,
        chunks: Sequence[ChunkRef],
        *,
        lease_ms: int = LEASE_MS,
    ) -> None:
        """Protect chunks that are already written from collectors until a `Write` links them.

        They are added to the collection's stage of this name, 4,096 chunks at most, and its
        lease is `lease_ms` from now: without chunks the lease is renewed, with 0 it ends.
        Staged chunks are not part of the collection before their write counts.

        Errors: NotBound, Sealed, Forgotten, InvalidCapability, FencedCapability; Reclaimed if a
        collector was faster than the first stage of a chunk: write the chunk again.
        """
        commands = self._commands()
        self._ask(
            lambda: commands.stage(capability, name, tuple(chunks), lease_ms), capability.id
        )

    def acquire_capabilities(
        self, id_: CollectionId, *, critical: bool = False, token: str = ""
    ) -> tuple[ReadCapability, WriteCapability]:
        """Acquire new capabilities at since and at upper.

        They are useless, with empty frontiers, if there is nothing to hold: both for a dropped
        collection, the write capability for a sealed collection and for one that the system
        feeds. The write capability holds upper back until it is moved or dropped. A `token`
        fences the capabilities, which have to be critical.

        Errors: NotBound.
        """
        commands = self._commands(critical=critical)
        return self._ask(lambda: commands.acquire(id_, token), id_)

    def clone(self, capability: Held, *, lease_ms: int | None = None) -> Held:
        """Create a second capability with the same rights, at the same frontier.

        `lease_ms` is the clone's lease, by default the original's; a clone of a critical
        capability is critical unless it is given one.

        Errors: NotBound, Forgotten, InvalidCapability, FencedCapability.
        """
        commands = self._commands()
        return self._ask(lambda: commands.clone(capability, lease_ms), capability.id)

    def transfer(self, capability: Held) -> Held:
        """Give a capability a new name that only the caller knows; the old name is void.

        Errors: NotBound, Forgotten, InvalidCapability, FencedCapability.
        """
        commands = self._commands()
        return self._ask(lambda: commands.transfer(capability), capability.id)

    def downgrade(
        self, capability: Held, new_frontier: Antichain | int, *, token: str | None = None
    ) -> Held:
        """Move a capability forward; to the empty frontier: drop it.

        For a write capability this declares that nothing happened in between. A `token` is
        compared and set: the capability with the previous token is fenced from now on.

        Errors: NotForward if it is already beyond that, here or in the log; NotBound,
        Forgotten, InvalidCapability, FencedCapability.
        """
        commands, target = self._commands(), as_frontier(new_frontier)
        return self._ask(lambda: commands.downgrade(capability, target, token), capability.id)

    def drop(
        self, capability: ReadCapability | WriteCapability, *, whole: bool = False
    ) -> None:
        """Drop a capability and, if `whole`, the collection with it.

        Dropping the last write capability seals the collection. If another is left and expires,
        it is not sealed: a writer that has finished gives up its capability by
        `update_and_downgrade`. After the last read capability since stays where it is. A
        collection that was dropped whole ends when no read capability is left: other holders
        can read until then. Then its since is empty, and it cannot be read, written or created
        again. It cannot be dropped whole as long as another client may write to it. Dropping
        what is gone already has no effect.

        Errors: NotBound, FencedCapability; with `whole` InvalidCapability, StillWritable if
        another write capability is live, and InvalidUsage for objects of the SQL catalog.
        """
        commands = self._commands()
        self._ask(lambda: commands.drop(capability, whole=whole), capability.id)

    def heartbeat(self, capability: Held) -> Held:
        """Renew a lease; return the capability with its present frontier.

        Errors: NotBound, Forgotten, InvalidCapability when it has expired, FencedCapability.
        """
        commands = self._commands()
        return self._ask(lambda: commands.heartbeat(capability), capability.id)

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidUsage("storage is closed: open another one, capabilities stay valid")

    def _commands(self, *, critical: bool = False) -> CommandGenerators:
        self._check_open()
        lease_ms = None if critical else self._lease_ms
        asking = self._asking
        return CommandGenerators(self.shards, asking.directory, asking, self._writing, lease_ms)

    def _ask(self, command: Callable[[], Conversation[T]], *ids: CollectionId) -> T:
        """Execute a command about these ids."""
        return self._current(lambda: run_generator(self.shards, command()), ids)

    def _current(self, act: Callable[[], T], ids: Sequence[CollectionId]) -> T:
        """Execute; retry once if the topics of the ids were deleted, unknown to this client.

        That happens if the ids were dropped meanwhile and this client has not read the logs
        since. A write to a deleted log has no effect, whatever the broker answered.
        """
        try:
            return act()
        except Unanswered:
            raise
        except (Determinate, Indeterminate):
            if not self._asking.directory.leave_retired(ids):
                raise
        return act()

    def status(self) -> ClientStatus:
        """The status of the brokers, and the failed groups with their reasons."""
        return self.shards.status()

    def watch(self, callback: Callable[[ClientStatus], None]) -> Callable[[], None]:
        """Call back when brokers stop or resume answering, and when a group fails.

        Returns a function that unsubscribes. The callback must be short, and must not call
        commands.
        """
        return self.shards.following.watch(callback)

    def close(self) -> None:
        """Release the connections; capabilities stay valid.

        Later commands raise InvalidUsage. Idempotent.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self.shards.close()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
