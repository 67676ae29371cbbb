"""SubscribeAt: the contents at a time, then every change at its time.

    as_of           the frontier of the read capability that was presented
    1st delivery    the contents at as_of, once as_of is not beyond upper; left out on request
    next ones       the updates at the times [last upper, this upper), each at its time
    `upper`         in each delivery: all updates at times not beyond it have been delivered;
                    empty when none will follow

The log and the chunks are read directly, so no server has to run, and a client can resume from
any time that it still holds: subscribe without a snapshot at the capability's frontier t, and
the first updates are those at t + 1.

The capability has to be held all the time; a client that has stored everything up to t may
downgrade it to t. If the capability expires, or it or the collection is dropped, the
subscription ends with an error: that is how the other side cancels. The subscriber calls
`cancel`.

No thread is needed: `poll` returns what has arrived, `subscribe` calls back when there may be
more; `wait` and iteration block.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streams.errors import InvalidUsage
from streams.ids import MINIMUM_TIME, Timestamp
from streams.progress import EMPTY, END, Antichain, frontier
from streams.storage.client.handles import FencedCapability, ReadCapability, not_held
from streams.storage.client.lifecycle import Command, check
from streams.storage.client.shards import Shards
from streams.storage.description import Description
from streams.storage.log.events import Right
from streams.storage.log.state import CollectionState
from streams.storage.read.options import Options, selection
from streams.storage.read.reader import (
    Loaded,
    advance_times,
    changes,
    end,
    is_complete,
    load_stable,
)
from streams.trace.kernel.pool import KernelPool
from streams.trace.updates import consolidate, flatten

SLICE_MS = 1_000
"""Interval at which a waiter checks whether it was cancelled."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of a subscription.

    Shape: `updates` has the columns asked for as c0 .. cn, time, diff; `errors` error, time,
    diff. Both may be empty: then only time has passed.
    """

    updates: pa.Table
    errors: pa.Table
    upper: Antichain


class Subscription:
    """A subscriber's position in a collection; only one thread at a time may poll it."""

    def __init__(
        self,
        shards: Shards,
        capability: ReadCapability,
        description: Description,
        options: Options,
        kernels: KernelPool | None = None,
    ) -> None:
        self.capability = capability
        as_of = capability.frontier.time
        if options.until is not None and options.until <= as_of:
            raise InvalidUsage(f"expected until beyond {as_of}, actual {options.until}")
        self._shards = shards
        self._selection = selection(options, description)
        self._until = END if options.until is None else options.until
        self._snapshot: Timestamp | None = as_of if options.snapshot else None
        self._next = Timestamp(as_of + (not options.snapshot))
        self._kernels = kernels or KernelPool()
        self._cancelled = threading.Event()
        self._ended = self._until <= self._next and self._snapshot is None

    @property
    def upper(self) -> Antichain:
        """All updates at times before it have been delivered."""
        return EMPTY if self._ended else frontier(self._next)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be delivered."""
        return self._ended or self._cancelled.is_set()

    def poll(self) -> Delivery | None:
        """Return the updates since the last poll; None if there are none, or at the end.

        Errors: InvalidCapability, Unreadable, SinceViolation if since has passed the next
        delivery; Corrupt, Determinate, and the group's failure.
        """
        return self.next(timeout_ms=1)

    def next(self, timeout_ms: int) -> Delivery | None:
        """Wait for the next delivery. Errors: as `poll`."""
        if not self.wait(timeout_ms) or self.is_over:
            return None
        collection = self._held()
        if self._snapshot is not None:
            return self._deliver_snapshot(collection, self._snapshot)
        return self._deliver_changes(collection)

    def wait(self, timeout_ms: int) -> bool:
        """Wait; return whether a delivery or the end came in time. Errors: as `poll`."""
        if self.is_over:
            return True
        group = self._shards.group_of(self.capability.id)
        return self._shards.wait(lambda: self.is_over or self._is_ready(), timeout_ms, (group,))

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when a poll may return something; return a function that unsubscribes.

        The callback runs in the folding thread: it must be short and must not poll.
        """
        group = self._shards.group_of(self.capability.id)
        return self._shards.subscribe(lambda _: callback(), group)

    def cancel(self) -> None:
        """Stop deliveries; a waiting thread returns soon."""
        self._cancelled.set()

    def __iter__(self) -> Iterator[Delivery]:
        """Yield every delivery to the end, blocking in between."""
        while not self.is_over:
            delivery = self.next(SLICE_MS)
            if delivery is not None:
                yield delivery

    def _is_ready(self) -> bool:
        collection = self._held()
        if self._snapshot is not None:
            return is_complete(collection, self._snapshot)
        return min(end(collection), self._until) > self._next

    def _held(self) -> CollectionState:
        """Return the collection. Errors: InvalidCapability if ours is not valid any more."""
        id_ = self.capability.id
        collection = self._shards.state(id_)
        check(Command.SUBSCRIBE, id_, collection)
        capability = collection.capabilities.get(self.capability.name)
        if capability is None or capability.right is not Right.READ:
            group = self._shards.group_of(id_)
            raise not_held(self._shards.group_state(group), self.capability)
        if capability.token != self.capability.token:
            raise FencedCapability(id_)
        return collection

    def _deliver_snapshot(self, collection: CollectionState, as_of: Timestamp) -> Delivery:
        past = Timestamp(min(as_of + 1, END))  # all times of updates are earlier
        updates, errors = self._load(collection, (MINIMUM_TIME, past), as_of)
        delivery = self._delivered(
            (advance_times(updates, as_of), advance_times(errors, as_of)), past
        )
        self._snapshot = None
        return delivery

    def _deliver_changes(self, collection: CollectionState) -> Delivery:
        news = changes(
            self._shards, collection, self._next, until=self._until, selection=self._selection
        )
        return self._delivered((news.updates, news.errors), news.upper)

    def _load(
        self,
        collection: CollectionState,
        interval: tuple[Timestamp, Timestamp],
        as_of: Timestamp,
    ) -> Loaded:
        return load_stable(self._shards, collection.id, interval, as_of, self._selection)

    def _delivered(self, loaded: Loaded, upper: Timestamp) -> Delivery:
        updates, errors = loaded
        rows = updates if updates.num_rows else self._selection.result.empty_table()
        if rows.num_rows and pc.min(rows.column("diff")).as_py() < 0:
            rows = self._consolidated(rows)
        self._next = upper
        self._ended = upper >= self._until
        return Delivery(rows, errors, self.upper)

    def _consolidated(self, rows: pa.Table) -> pa.Table:
        whole = flatten([rows], self._selection.result)
        with self._kernels.lent() as kernel:
            return pa.Table.from_batches([consolidate(whole, kernel)])
