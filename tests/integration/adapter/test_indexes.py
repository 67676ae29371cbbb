"""Indexes of an environment: a SELECT by key, through the replica, and without it."""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from streams.app.environment import Environment
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.shared_kills import through_kills
from tests.integration.adapter.support import eventually, raw_topic

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

KEY = "SELECT v, n FROM counted WHERE k = 7"


def status(environment: Environment) -> str:
    (row,) = environment.sql("SHOW INDEXES")[0].dicts()
    return str(row["status"])


def rows(environment: Environment, text: str = KEY) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in environment.sql(text)[0].dicts()]


def publish(broker: EmbeddedBroker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 2})
    for number in range(count):
        producer.produce(topic, json.dumps({"k": number % 100, "v": "x"}).encode())
    producer.flush()


@through_kills
def test_an_index_answers_follows_and_is_rebuilt(
    environment: Environment, broker: EmbeddedBroker
) -> Iterator[str]:
    topic = raw_topic(broker.bootstrap)
    environment.sql(
        f"CREATE SOURCE keyed FROM KAFKA (TOPIC '{topic}') (k BIGINT, v VARCHAR) FORMAT JSON"
    )
    environment.sql(
        "CREATE MATERIALIZED VIEW counted AS"
        " SELECT k, v, count(*) AS n FROM keyed GROUP BY k, v"
    )
    publish(broker, topic, 1000)
    eventually(lambda: rows(environment) == [("x", 10)])
    environment.sql("CREATE INDEX by_k ON counted (k)")
    eventually(lambda: status(environment) == "running")
    assert rows(environment) == [("x", 10)]
    publish(broker, topic, 500)
    eventually(lambda: rows(environment) == [("x", 15)])
    yield "replica"
    assert rows(environment) == [("x", 15)]
    publish(broker, topic, 500)
    yield "others"  # the coordinator was killed too
    eventually(lambda: rows(environment) == [("x", 20)])
    eventually(lambda: status(environment) == "running")
    yield "coordinator"  # alone, beside an index that is complete
    eventually(lambda: rows(environment) == [("x", 20)])
    publish(broker, topic, 500)
    eventually(lambda: rows(environment) == [("x", 25)])
    environment.sql("DROP INDEX by_k")
    assert rows(environment) == [("x", 25)]
    assert rows(environment, "SHOW INDEXES") == []
