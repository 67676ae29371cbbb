"""What an environment says of its dataflows: system relations, EXPLAIN ANALYZE, metrics."""

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from streams.app.environment import Environment
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.support import eventually, raw_topic

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

WORK = (
    "SELECT sum(rows_in) AS n FROM slackwater.operators WHERE name = 'counted' AND operator = 0"
)
STATE = (
    "SELECT o.status, a.replica, a.description, a.rows, a.bytes FROM slackwater.arrangements a"
    " JOIN slackwater.objects o USING (id) WHERE o.name = 'counted'"
)
PHASES = "SELECT phase, sum(ms) AS ms FROM slackwater.phases GROUP BY phase ORDER BY phase"


def rows(environment: Environment, text: str) -> list[dict[str, Any]]:
    return list(environment.sql(text)[0].dicts())


def publish(broker: EmbeddedBroker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 2})
    for number in range(count):
        producer.produce(topic, json.dumps({"k": number % 100}).encode())
    producer.flush()


def test_the_work_and_the_state_of_a_view_are_seen(
    environment: Environment, broker: EmbeddedBroker
) -> None:
    topic = raw_topic(broker.bootstrap)
    environment.sql(
        f"CREATE SOURCE keyed FROM KAFKA (TOPIC '{topic}') (k BIGINT) FORMAT JSON;"
        "CREATE MATERIALIZED VIEW counted AS SELECT k, count(*) AS n FROM keyed GROUP BY k"
    )
    publish(broker, topic, 1000)
    eventually(lambda: rows(environment, WORK) == [{"n": 1000}])
    (kept,) = rows(environment, STATE)
    assert kept["status"] == "running"
    assert kept["description"].startswith("Reduce by (c0)")
    assert kept["rows"] == 100
    assert kept["bytes"] > 100 * 8
    phases = rows(environment, PHASES)
    assert [row["phase"] for row in phases] == ["commit", "plan", "tasks"]
    assert all(row["ms"] > 0 for row in phases)
    frontiers = rows(
        environment, "SELECT name, upper > since AS open FROM slackwater.frontiers ORDER BY 1"
    )
    assert frontiers == [{"name": "counted", "open": True}, {"name": "keyed", "open": True}]
    analyzed = rows(environment, "EXPLAIN ANALYZE counted")
    assert analyzed[0]["operator"] == "dataflow"
    assert analyzed[0]["ms"] > 0
    (reduce,) = (row for row in analyzed if "Reduce by" in str(row["operator"]))
    assert (reduce["state_rows"], reduce["state_bytes"]) == (kept["rows"], kept["bytes"])
    (source,) = (row for row in analyzed if "Source keyed" in str(row["operator"]))
    assert source["rows_in"] == 1000
    environment.kill("replica")
    again = rows(environment, "EXPLAIN ANALYZE counted")
    assert [row["operator"] for row in again] == [row["operator"] for row in analyzed]
    publish(broker, topic, 500)
    eventually(
        lambda: rows(environment, "SELECT sum(n) AS n FROM counted") == [{"n": 1500}],
    )
    eventually(lambda: [row["rows"] for row in rows(environment, STATE)] == [100])


def test_a_view_follows_what_objects_there_are(
    environment: Environment, broker: EmbeddedBroker
) -> None:
    topic = raw_topic(broker.bootstrap)
    objects = f"{environment.settings.namespace}.system.objects"
    environment.sql(
        f"CREATE SOURCE observed FROM KAFKA (TOPIC '{objects}')"
        " (id VARCHAR, name VARCHAR, status VARCHAR) FORMAT JSON ENVELOPE UPSERT (KEY (id));"
        "CREATE MATERIALIZED VIEW brief AS SELECT status FROM observed WHERE name = 'passing'"
    )
    assert rows(environment, "SELECT * FROM brief") == []
    environment.sql(
        f"CREATE SOURCE passing FROM KAFKA (TOPIC '{topic}') (k BIGINT) FORMAT JSON"
    )
    eventually(lambda: rows(environment, "SELECT * FROM brief") == [{"status": "running"}])
    environment.kill("coordinator")
    eventually(environment.client.is_ready)
    environment.sql("DROP SOURCE passing")
    eventually(lambda: rows(environment, "SELECT * FROM brief") == [])
    environment.sql("DROP MATERIALIZED VIEW brief; DROP SOURCE observed")
