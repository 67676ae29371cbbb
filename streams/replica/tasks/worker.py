"""Objects that a worker process keeps from task to task: kernel, Kafka clients, plans.

One object per process, created on first use. It holds no state: a worker may be killed or
forked again at any time, which costs only the re-creation.
"""

import pickle
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

from streams.kafka.client.chunks import KafkaChunks
from streams.kafka.client.raw import RawReader
from streams.kafka.log import Chunks
from streams.kafka.settings import ClientSettings
from streams.operators import common_expressions
from streams.operators.common_expressions import Wanted
from streams.operators.engine import Context
from streams.plan import json as plan_json
from streams.plan.physical import Dataflow
from streams.replica.ingest.source import Resources
from streams.replica.tasks import workplace
from streams.replica.tasks.descriptor import Clients, Descriptor
from streams.trace.arrange.runs import RunCache
from streams.trace.kernel.kernel import Kernel


@cache
def context(place: str) -> Context:
    """Return this process's evaluation context and run cache; run names are never reused."""
    where = workplace.of(place)
    return Context(where.runs, _kernel(), new_run_name, RunCache(bring=where.bring))


def keep(place: str, names: Iterable[str]) -> None:
    """Have the run files that a task has written where all tasks find them. Errors: OSError."""
    workplace.of(place).keep(names)


@cache
def _kernel() -> Kernel:
    return Kernel()


def new_run_name() -> str:
    """Return the name of a new run file."""
    return uuid.uuid4().hex


@lru_cache(maxsize=4000)
def plan(place: str, name: str) -> Dataflow:
    """Return a plan; its name is the hash of its content."""
    return plan_json.loads(workplace.of(place).plan(name))


@lru_cache(maxsize=4000)
def wanted(place: str, name: str, index: int) -> frozenset[Wanted]:
    """Return the expressions that a plan computes directly over the updates of an import."""
    return common_expressions.expressions_over(plan(place, name), index)


@lru_cache(maxsize=4)
def micro_batch(place: str, step: str) -> Descriptor:
    """Return the descriptor of a micro-batch; its name is never reused."""
    batch = pickle.loads(workplace.of(place).descriptor(step))  # noqa: S301  our own driver's
    assert isinstance(batch, Descriptor)
    return batch


@dataclass(frozen=True, slots=True)
class KafkaClients:
    """The clients of a broker."""

    settings: ClientSettings

    def chunks(self) -> KafkaChunks:
        """Return a client of data topics."""
        return KafkaChunks(self.settings)

    def messages(self) -> RawReader:
        """Return a reader of raw topics."""
        return RawReader(self.settings)


@cache
def chunks(clients: Clients) -> Chunks:
    """Return this process's client of data topics."""
    return clients.chunks()


@cache
def resources(clients: Clients, place: str) -> Resources:
    """Return this process's resources to read raw topics."""
    return Resources(clients.messages(), context(place).kernel)
