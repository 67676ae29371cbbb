"""Why a collection does not reach a time, as its replicas say. Pure.

A read that waits tells its user; a dataflow that failed is tried again, so the read goes on
waiting for a while.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from streams.adapter.catalog import Catalog, Item
from streams.adapter.cluster_status import Observed
from streams.ids import DEFAULT_CLUSTER, Timestamp

FAILED = "failed"
LATE = frozenset({FAILED, "stalled"})
"""States of a `Status` in which a dataflow does not move on."""

NO_REPLICA = "no replica runs"


def no_replica(cluster: str) -> str:
    """Return what to say of a cluster without a live replica."""
    return NO_REPLICA if cluster == DEFAULT_CLUSTER else f"{NO_REPLICA} in cluster {cluster}"


@dataclass(frozen=True, slots=True)
class Delay:
    """The cause that holds a collection up. With `has_failed` it may last."""

    cause: str
    has_failed: bool


def delay_of(item: Item, catalog: Catalog, observed: Observed) -> Delay | None:
    """Return what holds a collection up: of all that it depends on, what comes first."""
    causes = _upstream(item, catalog)
    for cause in causes:
        if observed.of(cause).is_deserted:
            return Delay(no_replica(cause.cluster), has_failed=False)
    for cause in causes:
        status = observed.report(cause).status
        if status is not None and status.state in LATE:
            message = f"{cause.name} has {status.state}: {status.message}"
            return Delay(message, has_failed=status.state == FAILED)
    return None


def _upstream(item: Item, catalog: Catalog) -> list[Item]:
    """Return an item and all that it waits for, inputs first."""
    stack, wanted = [item], {item.id: item}
    while stack:
        item = stack.pop()
        if item.kind == "rebase":  # its time goes on, whatever holds up its input
            continue
        inputs = [catalog.items.get(id_) for id_ in item.inputs]
        fresh = [item for item in inputs if item is not None and item.id not in wanted]
        wanted.update({item.id: item for item in fresh})
        stack.extend(fresh)
    return sorted(wanted.values(), key=lambda item: item.number)


@dataclass(slots=True)
class Delays:
    """The delays that one read has reported while it waits for `time`.

    It ends after `most` beats in a row in which something has failed; None is never.
    """

    time: Timestamp
    delay: Callable[[Item], Delay | None]
    most: int | None
    told: str = ""
    failing: int = field(default=0)

    def beat(self, behind: Sequence[Item]) -> Iterator[str]:
        """Yield what is new about the collections that are behind.

        Errors: TimeoutError with the cause.
        """
        delayed = [(item, delay) for item in behind if (delay := self.delay(item)) is not None]
        failed = [pair for pair in delayed if pair[1].has_failed]
        self.failing = self.failing + 1 if failed else 0
        if not delayed:
            return
        item, delay = (failed or delayed)[0]
        if self.most is not None and self.failing >= self.most:
            raise TimeoutError(f"{item.name} has not reached {self.time}: {delay.cause}")
        if delay.cause != self.told:
            self.told = delay.cause
            yield f"waits for {item.name}: {delay.cause}"
