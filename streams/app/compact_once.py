"""One round of compaction on a user's request: by name, by time, in process or on Spark."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from streams.adapter.catalog_log import CatalogLog
from streams.adapter.coordinator_settings import catalog_topic
from streams.app.compaction_setup import (
    CompactionTarget,
    compaction,
    connected,
    groups_of,
    on_spark,
    open_groups,
    worker,
)
from streams.app.environment_access import find
from streams.app.service_process import new_id
from streams.app.signals import Stop
from streams.compaction.runner import CompactionRequest, RoundResult
from streams.errors import InvalidUsage
from streams.ids import CollectionId, Timestamp
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.memory.logs import MemoryBroker
from streams.storage.client.shards import Shards
from streams.storage.policy import LagBehindUpper, Policy, Until


def environment(directory: Path) -> CompactionTarget:
    """The environment that runs in the directory. Errors: InvalidUsage when none does."""
    _, kafka, namespace = find(directory.absolute())
    return CompactionTarget(kafka, namespace)


def run(
    place: CompactionTarget,
    request: CompactionRequest,
    collection: str,
    master: str | None,
    stopping: Stop,
) -> tuple[RoundResult, dict[str, str]]:
    """One round; what it did, and what failed of what.

    `collection` is a name or an id, empty for all. `master` is Spark's: empty for what its own
    configuration says, None for no Spark. Told to stop, it begins no merge and ends the one
    that is going on.

    Errors: Stopped when it had not begun; InvalidUsage when there is no such collection;
    Determinate, Indeterminate.
    """
    with ExitStack() as stack:
        broker, shards = stack.enter_context(connected(place))
        failures = open_groups(shards, groups_of(place.namespace, broker.topics.names()))
        if collection:
            wanted = named(broker, shards, place.namespace, collection, failures)
            request = replace(request, collections=frozenset({wanted}))
        stopping.check()
        if master is None:
            merging = worker(shards, stopping.is_set)
        else:
            merging = on_spark(stack, shards, place, master, stopping)
        job = stack.enter_context(compaction(shards, place.kafka, merging))
        done = job.run_once(request)
        failures |= {failure.collection: failure.reason for failure in done.failed}
        return done, failures


def named(
    broker: KafkaBroker | MemoryBroker,
    shards: Shards,
    namespace: str,
    name: str,
    failures: Mapping[str, str],
) -> CollectionId:
    """The collection of this name in the catalog, or of this id.

    Errors: InvalidUsage when there is none among the groups that did not fail to open.
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
    try:
        shards.group_of(CollectionId(name))
    except InvalidUsage as unknown:
        unread = "; ".join(f"{group} cannot be read: {why}" for group, why in failures.items())
        raise InvalidUsage(
            f"there is no collection {name}: 'slackwater shard list' has all of them"
            + (f"; {unread}" if unread else "")
        ) from unknown
    return CollectionId(name)


def policy_of(since: int | None, lag_ms: int | None) -> Policy | None:
    """The read policy that the options say. Errors: InvalidUsage for both."""
    if since is not None and lag_ms is not None:
        raise InvalidUsage("expected --since or --lag, actual both")
    if since is not None:
        return Until(Timestamp(since))
    return None if lag_ms is None else LagBehindUpper(lag_ms)
