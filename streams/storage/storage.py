"""Storage as its users see it: the commands of the formalism, each durable on return.

A collection is a multiset that varies over time, named by an id that is never used again. Who
holds a `ReadCapability` keeps since from passing its frontier; who holds a `WriteCapability`
keeps upper. Both are honoured for whoever presents them, here or in any other client.

    create                 bind an id, with since = upper
    subscribe_at           the contents at the capability's frontier, then every change
    update_and_downgrade   write [frontier, new frontier), of one collection or of several
    stage                  keep chunks that were written beforehand until they are linked
    acquire_capabilities   new capabilities at since and at upper
    clone, transfer, downgrade, drop, heartbeat

What the state of an id answers to a command that it does not allow is in
`streams.storage.lifecycle`. A lost race is a returned value, misuse raises, and every command
that raises has changed nothing, but for `Indeterminate`: then the command may have had its
effect.

Capabilities are leased unless they are asked for as critical. A lease ends by the append times
of the group's log, whatever a client's clock says; every command but `subscribe_at` and `clone`
that presents the capability renews it, an UpdateAndDowngrade when half of it is over. Clients
may batch: a deferred downgrade costs nothing but freshness. Time passes for any number of idle
collections of a group in one update of all of them: one record, with the leases that are due.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar, overload

import pyarrow as pa

from streams.errors import Determinate, InvalidUsage
from streams.ids import MINIMUM_TIME, CollectionId
from streams.kafka.broker import KafkaBroker
from streams.kafka.choices import topic_choices
from streams.kafka.log import ChunkRef, Unanswered
from streams.kafka.memory import MemoryBroker
from streams.kafka.patience import Patience, PatientChunks, PatientLogs, PatientTopics
from streams.kafka.settings import ClientSettings
from streams.progress import Antichain
from streams.storage.asking import Asking
from streams.storage.capabilities import (
    Held,
    ReadCapability,
    WriteCapability,
    check_lease,
)
from streams.storage.conversations import (
    Conversation,
    Conversations,
    Reclaimed,
    Recount,
    converse,
)
from streams.storage.description import Description, loads
from streams.storage.directory import Directory
from streams.storage.options import Options
from streams.storage.outcomes import UpperMismatch
from streams.storage.shards import Shards, fresh_uuid
from streams.storage.status import Status
from streams.storage.subscription import Subscription
from streams.storage.writing import Write, Writing, bound
from streams.trace.pool import KernelPool

T = TypeVar("T")

TRIES = 20
"""How often a write is tried while others are faster, each time with nothing done."""

LEASE_MS = 15 * 60_000
"""How long a capability lasts that nobody renews, unless asked for otherwise."""


def wall_clock_ms() -> int:
    """Now, in milliseconds since the epoch."""
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
        self._asking = Asking(shards, Directory(shards), new_id)
        self._writing = Writing(shards, KernelPool() if checks_counts else None)
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

        With `checks_counts` an update after which a row would be there a negative number of
        times is refused. It reads the whole collection at every write, and once more when
        others have written to it meanwhile.
        """
        made = broker or MemoryBroker(wall_clock_ms)
        shards = Shards(made.logs, made.chunks, made.topics, now_ms=wall_clock_ms)
        return cls(shards, checks_counts=checks_counts, lease_ms=lease_ms)

    @classmethod
    def kafka(  # noqa: PLR0913  what users choose, each by name
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
        """Storage on a cluster at `host:port,...`, in the topics of `namespace`.

        `settings` are librdkafka's, TLS and SASL among them; `topics` are pairs as
        `streams.kafka.choices` reads them; `checks_counts` is as in `memory`.

        Brokers that do not answer are waited for, three minutes or so; `status` says that they
        are, and `watch` when that changes. `now_ms` is this client's clock: no outcome hangs
        on it.
        """
        client = ClientSettings(bootstrap, tuple((settings or {}).items()))
        choices = topic_choices(topics or {})
        broker = KafkaBroker(client, choices)
        patience = Patience()
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
        Users write to a collection of kind `table`. Any other is fed by the system, which keeps
        the write capability `<id>.write` and drops the user's: that one comes back useless.

        Errors: AlreadyBound, NeverReused; InvalidUsage when no topic can have the name, `start`
        is before 0, or the columns have no such types or one name twice.
        """
        commands = self._commands(critical=critical)
        return self._ask(lambda: commands.create(id_, description, start, group or id_), id_)

    def subscribe_at(
        self, capability: ReadCapability, options: Options | None = None
    ) -> Subscription:
        """The contents at the capability's frontier once they are known, then every change.

        The capability must be held for as long as the subscription lasts, at a frontier before
        what was delivered last. Returns at once; see `Subscription` for how to wait.

        Errors: NotBound, Unreadable, InvalidCapability; InvalidUsage when the options name
        columns that are not there.
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
        capability up; the last one seals the collection, and so does the expiry of the last one
        that is left if none has written since. With the new frontier equal to the old there
        must be no updates: it is a heartbeat.

        A capability that several hold may have been moved by another: `UpperMismatch` says
        where it stands now, and nothing was written.

        Shape: `updates` has the collection's columns in order, then time and diff.
        Errors: NotBound, Sealed, Forgotten, InvalidCapability, FencedCapability, NotForward,
        NothingBetween, OutsideInterval, WrongRows, NegativeMultiplicity, RepeatedCapability;
        Recount when rows are counted and others were faster again and again.
        """
        first = Write(capability, updates, bound(new_frontier))
        done = self._update([first, *also])
        if isinstance(done, UpperMismatch):
            return done
        return done if also else done[0]

    def _update(self, writes: Sequence[Write]) -> tuple[WriteCapability, ...] | UpperMismatch:
        """Write; anew when somebody was faster than the Append, which did nothing then.

        That is another writer, when rows are counted, or a collector. What the caller has
        stored beforehand only the caller can store anew (rule 7).

        Errors: Recount, Reclaimed after `TRIES` times.
        """
        commands, ids = self._commands(), [each.capability.id for each in writes]
        for _ in range(TRIES - 1):
            try:
                return self._ask(lambda: commands.update(writes), *ids)
            except Recount:
                continue
            except Reclaimed:
                if any(each.chunks for each in writes):
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
        """Keep chunks that were written beforehand from collectors, until a `Write` links them.

        They join what the collection's stage of this name holds, 4,096 chunks at most, and all
        of it lasts for `lease_ms` from now: without chunks the lease is renewed, with 0 it
        ends. Linked or not, chunks are no part of the collection before their write counts.

        Errors: NotBound, Sealed, Forgotten, InvalidCapability, FencedCapability; Reclaimed when
        a collector was faster than the first stage of a chunk: it has to be written again.
        """
        commands = self._commands()
        self._ask(
            lambda: commands.stage(capability, name, tuple(chunks), lease_ms), capability.id
        )

    def acquire_capabilities(
        self, id_: CollectionId, *, critical: bool = False, token: str = ""
    ) -> tuple[ReadCapability, WriteCapability]:
        """New capabilities at since and at upper.

        They are useless, with empty frontiers, where nothing is left to hold: both of a dropped
        collection, the write capability of a sealed one and of one that the system feeds. The
        write capability holds upper back until it is moved or dropped. A `token` fences the
        capabilities, which have to be critical.

        Errors: NotBound.
        """
        commands = self._commands(critical=critical)
        return self._ask(lambda: commands.acquire(id_, token), id_)

    def clone(self, capability: Held, *, lease_ms: int | None = None) -> Held:
        """A second capability with the same rights, at the same frontier.

        `lease_ms` is the clone's lease, by default the original's; a clone of a critical
        capability is critical unless it is given one.

        Errors: NotBound, Forgotten, InvalidCapability, FencedCapability.
        """
        commands = self._commands()
        return self._ask(lambda: commands.clone(capability, lease_ms), capability.id)

    def transfer(self, capability: Held) -> Held:
        """The same right under a name that only the caller knows; the old one is void.

        Errors: NotBound, Forgotten, InvalidCapability, FencedCapability.
        """
        commands = self._commands()
        return self._ask(lambda: commands.transfer(capability), capability.id)

    def downgrade(
        self, capability: Held, new_frontier: Antichain | int, *, token: str | None = None
    ) -> Held:
        """Move a capability forward; to the empty frontier: drop it.

        For a write capability it says that nothing happened in between. A `token` is compared
        and set: whoever presents the capability with the one before is fenced from now on.

        Errors: NotForward when it stands beyond that already, here or in the log; NotBound,
        Forgotten, InvalidCapability, FencedCapability.
        """
        commands, target = self._commands(), bound(new_frontier)
        return self._ask(lambda: commands.downgrade(capability, target, token), capability.id)

    def drop(self, held: ReadCapability | WriteCapability, *, whole: bool = False) -> None:
        """Give a capability up and, if `whole`, the collection with it.

        With the last write capability the collection is sealed. If another is left and expires
        it is not: whoever has written everything gives its own up by `update_and_downgrade`.
        With the last read capability since stays where it is. A collection that was given up
        ends when no read capability is left, dropped or expired: what others hold they can
        read until then. Then its since is empty, and it cannot be read, written or created
        again. Nor is it given up as long as somebody else may write to it. What is gone already
        is passed over.

        Errors: NotBound, FencedCapability; with `whole` InvalidCapability, StillWritable when
        another write capability is live, and InvalidUsage for what SQL has made.
        """
        commands = self._commands()
        self._ask(lambda: commands.drop(held, whole=whole), held.id)

    def heartbeat(self, capability: Held) -> Held:
        """Renew a lease; returns the capability as it stands now.

        Errors: NotBound, Forgotten, InvalidCapability when it has expired, FencedCapability.
        """
        commands = self._commands()
        return self._ask(lambda: commands.heartbeat(capability), capability.id)

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidUsage("storage is closed: open another one, capabilities stay valid")

    def _commands(self, *, critical: bool = False) -> Conversations:
        self._check_open()
        lease_ms = None if critical else self._lease_ms
        asking = self._asking
        return Conversations(self.shards, asking.directory, asking, self._writing, lease_ms)

    def _ask(self, command: Callable[[], Conversation[T]], *ids: CollectionId) -> T:
        """Have a command about these ids carried out."""
        return self._current(lambda: converse(self.shards, command()), ids)

    def _current(self, act: Callable[[], T], ids: Sequence[CollectionId]) -> T:
        """Act; once more when the topics of the ids were deleted, which was not known here.

        That is so where nobody has read the logs since: they were dropped meanwhile.
        """
        try:
            return act()
        except Unanswered:
            raise
        except Determinate:  # it had no effect
            if not self._asking.directory.leave_retired(ids):
                raise
        return act()

    def status(self) -> Status:
        """Whether the brokers answer, and which groups are followed no more, and why."""
        return self.shards.status()

    def watch(self, callback: Callable[[Status], None]) -> Callable[[], None]:
        """Call back when brokers fall silent or answer again, and when a group fails.

        Returns what ends it. The callback must be short, and must not give commands.
        """
        return self.shards.following.watch(callback)

    def close(self) -> None:
        """Release the connections; capabilities stay what they are.

        Commands from then on raise InvalidUsage. May be repeated.
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
