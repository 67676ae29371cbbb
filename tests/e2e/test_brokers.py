"""Three brokers, of which two have to have a record: any one of them may be away.

The leader of a log dies while it is written, brokers are restarted one after another, and two
are dead together: then nothing is acknowledged, and nothing is lost.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it re-exports without saying so
    AdminClient,
    OffsetSpec,
    PartitionMetadata,
)

from tests.e2e import brokers
from tests.e2e.bank import TOPIC
from tests.e2e.containers import Environment
from tests.e2e.parts import Part, eventually
from tests.e2e.plan import Plan
from tests.e2e.trial import Trial

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(2400)]

WRITTEN = ("s1.log", "u3.log", "u5.data", "sinks.progress")
"""A log of the source, one of a view, a data topic, and one that transactions write."""
ANSWER_S = 10


@pytest.fixture
def plan() -> Plan:
    return Plan(
        brokers=brokers.THREE,
        broker={"KAFKA_MIN_INSYNC_REPLICAS": "2", "KAFKA_DEFAULT_REPLICATION_FACTOR": "3"},
    )


def partitions(environment: Environment, topic: str = "") -> Iterator[PartitionMetadata]:
    """Of a topic, or of all."""
    named = AdminClient(environment.kafka).list_topics(topic or None, timeout=ANSWER_S).topics
    for metadata in named.values():
        yield from metadata.partitions.values()


def leader(environment: Environment, topic: str) -> Part | None:
    """The broker of a topic's first partition; None while nobody says which."""
    with suppress(KafkaException):
        node = next(partitions(environment, topic)).leader
        return environment.brokers[node - 1] if node > 0 else None
    return None


def is_in_sync(environment: Environment) -> bool:
    """Whether each broker has all."""
    with suppress(KafkaException):
        return all(
            len(partition.isrs) == len(brokers.THREE) for partition in partitions(environment)
        )
    return False


def end_of(admin: AdminClient, topic: str) -> int:
    place = TopicPartition(topic, 0)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    return int(admin.list_offsets({place: latest})[place].result(ANSWER_S).offset)


def kill_leader(trial: Trial, topic: str) -> None:
    """As soon as a record has come, for more are on their way; the others go on without it."""
    environment, admin = trial.environment, AdminClient(trial.environment.kafka)
    victim, before = leader(environment, topic), end_of(admin, topic)
    assert victim is not None
    others = [broker for broker in environment.brokers if broker is not victim]
    while end_of(admin, topic) == before:
        time.sleep(0.01)
    victim.kill()
    eventually("another one leads", lambda: leader(environment, topic) in others)
    trial.catch_up(f"{victim.name} was dead")
    victim.start()
    eventually("it has all", lambda: is_in_sync(environment))


def restart(environment: Environment, broker: Part) -> None:
    """As an operator does it: the next one once this one has all."""
    assert broker.stop() in {0, 143}
    broker.start()
    eventually("it has all", lambda: is_in_sync(environment))


def kill_two(trial: Trial) -> None:
    """What is sent meanwhile waits."""
    first, second, _ = trial.environment.brokers
    first.kill()
    second.kill()
    time.sleep(2)
    acknowledged = trial.sender.acknowledged
    time.sleep(5)
    assert trial.sender.acknowledged == acknowledged
    first.start()
    second.start()
    eventually("they have all", lambda: is_in_sync(trial.environment))


def test_three_brokers(trial: Trial) -> None:
    environment = trial.environment
    copies = {
        partition.id: len(partition.replicas) for partition in partitions(environment, TOPIC)
    }
    assert copies == {0: 3}
    assert is_in_sync(environment)
    for name in WRITTEN:
        topic = f"{environment.namespace}.{name}"
        trial.suffer("kill", f"leader of {name}", partial(kill_leader, trial, topic))
    for broker in environment.brokers:
        trial.suffer("restart", broker.name, partial(restart, environment, broker))
    trial.suffer("kill", "two brokers", partial(kill_two, trial))
    trial.end()
    trial.end_services()
