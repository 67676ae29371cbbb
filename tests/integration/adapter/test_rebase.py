"""Events on the clock's timeline, joined with a source without event times, through a kill."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from streams.app.environment import Environment
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.shared_kills import through_kills
from tests.integration.adapter.support import eventually, raw_topic
from tests.integration.adapter.test_event_time import BEGIN, END, arrivals, pushes, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PRICED = "SELECT c.id, c.ts, p.price FROM {clicks} c JOIN {prices} p USING (page)"
VIEWS = "MATERIALIZED VIEWS"
NAMES = ("rebased", "prices", "priced")

Change = tuple[int, int, tuple[Any, ...]]


@contextmanager
def shop(environment: Environment, broker: EmbeddedBroker) -> Iterator[Mapping[str, str]]:
    """The topics of clicks, by event time, and of prices; the clicks rebased, with a view."""
    topics = {kind: raw_topic(broker.bootstrap) for kind in ("clicks", "prices")}
    history = "WITH (RETAIN HISTORY FOR '1 day')"
    for statement in (
        f"CREATE SOURCE clicks FROM KAFKA (TOPIC '{topics['clicks']}')"
        " (id BIGINT, page VARCHAR, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '2 s')"
        " FORMAT JSON WITH (LATE ROWS DEAD LETTER, IDLE AFTER '1 hour')",
        f"CREATE SOURCE prices FROM KAFKA (TOPIC '{topics['prices']}')"
        f" (page VARCHAR, price BIGINT) FORMAT JSON ENVELOPE UPSERT (KEY (page)) {history}",
        f"CREATE REBASE rebased OF clicks {history}",
        f"CREATE MATERIALIZED VIEW priced {history} AS "
        + PRICED.format(clicks="rebased", prices="prices"),
    ):
        environment.sql(statement)
    yield topics
    for name in (
        "MATERIALIZED VIEW priced",
        "REBASE rebased",
        "SOURCE clicks",
        "SOURCE prices",
    ):
        environment.sql(f"DROP {name}")


def price(broker: EmbeddedBroker, topic: str, prices: Mapping[str, int]) -> None:
    """Set the prices of pages."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 2})
    for page, amount in prices.items():
        key, value = json.dumps({"page": page}), json.dumps({"price": amount})
        producer.produce(topic, value.encode(), key.encode(), partition=ord(page) % 2)
    producer.flush()


def shown(environment: Environment, kind: str, name: str) -> Mapping[str, Any]:
    """The row of SHOW about an object."""
    rows = environment.sql(f"SHOW {kind}")[0].dicts()
    return next(row for row in rows if row["name"] == name)


def reached(environment: Environment) -> Any:
    """The event time up to which the events are there."""
    return shown(environment, "REBASES", "rebased")["event_time"]


def changes(environment: Environment, name: str, bounds: tuple[int, int]) -> list[Change]:
    """All changes of a collection from one time of the clock to another."""
    received: list[Change] = []
    for message in environment.client.stream(f"SUBSCRIBE {name} AS OF {bounds[0]}"):
        match message:
            case {"type": "rows", "rows": list(rows)}:
                received += [(time, diff, tuple(row)) for time, diff, *row in rows]
            case {"type": "progress", "frontier": int(frontier)} if frontier > bounds[1]:
                break
            case {"type": "error", "error": error}:
                raise AssertionError(f"{name}: {error}")
            case _:
                pass
    return [change for change in received if change[0] <= bounds[1]]


def contents(updates: Sequence[Change], time: int) -> Counter[tuple[Any, ...]]:
    rows: Counter[tuple[Any, ...]] = Counter()
    for at, diff, row in updates:
        rows[row] += diff if at <= time else 0
    assert min(rows.values(), default=0) >= 0
    return +rows


def joined(
    con: duckdb.DuckDBPyConnection,
    clicks: Counter[tuple[Any, ...]],
    prices: Counter[tuple[Any, ...]],
) -> Counter[Any]:
    """What DuckDB says of the view, over the contents of its inputs."""
    for name, columns, rows in (
        ("clicks", ("id", "page", "ts"), clicks),
        ("prices", ("page", "price"), prices),
    ):
        values = [list(row) for row in rows.elements()]
        data = {column: [row[i] for row in values] for i, column in enumerate(columns)}
        con.register(name, pa.table(data))
    return Counter(con.sql(PRICED.format(clicks="clicks", prices="prices")).fetchall())


@through_kills
def test_a_rebase_goes_on_after_a_kill(
    environment: Environment, broker: EmbeddedBroker
) -> Iterator[str]:
    with shop(environment, broker) as topics:
        yield from halves(environment, broker, topics)


def halves(
    environment: Environment, broker: EmbeddedBroker, shop: Mapping[str, str]
) -> Iterator[str]:
    """Half of the events and prices, a kill of the replica, the other half."""
    rows, source = arrivals("views", 240), random.Random(7)
    price(broker, shop["prices"], dict.fromkeys("abc", 1))
    send(broker, shop["clicks"], rows[:120])
    eventually(lambda: reached(environment) is not None)
    eventually(lambda: len(environment.sql("SELECT 1 FROM priced LIMIT 9")[0].rows) == 9)
    for number in range(6):
        if number == 3:
            yield "before"
        before = reached(environment)
        price(broker, shop["prices"], {source.choice("abc"): number})
        send(broker, shop["clicks"], rows[120 + 10 * number : 130 + 10 * number])
        if number < 3:
            eventually(lambda before=before: reached(environment) != before)  # type: ignore[misc]  # bound now
        if number == 3:
            yield "replica"
    send(broker, shop["clicks"], [*rows[180:], *pushes("views")])
    yield "others"
    eventually(lambda: reached(environment) == "2023-11-14 22:14:20")
    rebase = shown(environment, "REBASES", "rebased")
    assert (rebase["of"], rebase["status"]) == ("clicks", "running")
    others = [shown(environment, *of) for of in (("SOURCES", "prices"), (VIEWS, "priced"))]
    since = max(of["since"] for of in (rebase, *others))  # each is born at a time of its own
    bounds = (since, rebase["upper"] - 1)
    changed = {name: changes(environment, name, bounds) for name in NAMES}
    events = {row["id"]: row["ms"] for row in rows}
    times = sorted({time for of in changed.values() for time, _, _ in of} | set(bounds))
    con = duckdb.connect()
    for time in times:
        clicks, prices = contents(changed["rebased"], time), contents(changed["prices"], time)
        _is_as_of_some_event_time(clicks, events)
        assert contents(changed["priced"], time) == joined(con, clicks, prices), time
    assert contents(changed["rebased"], bounds[1]).total() == len(rows)
    assert {diff for _, diff, _ in changed["rebased"]} == {1}
    assert len({time for time, _, _ in changed["rebased"]}) > 4, "it came at once"


def _is_as_of_some_event_time(
    clicks: Counter[tuple[Any, ...]], events: Mapping[int, int]
) -> None:
    """Whether the rows are those before one event time."""
    there = {id_ for id_, _, _ in clicks}
    last = max((events[id_] for id_ in there), default=BEGIN - END)
    assert there == {id_ for id_, ms in events.items() if ms <= last}
