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
from streams.replica.spark.task_rpc_server import TaskRpcServer, addresses
from streams.replica.tasks import workplace
from streams.replica.tasks.versions import versions
from streams.replica.tasks.workplace import Remote


@contextmanager
def state_in_store(
    config: ReplicaConfig, instance: str, context: SparkContext
) -> Iterator[CheckpointStore]:
    """Yield what the replica stores; while it is open executors can ask for their inputs.

    `instance` is unique in the world: state of another Kafka under the same names is another's.
    Errors: InvalidUsage for a store that is none; Indeterminate if it cannot be reached.
    """
    assert config.store is not None, "the configuration has a store"
    store = replace(config.store, folder=f"{config.store.folder}/{instance}")
    if context.master.startswith("local") and not store.cache:
        store = replace(store, cache=str(config.state / "cache"))
    files, inputs = state_files.opened(store.uri).below(store.folder), ServedInputs()
    server = TaskRpcServer("inputs", partial(workplace.serve, answers=inputs))
    door = server.start(*addresses(context))
    try:
        inputs.place = workplace.dumps(Remote(door, store, versions()))
        yield CheckpointStore(config.state, files, inputs)
    finally:
        server.stop()
