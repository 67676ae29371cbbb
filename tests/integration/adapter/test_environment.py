"""Statements over HTTP against a whole environment: broker, coordinator, replica on Spark."""

import itertools
import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streams.app.environment import Environment
from streams.errors import Determinate, Indeterminate, InvalidStatement
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.shared_kills import through_kills
from tests.integration.adapter.support import (
    contents,
    eventually,
    open_environment,
    partition_of,
    raw_topic,
    read_output,
    topics,
    upper,
)
from tests.integration.replica.json_producer import Feed
from tests.stranger.client import Client

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

numbers = itertools.count()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def orders(environment: Environment, broker: EmbeddedBroker) -> tuple[str, str]:
    """A source over a new topic, and the topic."""
    topic, name = raw_topic(broker.bootstrap), f"orders{next(numbers)}"
    environment.sql(
        f"CREATE SOURCE {name} FROM KAFKA (TOPIC '{topic}')"
        " (id BIGINT, customer BIGINT, amount BIGINT) FORMAT JSON"
    )
    return name, topic


def test_from_a_topic_to_an_answer_and_away_again(environment, broker) -> None:
    name, topic = orders(environment, broker)
    feed = Feed(broker.bootstrap)
    feed.send(topic, [{"id": i, "customer": i % 3, "amount": i} for i in range(100)])
    view = f"totals{next(numbers)}"
    query = (
        f"SELECT customer, count(*) AS n, sum(amount) AS total FROM {name} GROUP BY customer"
    )
    (notice,) = environment.sql(f"CREATE MATERIALIZED VIEW {view} OWN TOPIC AS {query}")
    mine = f"{environment.settings.namespace}.{notice.facts['id']}."
    assert len(topics(broker.bootstrap, mine)) == 2
    eventually(lambda: environment.sql(f"SELECT sum(n) FROM {view}")[0].rows == ((100,),))
    (answer,) = environment.sql(f"SELECT * FROM {view} ORDER BY customer")
    assert answer.columns == ("customer", "n", "total")
    expected = tuple((c, len(range(c, 100, 3)), sum(range(c, 100, 3))) for c in range(3))
    assert answer.rows == expected
    # the same from scratch, at the very same time
    as_of = answer.facts["as_of"]
    (again,) = environment.sql(f"{query} ORDER BY customer AS OF {as_of}")
    assert again.rows == expected
    with pytest.raises(InvalidStatement, match=f"source {name} cannot be dropped"):
        environment.sql(f"DROP SOURCE {name}")
    assert "Reduce" in str(environment.sql(f"EXPLAIN {query}")[0].rows)
    environment.sql(f"DROP MATERIALIZED VIEW {view}; DROP SOURCE {name}")
    with pytest.raises(InvalidStatement):
        environment.sql(f"SELECT * FROM {view}")
    assert name not in [row[0] for row in environment.sql("SHOW SOURCES")[0].rows]
    eventually(lambda: not topics(broker.bootstrap, mine))


def test_a_subscription_adds_up_to_every_answer(environment, broker) -> None:
    name, topic = orders(environment, broker)
    feed = Feed(broker.bootstrap)
    feed.send(topic, [{"id": 1, "customer": 1, "amount": 5}])
    view = f"v{next(numbers)}"
    environment.sql(
        f"CREATE MATERIALIZED VIEW {view} AS"
        f" SELECT customer, sum(amount)::BIGINT AS total FROM {name} GROUP BY customer"
    )
    eventually(lambda: len(environment.sql(f"SELECT * FROM {view}")[0].rows) == 1)
    messages: list[dict[str, Any]] = []
    done = threading.Event()

    def subscribe() -> None:
        for message in environment.client.stream(f"SUBSCRIBE {view}"):
            messages.append(dict(message))
            if done.is_set():
                return

    reader = threading.Thread(target=subscribe, daemon=True)
    reader.start()
    for amount in range(10):
        feed.send(topic, [{"id": amount, "customer": amount % 2, "amount": amount}])
        time.sleep(0.2)
    # the odd ones are 5 and 1 + 3 + 5 + 7 + 9, the even ones 0 + 2 + 4 + 6 + 8
    final = {(0, 20), (1, 30)}
    eventually(lambda: set(environment.sql(f"SELECT * FROM {view}")[0].rows) == final)
    (answer,) = environment.sql(f"SELECT * FROM {view}")
    as_of = answer.facts["as_of"]
    eventually(lambda: any((m.get("frontier") or 0) > as_of for m in messages))
    done.set()
    reader.join(30)
    counts: dict[tuple[object, ...], int] = {}
    frontier = 0
    for message in messages:
        if message["type"] == "progress":
            assert message["frontier"] >= frontier
            frontier = message["frontier"]
        for at, diff, *row in message.get("rows", []):
            assert at >= frontier - 1 or frontier == 0, "a row came after its progress"
            counts[tuple(row)] = counts.get(tuple(row), 0) + diff
    assert {row for row, count in counts.items() if count} == final
    assert set(counts.values()) <= {0, 1}


