"""The configuration of a replica process; everything else comes from the command topic."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streams.copies.targets import NOWHERE, CopyTargets
from streams.ids import Topic
from streams.kafka.settings import ClientSettings
from streams.replica.spark.session import SparkSettings
from streams.replica.state_files import RunStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Limits of one micro-batch. One batch of a shard is never divided.

    Units: `step_bytes` and `slice_bytes` of stored chunks to read, `messages` of a raw topic
    and their `message_bytes`, as far as samples tell. `index_bytes` of memory are for all
    indexes of the replica together.
    """

    step_bytes: int = 32 << 20
    slice_bytes: int = 16 << 20
    messages: int = 500_000
    message_bytes: int = 128 << 20
    index_bytes: int = 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    """One replica of an instance.

    `name` is permanent: the replica's holds have it in their names. `state` is a directory of
    its own; losing it costs only a hydration. `points` maps crash points to the hit count that
    kills, for tests (`streams.replica.crash_injection`). With `timings` every micro-batch
    writes a line to `timings.jsonl` there.

    `deadline_s` is the limit for the tasks of a micro-batch with almost no input; larger ones
    have more time (`streams.replica.driver.deadlines`). A copy-to may write below `copy_to`.
    With a `store` run files and checkpoints are there, and not in `state`.
    """

    name: str
    kafka: ClientSettings
    commands: Topic
    responses: Topic
    state: Path
    spark: SparkSettings = field(default_factory=SparkSettings)
    budgets: Budgets = field(default_factory=Budgets)
    tick_ms: int = 1000
    checkpoint_ms: int = 5000
    deadline_s: float = 60.0
    timings: bool = False
    points: Mapping[str, int] = field(default_factory=dict)
    copy_to: CopyTargets = NOWHERE
    store: RunStore | None = None
