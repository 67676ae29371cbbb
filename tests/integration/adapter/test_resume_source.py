"""Sources that resume after their topic was made anew or retention overtook them, on Spark."""

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from streams.app.environment import Environment
from streams.errors import InvalidStatement
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.shared_kills import through_kills
from tests.integration.adapter.support import eventually, raw_topic
from tests.integration.replica.json_producer import Feed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

numbers = itertools.count()


def made_anew(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic], operation_timeout=30)[topic].result()
    eventually(lambda: topic not in admin.list_topics(timeout=30).topics)
    raw_topic(bootstrap, 1, topic)


def shown(environment: Environment, name: str) -> tuple[object, str]:
    """The status of a source and its detail."""
    (row,) = (r for r in environment.sql("SHOW SOURCES")[0].dicts() if r["name"] == name)
    return row["status"], str(row["detail"])


def ids(environment: Environment, name: str) -> list[object]:
    return [row[0] for row in environment.sql(f"SELECT id FROM {name} ORDER BY id")[0].rows]


def skips(environment: Environment, name: str) -> list[tuple[object, ...]]:
    """What stands in the dead letters of a source."""
    query = f'SELECT topic, partition, "offset", value, reason FROM {name}.errors ORDER BY ALL'
    return list(environment.sql(query)[0].rows)


@through_kills
def test_topics_made_anew_are_read_on_once_through_kills(
    environment: Environment, broker: EmbeddedBroker
) -> Iterator[str]:
    """A log goes on; of a table what was known stays until its key is written again."""
    feed, number = Feed(broker.bootstrap), next(numbers)
    log, table = (raw_topic(broker.bootstrap, 1) for _ in range(2))
    events, people, view = f"events{number}", f"people{number}", f"sums{number}"
    feed.send(log, [{"id": n} for n in range(10)])
    feed.put(table, [({"id": n}, {"name": "old"}) for n in range(4)])
    environment.sql(
        f"CREATE SOURCE {events} FROM KAFKA (TOPIC '{log}') (id BIGINT) FORMAT JSON;"
        f"CREATE SOURCE {people} FROM KAFKA (TOPIC '{table}') (id BIGINT, name VARCHAR)"
        " FORMAT JSON ENVELOPE UPSERT (KEY (id));"
        f"CREATE MATERIALIZED VIEW {view} AS SELECT count(*) AS n, sum(id) AS s FROM {events}"
    )
    eventually(lambda: environment.sql(f"SELECT * FROM {view}")[0].rows == ((10, 45),))
    assert ids(environment, people) == [0, 1, 2, 3]
    with pytest.raises(InvalidStatement, match="is not stalled"):
        environment.sql(f"ALTER SOURCE {events} RESUME FROM EARLIEST")
    made_anew(broker.bootstrap, log)
    made_anew(broker.bootstrap, table)
    feed.send(log, [{"id": n} for n in range(10, 15)])
    feed.put(table, [({"id": 0}, {"name": "new"}), ({"id": 1}, None), ({"id": 4}, {})])
    for name in (events, people):
        eventually(lambda name=name: "was re-created" in shown(environment, name)[1])  # type: ignore[misc]
    yield "before"
    for name in (events, people):
        environment.sql(f"ALTER SOURCE {name} RESUME FROM EARLIEST")
    yield "coordinator"  # after the replica
    feed.send(log, [{"id": n} for n in range(15, 20)])
    yield "others"
    eventually(lambda: ids(environment, events) == list(range(20)))
    eventually(lambda: environment.sql(f"SELECT * FROM {view}")[0].rows == ((20, 190),))
    query = f"SELECT id, name FROM {people} ORDER BY id"
    rows = ((0, "new"), (2, "old"), (3, "old"), (4, None))
    eventually(lambda: environment.sql(query)[0].rows == rows)
    eventually(lambda: shown(environment, events)[0] == "running")
    assert "it had read up to offsets 0: 10" in shown(environment, events)[1]
    ((_, _, offset, _, reason),) = skips(environment, events)
    assert (offset, str(reason)[:29]) == (10, "skipped: all offsets from 10 ")
    yield "replica"
    feed.send(log, [{"id": n} for n in range(20, 25)])  # to 15, past where the former one ended
    yield "others"
    eventually(lambda: ids(environment, events) == list(range(25)))
    eventually(lambda: environment.sql(f"SELECT * FROM {view}")[0].rows == ((25, 300),))
    assert environment.sql(query)[0].rows == rows