def test_compaction_merges_by_itself_and_changes_no_answer(environment, broker) -> None:
    name, topic = orders(environment, broker)
    feed = Feed(broker.bootstrap)
    feed.send(topic, [{"id": i, "customer": i % 3, "amount": i} for i in range(100)])
    query = f"SELECT customer, sum(amount) AS total FROM {name} GROUP BY 1 ORDER BY 1"
    eventually(lambda: len(environment.sql(query)[0].rows) == 3)
    (before,) = environment.sql(query)
    log = environment.children["compaction"].log_file
    id_ = {row[0]: row[1] for row in environment.sql("SHOW SOURCES")[0].rows}[name]

    def is_merged() -> bool:
        feed.send(topic, [{"id": 0, "customer": 0, "amount": 0}])
        return f"compacted collection={id_} " in log.read_text()

    eventually(is_merged)
    (after,) = environment.sql(f"{query} AS OF {before.facts['as_of']}")
    assert after.rows == before.rows


def has_passed(environment: Environment, sink: str, moment: int) -> bool:
    return upper(environment, "SINKS", sink) > moment


def test_commands_of_strangers_are_answered_and_the_service_comes_back(
    environment, broker
) -> None:
    client = Client(broker.bootstrap, environment.settings.namespace)
    try:
        description = '{"columns":[{"name":"a","type":"BIGINT"}],"keys":[],"kind":"table"}'
        name = f"stranger{next(numbers)}"
        _, write = client.done("create", collection=name, description=description)
        before = environment.children["storage"].pid
        environment.kill("storage")
        write = client.write(write, 10)
        assert write["frontier"] == 10
        assert environment.children["storage"].pid != before
        environment.check()
    finally:
        client.close()


def order(bootstrap: str, topic: str, rng: random.Random, stop: threading.Event) -> None:
    """Customers come, collect forty orders, and are gone."""
    feed, sent = Feed(bootstrap), 0
    while not stop.wait(0.2):
        first = sent // 60
        rows = [
            {"id": sent + i, "customer": first + rng.randrange(20), "amount": i}
            for i in range(10)
        ]
        feed.send(topic, rows)
        sent += len(rows)


@through_kills
def test_a_sink_writes_every_change_once_through_kills(
    environment: Environment, broker: EmbeddedBroker
) -> Iterator[str]:
    name, topic = orders(environment, broker)
    view, sink, out = f"v{next(numbers)}", f"k{next(numbers)}", f"out-{next(numbers)}-{topic}"
    environment.sql(
        f"CREATE MATERIALIZED VIEW {view} WITH (RETAIN HISTORY FOR '1 hour') AS"
        " SELECT customer, count(*) AS n, sum(amount)::BIGINT AS total"
        f" FROM {name} GROUP BY customer HAVING count(*) < 40;"
        f"CREATE SINK {sink} FROM {view} INTO KAFKA (TOPIC '{out}', PARTITIONS 3)"
        " KEY (customer)"
    )
    rng, stop = random.Random(7), threading.Event()

    def write(times: int) -> None:
        """Let the sink write at so many times at least, however long that takes here."""
        for _ in range(times):
            eventually(partial(has_passed, environment, sink, now_ms()))

    producer = threading.Thread(target=order, args=(broker.bootstrap, topic, rng, stop))
    yield "before"
    producer.start()
    try:
        write(6)
        yield "others"  # replica and coordinator were killed
        write(6)
    finally:  # the run would never end with a thread that goes on
        stop.set()
        producer.join()
    moment = now_ms()
    eventually(partial(has_passed, environment, sink, moment))
    written = read_output(broker.bootstrap, environment.settings.namespace, out)
    for partition in range(3):
        times = [record.time for record in written if record.partition == partition]
        assert times
        assert times == sorted(times)
    assert all(record.partition == partition_of(record.raw_key, 3) for record in written)
    assert len({(record.time, record.key) for record in written}) == len(written)
    views = environment.sql("SHOW MATERIALIZED VIEWS")[0].dicts()
    since = next(int(str(row["since"])) for row in views if row["name"] == view)
    times = sorted({record.time for record in written if record.time >= since})
    assert len(times) >= 10
    for at in [*rng.sample(times, 8), times[-1], moment]:
        rows = environment.sql(f"SELECT * FROM {view} AS OF {at}")[0].rows
        expected = {(row[0],): row for row in rows}
        actual = {key: tuple(row.values()) for key, row in contents(written, at).items()}
        assert actual == expected, at


