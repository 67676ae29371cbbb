"""What a worker process keeps from task to task: kernel, Kafka clients, plans it has read.

One object a process, made on first use. Nothing in it is state: a worker may be killed or
forked anew at any time, and that costs only the making again.
"""

import uuid
from functools import cache, lru_cache
from pathlib import Path

from streams.kafka.chunks import KafkaChunks
from streams.kafka.raw import RawReader
from streams.kafka.settings import ClientSettings
from streams.operators import shared
from streams.operators.engine import Context
from streams.operators.shared import Wanted
from streams.plan import json as plan_json
from streams.plan.physical import Dataflow
from streams.replica import descriptor
from streams.replica.descriptor import Descriptor
from streams.replica.ingest.source import Resources
from streams.trace.kernel import Kernel


@cache
def context(state: str) -> Context:
    """Where this process evaluates and keeps runs; run names are never used twice."""
    return Context(Path(state) / "runs", Kernel(), _new_name)


def _new_name() -> str:
    return uuid.uuid4().hex


@lru_cache(maxsize=4000)
def plan(state: str, name: str) -> Dataflow:
    """The plan of a file; its name is the hash of its content."""
    return plan_json.loads((Path(state) / "plans" / name).read_text())


@lru_cache(maxsize=4000)
def wanted(state: str, name: str, index: int) -> frozenset[Wanted]:
    """What the plan of a file computes of the updates of an import themselves."""
    return shared.wanted(plan(state, name), index)


@lru_cache(maxsize=4)
def micro_batch(state: str, step: str) -> Descriptor:
    """The descriptor of a micro-batch; its name is never used twice."""
    return descriptor.read(Path(state), step)


@cache
def chunks(settings: ClientSettings) -> KafkaChunks:
    """This process's client of data topics."""
    return KafkaChunks(settings)


@cache
def resources(settings: ClientSettings, state: str) -> Resources:
    """This process's means to read raw topics."""
    return Resources(RawReader(settings), context(state).kernel)
