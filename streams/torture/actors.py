"""The actors of a run, and the collections that they share."""

from collections.abc import Callable
from random import Random
from typing import Protocol

from streams.compaction.collector import Collector, Records
from streams.compaction.merge_execution import Worker
from streams.compaction.merge_task import Limits
from streams.compaction.runner import Compaction
from streams.ids import CollectionId
from streams.storage import Storage
from streams.torture.actor_context import DESCRIPTION, ActorPlace, Target
from streams.torture.maintainers import CapabilityMover, Compactor
from streams.torture.readers import Reader
from streams.torture.writers import LeasedWriter, Writer
from streams.trace.kernel.kernel import Kernel

GROUPS = {"alone": 1, "pair": 2, "three": 3}
"""The number of collections in each group."""

NARROW = Limits(bucket_bytes=16 << 10, fetch_bytes=8 << 10)
"""So little memory that merges go through buckets on disk, sometimes."""


class Actor(Protocol):
    """A participant of the test that works in steps."""

    def step(self) -> None:
        """Do one step. Errors: Determinate, Indeterminate, both expected under faults."""


def create(storage: Storage) -> tuple[Target, ...]:
    """Create the collections, with critical capabilities that all actors share."""
    targets = []
    for group, count in GROUPS.items():
        for number in range(count):
            id_ = CollectionId(f"{group}{number}")
            read, write = storage.create(id_, DESCRIPTION, group=group, critical=True)
            targets.append(Target(id_, group, read.name, write.name))
    return tuple(targets)


def janitor(
    seat: ActorPlace,
    records: Records,
    now_ms: Callable[[], int],
    new_id: Callable[[], str],
    kernel: Kernel,
) -> Compactor:
    """Return a compactor with its own client."""
    shards = seat.storage.shards
    worker = Worker(shards, kernel, new_id, limits=NARROW)
    collector = Collector(shards, records, now_ms, grace_ms=1_000)
    return Compactor(seat, Compaction(shards, worker, collector, now_ms))


SIMPLE: dict[str, Callable[[ActorPlace], Actor]] = {
    "writer": Writer,
    "guest": LeasedWriter,
    "reader": Reader,
    "keeper": CapabilityMover,
}
"""The actors that need only a context."""


def seeded_name(rng: Random) -> str:
    """A name that the seed decides."""
    return f"{rng.getrandbits(128):032x}"
