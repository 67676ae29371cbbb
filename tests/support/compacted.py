"""Shards of the sparkless world whose history is let go and merged."""

import itertools

from streams.compaction import plan
from streams.compaction.merge_execution import Compacted, Worker
from streams.ids import CapabilityId, CollectionId
from streams.progress import frontier
from streams.storage.log.events import Acquire, Downgrade, Right
from streams.trace.kernel.kernel import Kernel
from tests.support.sparkless import World


def hold(world: World, name: str) -> None:
    """Keep the history of a collection until `compact`."""
    acquire = Acquire(collection=CollectionId(name), capability=_of(name), right=Right.READ)
    world.shards.submit([(name, acquire)])


def compact(world: World, name: str) -> None:
    """Let all history of a collection go, and merge everything."""
    collection = CollectionId(name)
    world.shards.sync()
    to = frontier(world.upper(name) - 1)
    downgrade = Downgrade(collection=collection, capability=_of(name), frontier=to)
    world.shards.submit([(name, downgrade)])
    numbers = itertools.count()
    worker = Worker(world.shards, Kernel(), lambda: f"stage-{next(numbers)}")
    for merge in plan.whole(world.shards.state(collection)):
        assert isinstance(worker.compact(collection, merge), Compacted)


def _of(name: str) -> CapabilityId:
    return CapabilityId(f"{name}.catalog")
