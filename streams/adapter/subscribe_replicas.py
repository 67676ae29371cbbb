"""SUBSCRIBE by replicas: intervals of the compute protocol, as the results of a statement.

A replica reads its shards and the coordinator passes on what it says. It is asked for the whole
object. What the client has taken is acknowledged from time to time; replicas deliver little
beyond it, and the history behind it is let go. What they cannot deliver, as a time with more
changes than an answer may have, the coordinator reads, and all that follows (D446).
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty

import pyarrow as pa
import pyarrow.compute as pc

from streams.adapter.catalog import Item
from streams.adapter.copy_peeks import controller_of
from streams.adapter.index_reads import everything
from streams.adapter.instances import Instances
from streams.adapter.read_errors import refuse_nonsense
from streams.adapter.read_holds import Guard
from streams.adapter.results import Complete, Notice, Progress, Result
from streams.adapter.row_encoding import change_rows
from streams.compute.arrow_rows import answered_updates
from streams.compute.controller import Controller
from streams.compute.protocol import replica_of
from streams.compute.subscribes import Subscribe, SubscribeBatch, SubscribeError
from streams.errors import Corrupt, SlackwaterError
from streams.ids import Timestamp
from streams.plan.sql import subscribe as sql
from streams.progress import end_of, frontier
from streams.storage.client.shards import fresh_uuid
from streams.trace.kernel.kernel import Kernel

log = logging.getLogger(__name__)

BEAT_S = 1.0
ACKNOWLEDGED_BYTES = 256 << 10
"""Bytes after which the client's progress is acknowledged."""

ACKNOWLEDGE_S = 5.0
"""Longest time between acknowledgements, however little was delivered."""

PATIENT_BEATS = 3
"""Number of beats without anything after which it says that no replica is live."""

Deliver = Callable[[Timestamp, Guard], Iterator[Result]]
"""Yields what a subscribe delivers from a time on, and moves the guard."""


class Undelivered(SlackwaterError):
    """Replicas cannot deliver from `lower` on."""

    def __init__(self, lower: Timestamp, why: str) -> None:
        super().__init__(why)
        self.lower = lower


def delivered(
    results: Iterator[Result], by_itself: Callable[[Timestamp], Iterator[Result]]
) -> Iterator[Result]:
    """Yield what replicas deliver, and from where they cannot what the coordinator reads.

    What is in the data, as an error or a drop, it finds there as they did.
    """
    try:
        yield from results
    except Undelivered as failure:
        lower, why = failure.lower, str(failure)
    else:
        return
    yield Notice(f"the coordinator reads from {lower} on; replicas cannot: {why}")
    yield from by_itself(lower)


def by_replicas(statement: sql.Subscribe, item: Item, instances: Instances) -> Deliver | None:
    """Return how replicas deliver; None if the statement does not ask for them.

    Errors: InvalidStatement if there is no such replica.
    """
    if statement.replica:
        controller = controller_of(statement.replica, instances)
    elif statement.by_replicas:
        controller = instances.of(item.cluster)
    else:
        return None
    return ReplicaDelivery(controller, statement, item).deliver


@dataclass(frozen=True, slots=True)
class ReplicaDelivery:
    """One statement, delivered by the replicas of a controller."""

    controller: Controller
    statement: sql.Subscribe
    item: Item

    def deliver(self, as_of: Timestamp, guard: Guard) -> Iterator[Result]:
        """Yield rows and progress; closing it cancels.

        Errors: InvalidStatement for nonsense; Undelivered.
        """
        subscribe = self._subscribe(as_of)
        uuid, reached, kernel = subscribe.uuid, subscribe.first, Kernel()
        acknowledged, unacknowledged, at, beats = reached, 0, time.monotonic(), 0
        try:
            deliveries = self.controller.subscribe(subscribe)
            while True:
                is_late = reached > acknowledged and time.monotonic() - at >= ACKNOWLEDGE_S
                if unacknowledged >= ACKNOWLEDGED_BYTES or is_late:
                    if self._acknowledge(uuid, reached, guard):
                        acknowledged = reached
                    unacknowledged, at = 0, time.monotonic()
                try:
                    outcome = deliveries.get(timeout=BEAT_S)
                except Empty:
                    beats += 1
                    if beats == PATIENT_BEATS and not self._is_served():
                        yield Notice(f"waits for {self._whom()}, none of which is live")
                    yield Progress(frontier(reached))
                    continue
                beats = 0
                batch = self._taken(outcome)
                yield from change_rows(self.item.columns, self._rows(batch), kernel)
                yield Progress(batch.upper)
                if batch.upper.is_empty:
                    yield Complete("SUBSCRIBE")
                    return
                reached = batch.upper.time
                unacknowledged += len(batch.updates)
        finally:
            with suppress(SlackwaterError):
                self.controller.cancel_subscribe(uuid)

    def _subscribe(self, as_of: Timestamp) -> Subscribe:
        item = self.item
        return Subscribe(
            uuid=fresh_uuid(),
            collection=item.id,
            group=item.group,
            as_of=as_of,
            plan=everything(item),
            project=tuple(range(len(item.columns))),
            snapshot=self.statement.snapshot,
            until=self.statement.until,
            replica=self.statement.replica,
        )

    def _is_served(self) -> bool:
        """Whether a replica is live that was asked."""
        live = {replica_of(process) for process in self.controller.observed.replicas}
        return bool(live & {self.statement.replica} if self.statement.replica else live)

    def _whom(self) -> str:
        name = self.statement.replica
        return f"the processes of replica {name}" if name else "the replicas of the cluster"

    def _acknowledge(self, uuid: str, upper: Timestamp, guard: Guard) -> bool:
        """Return whether it was sent: replicas wait for it when they are far ahead."""
        try:
            self.controller.acknowledge(uuid, upper)
        except SlackwaterError as failure:
            log.warning("an acknowledgement was not sent", extra={"cause": str(failure)})
            return False
        guard.downgrade(Timestamp(upper - 1))
        return True

    def _taken(self, outcome: object) -> SubscribeBatch:
        """Errors: Undelivered."""
        if isinstance(outcome, SubscribeError):
            raise Undelivered(outcome.lower, outcome.message)
        assert isinstance(outcome, SubscribeBatch), "a drop is never handed over"
        return outcome

    def _rows(self, batch: SubscribeBatch) -> pa.RecordBatch:
        """Return the updates of a batch that no other replica has delivered.

        Errors: InvalidStatement if it is not what a replica may say.
        """
        types = [column.type for column in self.item.columns]
        with refuse_nonsense(self.item.name):
            updates = answered_updates(batch.updates, batch.count, types)
            times = updates.column("time")
            last = pc.max(times).as_py()
            if last is not None and last >= end_of(batch.upper):
                upper = batch.upper.time
                raise Corrupt(f"expected updates before {upper}, actual one at {last}")
        return updates.filter(pc.greater_equal(times, batch.lower))
