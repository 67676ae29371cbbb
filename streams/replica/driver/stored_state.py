"""The state of a replica, in its directory or in a store that executors elsewhere reach."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from pyspark import SparkContext

from streams.replica import state_files
from streams.replica.config import ReplicaConfig
from streams.replica.driver.checkpoint_store import CheckpointStore
from streams.replica.driver.task_inputs import ServedInputs
from streams.replica.spark.door_server import DoorServer, addresses
from streams.replica.tasks import workplace
from streams.replica.tasks.versions import versions
from streams.replica.tasks.workplace import Remote


def stored_state(config: ReplicaConfig) -> CheckpointStore:
    """Return what the replica stores. Errors: InvalidUsage for a store that is none."""
    if config.store is None:
        return CheckpointStore(config.state)
    files = state_files.opened(config.store.uri).below(config.store.folder)
    return CheckpointStore(config.state, files, ServedInputs())


@contextmanager
def serving(
    store: CheckpointStore, config: ReplicaConfig, context: SparkContext
) -> Iterator[None]:
    """While it is open, executors that share no directory can ask for what they need."""
    if config.store is None or not isinstance(store.inputs, ServedInputs):
        yield
        return
    told = config.store
    if context.master.startswith("local") and not told.cache:
        told = replace(told, cache=str(config.state / "cache"))
    server = DoorServer("inputs", partial(workplace.serve, answers=store.inputs))
    door = server.start(*addresses(context))
    store.inputs.place = workplace.told(Remote(door, told, versions()))
    try:
        yield
    finally:
        server.stop()
