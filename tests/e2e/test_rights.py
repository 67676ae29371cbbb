"""The least rights at a broker suffice for everything, and a client has none of the others'.

The services log in as a user with the rights that streams/docs/CONTAINERS.md lists. A client
that may write commands alone tries what would harm others, and the broker refuses each attempt.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it re-exports without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests.e2e import secured
from tests.e2e.bank import OUTPUT, TOPIC
from tests.e2e.containers import SECRETS, Environment, Plan
from tests.e2e.trial import Trial, inflict

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

WAIT_S = 15


def prepared(authority: trustme.CA, directory: Path) -> None:
    secured.make_broker_pem(authority, directory)
    lines = secured.client_properties(secured.SERVICES_USER)
    (directory / "client.properties").write_text("\n".join(lines))


def opened(environment: Environment) -> None:
    admin = AdminClient(environment.kafka)
    for user, given in secured.rights(environment.namespace, TOPIC, OUTPUT).items():
        secured.grant(admin, user, given)


@pytest.fixture
def plan() -> Plan:
    return Plan(
        broker=secured.broker_variables(),
        client=lambda place: secured.client_settings(
            secured.ADMIN, str(place / "authority.pem")
        ),
        arguments=["--client", f"@{SECRETS}/client.properties"],
        prepared=prepared,
        opened=opened,
    )


def write(settings: Mapping[str, Any], topic: str) -> None:
    """Errors: KafkaException if the broker refuses."""
    failures: list[Any] = []
    producer = Producer({**settings, "log_level": 0, "message.timeout.ms": WAIT_S * 1000})
    producer.produce(
        topic, b"forged", b"u1", on_delivery=lambda error, _: failures.append(error)
    )
    producer.flush(WAIT_S)
    assert failures, "the broker says something"
    if failures[0] is not None:
        raise KafkaException(failures[0])


def read(settings: Mapping[str, Any], topic: str) -> None:
    consumer = Consumer({**settings, "group.id": secured.CLIENT, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(WAIT_S)
    consumer.close()
    if message is not None and message.error() is not None:
        raise KafkaException(message.error())


def begin_as(settings: Mapping[str, Any], transactional_id: str) -> None:
    """To take over the id would fence whoever has it."""
    Producer(
        {**settings, "log_level": 0, "transactional.id": transactional_id}
    ).init_transactions(WAIT_S)


def commit_as(settings: Mapping[str, Any], group: str, topic: str) -> None:
    consumer = Consumer({**settings, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    finally:
        consumer.close()


def each(answers: Mapping[Any, Any]) -> None:
    for answer in answers.values():
        answer.result(WAIT_S)


def attempts(
    settings: Mapping[str, Any], namespace: str, topics: list[str]
) -> Mapping[str, Callable[[], None]]:
    """What would harm others, by what it is."""
    admin = AdminClient(dict(settings))
    foreign = [name for name in topics if not name.endswith(".storage.commands")]
    answers = f"{namespace}.storage.responses"
    victim = next(name for name in foreign if name != answers)
    made = NewTopic(f"{namespace}.made", 1, 1)
    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    retention = ConfigResource("TOPIC", victim, incremental_configs=[entry])
    tried: dict[str, Callable[[], None]] = {
        f"write {name}": partial(write, settings, name) for name in (*foreign, TOPIC, OUTPUT)
    }
    tried |= {
        f"read {name}": partial(read, settings, name) for name in foreign if name != answers
    }
    return tried | {
        "delete a topic": lambda: each(admin.delete_topics([victim])),
        "delete records": lambda: each(admin.delete_records([TopicPartition(victim, 0, 1)])),
        "change a topic": lambda: each(admin.incremental_alter_configs([retention])),
        "create a topic": lambda: each(admin.create_topics([made])),
        "fence a sink": partial(begin_as, settings, f"{namespace}.sink.k7"),
        "fence storage": partial(begin_as, settings, f"{namespace}.storage.commands"),
        "move a mark": partial(commit_as, settings, f"{namespace}.storage.commands", victim),
    }


REFUSED = re.compile("AUTHORIZATION_FAILED|authorization failed", re.IGNORECASE)


def went_through(tried: Mapping[str, Callable[[], None]]) -> dict[str, str]:
    """The attempts that were not refused for want of a right, and what came of them."""
    through = {}
    for name, attempt in tried.items():
        try:
            attempt()
        except KafkaException as refused:
            if REFUSED.search(str(refused)):
                continue
            through[name] = str(refused)
        else:
            through[name] = "done"
    return through


def test_the_least_rights_suffice_and_a_client_has_no_more(trial: Trial) -> None:
    environment = trial.environment
    for name in ("replica", "kafka"):
        trial.suffer("kill", name, partial(inflict, "kill", environment.parts[name]))
    named = AdminClient(environment.kafka).list_topics(timeout=WAIT_S).topics
    own = sorted(name for name in named if name.startswith(f"{environment.namespace}."))
    assert len(own) > 8, own
    authority = str(environment.directory / "authority.pem")
    settings = environment.kafka | secured.client_settings(secured.CLIENT, authority)
    write(settings, f"{environment.namespace}.storage.commands")  # this it may, and no more
    read(settings, f"{environment.namespace}.storage.responses")
    assert went_through(attempts(settings, environment.namespace, own)) == {}
    trial.end()
    trial.end_services()