def test_a_coordinator_may_die_at_any_moment(environment, broker) -> None:
    name, topic = orders(environment, broker)
    Feed(broker.bootstrap).send(
        topic, [{"id": i, "customer": i, "amount": i} for i in range(5)]
    )
    eventually(lambda: environment.sql(f"SELECT count(*) FROM {name}")[0].rows == ((5,),))
    (before,) = environment.sql(f"SELECT * FROM {name} ORDER BY id")
    acknowledged: dict[str, object] = {}
    names = [f"w{next(numbers)}" for _ in range(3)]
    for number, view in enumerate(names):
        if number == 1:
            environment.kill("coordinator")
        try:
            (done,) = environment.sql(
                f"CREATE MATERIALIZED VIEW {view} AS SELECT id + {number} AS id FROM {name}"
            )
            acknowledged[view] = done.facts["id"]
        except (Determinate, Indeterminate, InvalidStatement):
            eventually(environment.client.is_ready)
    eventually(environment.client.is_ready)
    shown = {row[0]: row[1] for row in environment.sql("SHOW MATERIALIZED VIEWS")[0].rows}
    assert acknowledged.items() <= shown.items()
    assert len(set(shown.values())) == len(shown)
    as_of = before.facts["as_of"]
    (after,) = environment.sql(f"SELECT * FROM {name} ORDER BY id AS OF {as_of}")
    assert after.rows == before.rows
    for number, view in enumerate(names):
        if view in acknowledged:
            rows = environment.sql(f"SELECT id FROM {view} ORDER BY id")[0].rows
            assert rows == tuple((i + number,) for i in range(5))


POINTS = {
    # the coordinator, in the second object that it makes
    "after-catalog": 2,
    "after-holds": 2,
    "after-birth": 2,
    "after-shard": 2,
    "before-command": 2,
    # the replica's sink
    "before-transaction": 1,
    "after-transaction": 2,
}


def runs(environment: Environment, text: str) -> bool:
    return bool(environment.sql(text))


@pytest.mark.long
def test_kill_9_between_any_two_steps_of_a_definition(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    environment = open_environment(broker.bootstrap, tmp_path, POINTS)
    try:
        topic = raw_topic(broker.bootstrap)
        out = f"out-{topic}"
        Feed(broker.bootstrap).send(topic, [{"id": i, "amount": i} for i in range(10)])
        statements = {
            "src": f"SOURCE src FROM KAFKA (TOPIC '{topic}')"
            " (id BIGINT, amount BIGINT) FORMAT JSON",
            "one": "MATERIALIZED VIEW one AS SELECT id, amount * 2 AS twice FROM src",
            "two": "MATERIALIZED VIEW two AS SELECT count(*) AS n FROM one",
            "k": f"SINK k FROM one INTO KAFKA (TOPIC '{out}') KEY (id)",
        }
        for words in statements.values():
            kind, _, rest = words.partition(" VIEW ")
            text = (
                f"CREATE {kind} VIEW IF NOT EXISTS {rest}"
                if rest
                else f"CREATE {words.replace(' ', ' IF NOT EXISTS ', 1)}"
            )
            eventually(partial(runs, environment, text))
        eventually(lambda: environment.sql("SELECT n FROM two")[0].rows == ((10,),), 180)
        eventually(lambda: upper(environment, "SINKS", "k") > 0, 120)
        shown = environment.sql("SHOW SOURCES; SHOW MATERIALIZED VIEWS; SHOW SINKS")
        ids = [row[1] for answer in shown for row in answer.rows]
        assert ids == ["s1", "u2", "u3", "k4"]
        written = read_output(broker.bootstrap, environment.settings.namespace, out)
        assert {record.key for record in written} == {(i,) for i in range(10)}
        assert len(written) == 10
        died = {file.name.removeprefix("crash-") for file in tmp_path.rglob("crash-*")}
        assert died == set(POINTS)
    finally:
        environment.stop()
