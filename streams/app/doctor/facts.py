"""Facts that checks judge, and the verdicts that come of them. Plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from streams.ids import Topic
from streams.kafka.client.inspection import ClockFacts, ClusterFacts
from streams.kafka.topics import Durability, Found

Status = Literal["ok", "wrong", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a check found, and what to do if that is wrong; unknown: it could not be checked."""

    check: str
    status: Status
    found: str
    do: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaFacts:
    """The Java that would run: its path and feature release; or why there is none."""

    path: str = ""
    version: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFacts:
    """PySpark: its version, whether it has Spark's jars; or why it cannot be imported."""

    version: str = ""
    has_jars: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """The disk of a directory, in bytes; or why it cannot be used."""

    directory: str
    free: int = 0
    total: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """This machine, as far as a service depends on it."""

    python: tuple[int, int]
    java: JavaFacts
    spark: SparkFacts
    disk: DiskFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """Brokers that were looked for at an address: the cluster, or why none has answered."""

    address: str
    cluster: ClusterFacts | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReport:
    """A broker's clock and ours; or why they could not be compared."""

    clock: ClockFacts | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsReport:
    """The topics of a namespace, and how durable they are to be; or why they are unknown."""

    namespace: str
    durability: Durability = field(default_factory=Durability)
    found: Mapping[Topic, Found] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorReport:
    """The coordinator of the environment in a directory, and whether it answers."""

    directory: str
    url: str
    answers: bool
