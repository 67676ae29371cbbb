"""What CREATE SOURCE says of messages, from a real broker to an answer."""

import itertools
from typing import Any

import pytest
from confluent_kafka import Producer

from streams.app.environment import Environment
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.support import eventually, raw_topic

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

numbers = itertools.count()


def source(environment: Environment, topic: str, columns: str, reads: str) -> str:
    """A new source over the topic."""
    name = f"reading{next(numbers)}"
    environment.sql(f"CREATE SOURCE {name} FROM KAFKA (TOPIC '{topic}') ({columns}) {reads}")
    return name


def send(broker: EmbeddedBroker, topic: str, *messages: dict[str, Any]) -> None:
    """Messages as the arguments of `Producer.produce`, acknowledged on return."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for message in messages:
        producer.produce(topic, partition=0, **message)
    assert producer.flush(60) == 0


def answered(
    environment: Environment, query: str, rows: tuple[tuple[object, ...], ...]
) -> None:
    """Wait until a query has these rows."""
    eventually(lambda: environment.sql(query)[0].rows == rows)


@pytest.mark.parametrize(("key_format", "kind"), [("TEXT", "VARCHAR"), ("BYTES", "BLOB")])
def test_keys_that_are_not_json(environment, broker, key_format, kind) -> None:
    topic = raw_topic(broker.bootstrap)
    reads = f"KEY FORMAT {key_format} FORMAT JSON ENVELOPE UPSERT (KEY (k))"
    name = source(environment, topic, f"k {kind}, v BIGINT", reads)
    send(
        broker,
        topic,
        {"key": "a b", "value": '{"v":1}'},
        {"key": "a b", "value": '{"v":2}'},
        {"key": "[", "value": '{"v":"x"}'},
        {"key": "gone", "value": '{"v":4}'},
        {"key": "gone", "value": None},
    )
    view = f"{name}_failing"
    environment.sql(f"CREATE MATERIALIZED VIEW {view} AS SELECT count(*) AS n FROM {name}")

    def told() -> str:
        try:
            environment.sql(f"SELECT * FROM {view}")
        except Exception as error:  # noqa: BLE001 - whatever it is, its text is asked for
            return str(error)
        return ""

    shown = '"["' if key_format == "TEXT" else '"Ww=="'
    eventually(lambda: f'offset 2, key {shown}: column "v": expected BIGINT' in told())
    send(broker, topic, {"key": "[", "value": '{"v":3}'})
    rows = (("[", 3), ("a b", 2))
    answered(environment, f"SELECT k::VARCHAR, v FROM {name} ORDER BY v DESC", rows)
    environment.sql(f"DROP MATERIALIZED VIEW {view}; DROP SOURCE {name}")


def test_parts_of_messages_are_columns(environment, broker) -> None:
    topic = raw_topic(broker.bootstrap)
    parts = "PARTITION, OFFSET AS o, TIMESTAMP AS sent, HEADERS AS h, KEY"
    reads = f"KEY FORMAT TEXT FORMAT JSON INCLUDE {parts}"
    name = source(environment, topic, "v BIGINT", reads)
    send(
        broker,
        topic,
        {"key": "a", "value": '{"v":1}', "timestamp": 1_700_000_000_123},
        {"value": '{"v":2}', "headers": [("h", b"x"), ("h", None)], "timestamp": 1},
    )
    query = f"""SELECT v, "partition", o, sent::VARCHAR, len(h), h[1]."value"::VARCHAR, key
        FROM {name} ORDER BY v"""
    rows = (
        (1, 0, 0, "2023-11-14 22:13:20.123", 0, None, "a"),
        (2, 0, 1, "1970-01-01 00:00:00.001", 2, "x", None),
    )
    answered(environment, query, rows)
    environment.sql(f"DROP SOURCE {name}")


def test_lists_structs_maps_and_nested_members(environment, broker) -> None:
    topic = raw_topic(broker.bootstrap)
    columns = """id BIGINT, lines STRUCT(sku VARCHAR, price DECIMAL(9,2), tags VARCHAR[])[],
        counts MAP(VARCHAR, INTEGER), city VARCHAR PATH '$.to."city name"'"""
    name = source(environment, topic, columns, "FORMAT JSON ENVELOPE UPSERT (KEY (id))")
    first = """{"lines":[{"sku":"a","price":1.50,"tags":["x","y"]},{"sku":"b","price":"2"}],
        "counts":{"b":1,"a":null},"to":{"city name":"Bern"}}"""
    send(broker, topic, {"key": "1", "value": first}, {"key": "2", "value": '{"lines":[]}'})
    view = f"{name}_totals"
    environment.sql(
        f"CREATE MATERIALIZED VIEW {view} AS SELECT id, city, counts['b'] AS b,"
        f" len(lines) AS n, lines[1].price + lines[2].price AS total FROM {name}"
    )
    query = f"SELECT id, city, b, n, total::VARCHAR FROM {view} ORDER BY id"
    answered(environment, query, ((1, "Bern", 1, 2, "3.50"), (2, None, None, 0, None)))
    send(broker, topic, {"key": "1", "value": '{"lines":[{"price":0.10},{"price":0.20}]}'})
    answered(environment, query, ((1, None, None, 2, "0.30"), (2, None, None, 0, None)))
    environment.sql(f"DROP MATERIALIZED VIEW {view}; DROP SOURCE {name}")
