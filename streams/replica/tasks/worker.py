"""Objects that a worker process keeps from task to task: kernel, Kafka clients, plans.

One object per process, created on first use. It holds no state: a worker may be killed or
forked again at any time, which costs only the re-creation.
"""

import uuid
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

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
from streams.replica.tasks import descriptor
from streams.replica.tasks.descriptor import Clients, Descriptor
from streams.trace.kernel.kernel import Kernel


@cache
def context(state: str) -> Context:
    """Return this process's evaluation context and run cache; run names are never reused."""
    return Context(Path(state) / "runs", _kernel(), _new_name)


@cache
def _kernel() -> Kernel:
    return Kernel()


def _new_name() -> str:
    return uuid.uuid4().hex


@lru_cache(maxsize=4000)
def plan(state: str, name: str) -> Dataflow:
    """Return the plan in a file; its name is the hash of its content."""
    return plan_json.loads((Path(state) / "plans" / name).read_text())


@lru_cache(maxsize=4000)
def wanted(state: str, name: str, index: int) -> frozenset[Wanted]:
    """Return the expressions that a plan computes directly over the updates of an import."""
    return common_expressions.expressions_over(plan(state, name), index)


@lru_cache(maxsize=4)
def micro_batch(state: str, step: str) -> Descriptor:
    """Return the descriptor of a micro-batch; its name is never reused."""
    return descriptor.read(Path(state), step)


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
def resources(clients: Clients, state: str) -> Resources:
    """Return this process's resources to read raw topics."""
    return Resources(clients.messages(), context(state).kernel)
