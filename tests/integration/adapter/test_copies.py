"""COPY in an environment: DuckDB reads from the files what SELECT says."""

import json

import duckdb
import pytest
from confluent_kafka import Producer

from streams.app.environment import Environment
from streams.errors import InvalidStatement
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.support import eventually, raw_topic

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def rows(environment: Environment, text: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in environment.sql(text)[0].dicts()]


def test_a_view_is_copied_at_one_time(environment: Environment, broker: EmbeddedBroker) -> None:
    topic = raw_topic(broker.bootstrap)
    environment.sql(
        f"CREATE SOURCE sold FROM KAFKA (TOPIC '{topic}') (k BIGINT, v DECIMAL(9,2))"
        " FORMAT JSON"
    )
    environment.sql(
        "CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS total, count(*) AS n FROM sold"
        " GROUP BY k"
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(1000):
        producer.produce(topic, json.dumps({"k": number % 100, "v": f"{number}.25"}).encode())
    producer.flush()
    eventually(lambda: rows(environment, "SELECT sum(n)::BIGINT AS n FROM sums") == [(1000,)])
    target = environment.exports / "sums"
    statement = f"COPY sums TO '{target.as_uri()}'"
    ((count, files, size, time),) = rows(environment, statement)
    assert (count, files) == (100, 1)
    assert size == sum(path.stat().st_size for path in target.glob("*.parquet"))
    selected = rows(
        environment, f"SELECT k, total::VARCHAR AS t, n::BIGINT AS n FROM sums AS OF {time}"
    )
    with duckdb.connect() as connection:
        text = f"SELECT k, total::VARCHAR, n::BIGINT FROM '{target}/*.parquet'"
        assert sorted(connection.execute(text).fetchall()) == sorted(selected)
    (replica,) = rows(environment, "SHOW CLUSTER REPLICAS")
    again = environment.exports / "again"
    by_replica = f"COPY sums AS OF {time} TO '{again.as_uri()}' WITH (REPLICA {replica[1]})"
    ((count, files, size, at),) = rows(environment, by_replica)
    assert (count, files, at) == (100, 1, time)
    with duckdb.connect() as connection:
        text = "SELECT * FROM '{}/*.parquet' ORDER BY k"
        written = [connection.execute(text.format(path)).fetchall() for path in (target, again)]
    assert written[0] == written[1]
    for refused in (statement, by_replica):
        with pytest.raises(InvalidStatement, match="overwrites nothing"):
            environment.sql(refused)
    with pytest.raises(InvalidStatement, match="may not write to"):
        environment.sql("COPY sums TO 'file:///tmp/sums'")
    assert sorted(path.name for path in environment.exports.iterdir()) == ["again", "sums"]
