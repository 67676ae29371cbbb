"""What a coordinator is given: its settings, and the parts of the Kafka cluster."""

from dataclasses import dataclass

from streams.compute.parameters import DEFAULTS, ComputeParameters
from streams.copies.targets import NOWHERE, CopyTargets
from streams.ids import Topic
from streams.kafka.log import Chunks, Logs
from streams.kafka.topic_settings import DEFAULT_DATA_PARTITIONS
from streams.kafka.topics import Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """Settings of a coordinator.

    `retain_ms` of history, before the newest time, stay readable in objects without a read
    policy of their own. New data topics get `data_partitions` partitions. COPY writes to
    `copy_to` alone. Replicas go by `parameters`.
    """

    namespace: str = "sw"
    buckets: int = 2
    retain_ms: int = 3_600_000
    data_partitions: int = DEFAULT_DATA_PARTITIONS
    copy_to: CopyTargets = NOWHERE
    parameters: ComputeParameters = DEFAULTS


@dataclass(frozen=True, slots=True)
class Cluster:
    """The parts of the Kafka cluster that the coordinator uses."""

    logs: Logs
    chunks: Chunks
    topics: Topics


def catalog_topic(namespace: str) -> Topic:
    """The topic of the catalog's log."""
    return Topic(f"{namespace}.catalog")
