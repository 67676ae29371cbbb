"""Finds out what the checks judge: reads files, runs Java, imports Spark, asks brokers."""

import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from streams.app.client import Client
from streams.app.doctor import brokers, machine
from streams.app.doctor.facts import (
    ClockReport,
    ClusterReport,
    CoordinatorReport,
    DiskFacts,
    JavaFacts,
    MachineFacts,
    SparkFacts,
    TopicsReport,
    Verdict,
)
from streams.app.service_config import read_service
from streams.app.service_process import now_ms
from streams.errors import InvalidUsage, SlackwaterError
from streams.ids import Topic
from streams.java import find_java, package_directory, version_of
from streams.kafka.client import inspection
from streams.kafka.settings import ClientSettings
from streams.kafka.topic_settings import topic_choices
from streams.kafka.topics import SINGLE_BROKER, Durability
from streams.trace.arrange import disk_reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is looked at: this machine, and brokers if `kafka` names some.

    `url` is the coordinator's, of an environment; `topics` are the choices of `--topic`.
    """

    directory: Path
    kafka: ClientSettings | None = None
    namespace: str = ""
    url: str = ""
    topics: Mapping[str, str] = field(default_factory=dict)
    may_write: bool = True


def verdicts(target: Target) -> Iterator[Verdict]:
    """Yield what each check says, as soon as it is known. Errors: InvalidUsage."""
    yield from of_machine(machine_facts(target.directory))
    if target.kafka is None:
        return
    report = cluster_report(target.kafka)
    yield brokers.reach(report)
    if report.cluster is not None:
        yield from of_brokers(target, target.kafka, report)
    if target.url:
        answers = Client(target.url).is_ready()
        directory = str(target.directory)
        yield brokers.coordinator(
            CoordinatorReport(directory=directory, url=target.url, answers=answers)
        )


def of_machine(facts: MachineFacts) -> Iterator[Verdict]:
    """The checks of this machine."""
    yield machine.python(facts.python)
    yield machine.java(facts.java)
    yield machine.spark(facts.spark)
    yield machine.disk(facts.disk)


def of_brokers(
    target: Target, kafka: ClientSettings, report: ClusterReport
) -> Iterator[Verdict]:
    """The checks of brokers that answer."""
    assert report.cluster is not None, "a broker has answered"
    count = len(report.cluster.brokers)
    durability = durability_of(target, count)
    yield brokers.version(report)
    yield brokers.durability(report, durability)
    yield brokers.clock(clock_report(target, kafka, min(count, durability.replication)))
    topics = topics_report(kafka, target.namespace, durability)
    yield brokers.settings(topics)
    yield brokers.in_sync(topics)


def durability_of(target: Target, count: int) -> Durability:
    """How durable topics are to be: as was chosen here, else by the environment, else by us."""
    chosen: Mapping[str, str] = target.topics
    if not chosen:
        with suppress(InvalidUsage):  # no environment, or one of another version
            chosen = read_service(target.directory / "coordinator.json").topics
    default = SINGLE_BROKER if count == 1 else Durability()
    return topic_choices(chosen).durability or default


def machine_facts(directory: Path) -> MachineFacts:
    """Look at this machine."""
    return MachineFacts(
        python=sys.version_info[:2],
        java=java_facts(),
        spark=spark_facts(),
        disk=disk_facts(directory),
    )


def java_facts() -> JavaFacts:
    """Run the Java that Spark would run."""
    try:
        java = find_java()
    except SlackwaterError as error:
        return JavaFacts(problem=str(error))
    return JavaFacts(path=str(java), version=version_of(java))


def spark_facts() -> SparkFacts:
    """Import PySpark."""
    try:
        version = str(import_module("pyspark").__version__)
        import_module("pyspark.sql")
    except Exception as error:  # noqa: BLE001  whatever its modules raise
        return SparkFacts(problem=f"{type(error).__name__}: {error}")
    package = package_directory("pyspark")
    has_jars = package is not None and any((package / "jars").glob("spark-core_*.jar"))
    return SparkFacts(version=version, has_jars=has_jars)


def disk_facts(directory: Path) -> DiskFacts:
    """Look at the disk of a directory, or where it would be made."""
    there = next(place for place in (directory, *directory.parents) if place.exists())
    if not there.is_dir():
        return DiskFacts(directory=str(directory), problem=f"{there} is no directory")
    if not os.access(there, os.W_OK | os.X_OK):
        return DiskFacts(directory=str(directory), problem=f"{there} cannot be written")
    try:
        free, total = disk_reserve.usage(there)
    except OSError as error:
        return DiskFacts(directory=str(directory), problem=str(error))
    return DiskFacts(directory=str(directory), free=free, total=total)


def cluster_report(kafka: ClientSettings) -> ClusterReport:
    """Ask all brokers. Errors: InvalidUsage if the client's settings are refused."""
    try:
        return ClusterReport(address=kafka.bootstrap, cluster=inspection.cluster(kafka))
    except InvalidUsage:
        raise
    except SlackwaterError as error:
        return ClusterReport(address=kafka.bootstrap, problem=str(error))


def clock_report(target: Target, kafka: ClientSettings, copies: int) -> ClockReport:
    """Compare the clocks, if a topic may be made for it."""
    if not target.may_write:
        return ClockReport(problem="not compared: --read-only makes no topic for it")
    topic = Topic(f"{target.namespace}.doctor-{uuid.uuid4().hex[:8]}")
    try:
        return ClockReport(clock=inspection.clock(kafka, topic, copies, now_ms))
    except SlackwaterError as error:
        return ClockReport(problem=f"not compared: {error}")


def topics_report(
    kafka: ClientSettings, namespace: str, durability: Durability
) -> TopicsReport:
    """Look at the topics of a namespace."""
    try:
        topics = inspection.found_topics(
            kafka, lambda names: list(brokers.specs_of(namespace, names))
        )
    except SlackwaterError as error:
        return TopicsReport(namespace=namespace, problem=str(error))
    return TopicsReport(namespace=namespace, durability=durability, found=topics)
