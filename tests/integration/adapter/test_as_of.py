"""Sinces reach replicas, and new coordinators and replicas begin there, on a real broker."""

from collections.abc import Iterator
from functools import partial

import pytest

from streams.app.environment import Environment
from streams.compute.codec import decode_command, decode_response
from streams.compute.controller import command_topic, response_topic
from streams.compute.protocol import Reconciled
from streams.compute.reader import CommandReader, UnreadableCommand
from streams.compute.session import Session
from streams.ids import CollectionId, Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.embedded import EmbeddedBroker
from streams.torture.compute.protocol_rules import check_commands, check_responses
from tests.integration.adapter.support import eventually, raw_topic, read_all
from tests.integration.replica.json_producer import Feed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

SHORT = "LAG BEHIND UPPER '1 second'"


@pytest.fixture
def logs(environment: Environment) -> Iterator[KafkaBroker]:
    kafka = KafkaBroker(environment.kafka)
    yield kafka
    kafka.close()


def commanded(kafka: KafkaBroker, environment: Environment) -> Session:
    """The session of a replica that has just read all commands."""
    reader = CommandReader(kafka.logs, command_topic(environment.settings.namespace, "default"))
    session = Session()
    while received := reader.poll(500):
        for message in received:
            assert not isinstance(message.command, UnreadableCommand)
            session, _ = session.step(message.command)
    reader.close()
    return session


def reconciled(broker: EmbeddedBroker, topic: Topic, nonce: str) -> list[Reconciled]:
    """What replicas have answered to an iteration."""
    messages = read_all(broker.bootstrap, topic)
    answers = [decode_response(message.value()) for message in messages]
    return [
        answer.response
        for answer in answers
        if answer.nonce == nonce and isinstance(answer.response, Reconciled)
    ]


def shown(environment: Environment, kind: str, name: str) -> int:
    """The since of an object as SHOW tells it."""
    rows = environment.sql(f"SHOW {kind}")[0].dicts()
    (since,) = (row["since"] for row in rows if row["name"] == name)
    assert isinstance(since, int)
    return since


def check_rules(broker: EmbeddedBroker, environment: Environment) -> None:
    """What is on both topics keeps the rules that the model keeps."""
    namespace = environment.settings.namespace
    said = read_all(broker.bootstrap, command_topic(namespace, "default"))
    iterations = check_commands(decode_command(message.value()) for message in said)
    heard = read_all(broker.bootstrap, response_topic(namespace, "default"))
    answers = [decode_response(message.value()) for message in heard]
    # those to iterations that were deleted are there for longer
    present = [answer for answer in answers if answer.nonce in iterations]
    assert check_responses(present, iterations)


def is_sum(environment: Environment, view: str, total: int) -> bool:
    return environment.sql(f"SELECT s::BIGINT FROM {view}")[0].rows == ((total,),)


def test_sinces_travel_and_a_restart_hydrates_nothing(
    environment: Environment, broker: EmbeddedBroker, logs: KafkaBroker
) -> None:
    topic = raw_topic(broker.bootstrap)
    environment.sql(
        f"CREATE SOURCE amounts FROM KAFKA (TOPIC '{topic}') (amount BIGINT) FORMAT JSON"
        f" WITH ({SHORT})"
    )
    policies, ids = {"brief": f"WITH ({SHORT}) ", "long": ""}, {}
    for view, policy in policies.items():
        (notice,) = environment.sql(
            f"CREATE MATERIALIZED VIEW {view} {policy}AS SELECT sum(amount) AS s FROM amounts"
        )
        ids[view] = CollectionId(str(notice.facts["id"]))
    Feed(broker.bootstrap).send(topic, [{"amount": amount} for amount in range(10)])
    for view in ids:
        eventually(partial(is_sum, environment, view, 45))

    def now() -> Session:
        return commanded(logs, environment)

    born = now().running[ids["long"]].as_of
    eventually(lambda: now().running[ids["brief"]].as_of > born + 3_000)
    before = now()
    assert before.running[ids["long"]].as_of == born
    assert shown(environment, "MATERIALIZED VIEWS", "brief") > born
    # the source lets nothing go that the view which keeps an hour may need
    assert shown(environment, "SOURCES", "amounts") <= born

    environment.kill("coordinator")
    eventually(environment.client.is_ready)
    eventually(lambda: now().nonce != before.nonce)
    after = now()
    for id_ in ids.values():
        assert after.running[id_].as_of >= before.running[id_].as_of
    responses = response_topic(environment.settings.namespace, "default")
    eventually(lambda: reconciled(broker, responses, after.nonce) != [])
    assert reconciled(broker, responses, after.nonce) == [
        Reconciled(kept=len(after.running), created=0, dropped=0)
    ]

    environment.kill("replica")
    environment.sql(f"ALTER MATERIALIZED VIEW long SET ({SHORT})")
    Feed(broker.bootstrap).send(topic, [{"amount": 55}])
    for view in ids:
        eventually(partial(is_sum, environment, view, 100))
    eventually(lambda: shown(environment, "SOURCES", "amounts") > born)
    check_rules(broker, environment)
