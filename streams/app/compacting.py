"""What a round of compaction is made of: clients, the groups there are, a Spark session."""

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from streams.adapter.catalog_log import CatalogLog
from streams.adapter.coordinator import catalog_topic
from streams.app.environment import find
from streams.app.services import new_id, now_ms
from streams.compaction.collector import Collector
from streams.compaction.policy import LagBehindUpper, Policy, Until
from streams.compaction.runner import Compaction, Merging, Round, Wish
from streams.compaction.work import Worker
from streams.errors import InvalidUsage, SlackwaterError
from streams.ids import CollectionId, Timestamp, Topic
from streams.kafka.broker import KafkaBroker
from streams.kafka.raw import RawReader
from streams.kafka.settings import ClientSettings
from streams.storage.shards import Shards
from streams.trace.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Place:
    """Where to compact: a cluster and the namespace of our topics on it."""

    kafka: ClientSettings
    namespace: str


def environment(directory: Path) -> Place:
    """The environment that runs in the directory. Errors: InvalidUsage when none does."""
    _, kafka, namespace = find(directory.absolute())
    return Place(kafka, namespace)


def run(
    place: Place, wish: Wish, collection: str, master: str | None
) -> tuple[Round, dict[str, str]]:
    """One round; what it did, and what failed of what.

    `collection` is a name or an id, empty for all. `master` is Spark's: empty for what its own
    configuration says, None for no Spark.

    Errors: InvalidUsage when there is no such collection; Determinate, Indeterminate.
    """
    with ExitStack() as stack:
        broker, shards = stack.enter_context(connected(place))
        failures = open_groups(shards, groups_of(place.namespace, broker.topics.names()))
        if collection:
            wanted = named(broker, shards, place.namespace, collection)
            wish = replace(wish, collections=frozenset({wanted}))
        merging = worker(shards) if master is None else on_spark(stack, shards, place, master)
        job = stack.enter_context(compaction(shards, place.kafka, merging))
        done = job.run_once(wish)
        failures |= {each.collection: each.reason for each in done.failed}
        return done, failures


def groups_of(namespace: str, topics: frozenset[Topic]) -> list[str]:
    """The groups among the topics: those with a log and a data topic."""
    start, end = f"{namespace}.", ".log"
    names = [each for each in topics if each.startswith(start) and each.endswith(end)]
    stems = [name.removesuffix(end) for name in names]
    return sorted(stem.removeprefix(start) for stem in stems if f"{stem}.data" in topics)


def open_groups(shards: Shards, groups: list[str]) -> dict[str, str]:
    """Open what can be opened; the others with the reason.

    All at once, and one by one only when one of them fails.
    """
    try:
        shards.open(*groups)
    except SlackwaterError:
        return {group: why for group in groups if (why := _failure(shards, group))}
    return {}


def _failure(shards: Shards, group: str) -> str:
    try:
        shards.open(group)
    except SlackwaterError as error:
        return str(error)
    return ""


@contextmanager
def connected(place: Place) -> Iterator[tuple[KafkaBroker, Shards]]:
    """A client of shards that follows no group yet."""
    broker = KafkaBroker(place.kafka)
    try:
        shards = Shards(
            broker.logs,
            broker.chunks,
            broker.topics,
            namespace=place.namespace,
            now_ms=now_ms,
            pump=True,
        )
        try:
            yield broker, shards
        finally:
            shards.close()
    finally:
        broker.close()


def named(broker: KafkaBroker, shards: Shards, namespace: str, name: str) -> CollectionId:
    """The collection of this name in the catalog, or of this id.

    Errors: InvalidUsage when there is none.
    """
    topic = catalog_topic(namespace)
    if broker.topics.describe(topic) is not None:
        catalog = CatalogLog(broker.logs, topic, new_id)
        try:
            for item in catalog.sync().ordered():
                if item.name == name:
                    return item.id
        finally:
            catalog.close()
    shards.group_of(CollectionId(name))
    return CollectionId(name)


def policy_of(since: int | None, lag_ms: int | None) -> Policy | None:
    """The read policy that the options say. Errors: InvalidUsage for both."""
    if since is not None and lag_ms is not None:
        raise InvalidUsage("expected --since or --lag, got both")
    if since is not None:
        return Until(Timestamp(since))
    return None if lag_ms is None else LagBehindUpper(lag_ms)


@contextmanager
def compaction(shards: Shards, kafka: ClientSettings, merging: Merging) -> Iterator[Compaction]:
    """The job over what `shards` follows."""
    records = RawReader(kafka)
    try:
        collector = Collector(shards, records, now_ms)
        yield Compaction(shards, merging, collector, now_ms)
    finally:
        records.close()


def worker(shards: Shards) -> Merging:
    """Merges in this process."""
    return Worker(shards, Kernel(), new_id)


def on_spark(stack: ExitStack, shards: Shards, place: Place, master: str) -> Merging:
    """Merges on Spark, by a session that ends with the stack."""
    job = importlib.import_module("streams.compaction.job")  # only who wants Spark loads it
    session = stack.enter_context(job.session(master))
    merging: Merging = job.SparkWorker(shards, session, place.kafka)
    return merging