@through_kills
def test_what_retention_took_is_skipped_and_told(
    environment: Environment, broker: EmbeddedBroker
) -> Iterator[str]:
    feed, topic, name = Feed(broker.bootstrap), raw_topic(broker.bootstrap, 1), "overtaken"
    feed.send(topic, [{"id": n} for n in range(5)])
    environment.sql(
        f"CREATE SOURCE {name} FROM KAFKA (TOPIC '{topic}') (id BIGINT) FORMAT JSON"
    )
    eventually(lambda: ids(environment, name) == list(range(5)))
    yield "replica"
    feed.send(topic, [{"id": n} for n in range(5, 10)])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, 8)]).values():
        done.result()
    yield "others"
    eventually(lambda: "offsets 5 to 7 were deleted" in shown(environment, name)[1])
    environment.sql(f"ALTER SOURCE {name} RESUME FROM OFFSETS (0 => 9)")
    feed.send(topic, [{"id": 10}])
    eventually(lambda: ids(environment, name) == [0, 1, 2, 3, 4, 9, 10])
    eventually(lambda: shown(environment, name)[0] == "running")
    message = f'resumed in topic "{topic}": partition 0 skipped offsets 5 to 8'
    assert shown(environment, name)[1] == f"{message}; 1 dead letter in {name}.errors"
    assert skips(environment, name) == [
        (topic, 0, 5, None, "skipped: offsets 5 to 8, by ALTER SOURCE ... RESUME FROM")
    ]
    yield "replica"
    feed.send(topic, [{"id": 11}])
    yield "others"
    eventually(lambda: ids(environment, name) == [0, 1, 2, 3, 4, 9, 10, 11])
    assert len(skips(environment, name)) == 1


@through_kills
def test_a_source_by_event_time_goes_on_with_what_is_pending(
    environment: Environment, broker: EmbeddedBroker
) -> Iterator[str]:
    """Behind a bad message before anything is bound, and where retention took pending rows."""
    feed, topic, name = Feed(broker.bootstrap), raw_topic(broker.bootstrap, 1), "timed"

    def at(id_: int, second: int) -> dict[str, object]:
        return {"id": id_, "ts": f"2026-01-01 00:00:{second:02}"}

    feed.send(topic, [at(0, 10), {"id": 1}, at(2, 11), at(3, 12)])
    environment.sql(
        f"CREATE SOURCE {name} FROM KAFKA (TOPIC '{topic}') (id BIGINT, ts TIMESTAMP,"
        " WATERMARK FOR ts AS ts - INTERVAL '5 seconds') FORMAT JSON ON ERROR FAIL"
        " WITH (IDLE AFTER '1 second')"
    )
    eventually(lambda: "partition 0, offset 1: " in shown(environment, name)[1])
    environment.sql(f"ALTER SOURCE {name} RESUME FROM OFFSETS (0 => 2)")
    eventually(lambda: shown(environment, name)[0] == "running")
    feed.send(topic, [at(4, 16)])
    eventually(lambda: ids(environment, name) == [0])
    feed.send(topic, [at(5, 30), at(6, 29)])
    eventually(lambda: ids(environment, name) == [0, 2, 3, 4])
    yield "replica"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        done.result()
    yield "others"
    eventually(lambda: "rows from offset 5 on are pending" in shown(environment, name)[1])
    place = shown(environment, name)[1].split("RESUME FROM ")[1]
    assert place == "OFFSETS (0 => 7)"
    yield "before"
    environment.sql(f"ALTER SOURCE {name} RESUME FROM {place}")
    yield "replica"
    feed.send(topic, [at(7, 40)])
    yield "others"
    eventually(lambda: ids(environment, name) == [0, 2, 3, 4, 6])
    eventually(lambda: shown(environment, name)[0] == "running")
    resumed = f'resumed in topic "{topic}": partition 0'
    assert shown(environment, name)[1] == (
        f"{resumed} skipped offsets 1 to 1;"
        f" {resumed} lacks rows of offsets 5 to 5 that were pending"
    )
