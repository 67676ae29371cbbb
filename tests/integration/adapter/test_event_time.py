"""Sources of event times with different delays, compared with DuckDB at every event time."""

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from streams.app.environment import Environment
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.shared_kills import through_kills
from tests.integration.adapter.support import eventually, raw_topic, upper
from tests.support.logical_time import set_time

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

BEGIN = 1_700_000_000_000
END = BEGIN + 60_000
"""No row but those that push the watermarks is beyond."""

PARTITIONS = 2
DELAYS_MS = {"views": 2_000, "buys": 9_000}

QUERIES = {
    "joined": "SELECT v.page, count(*) AS n, sum(b.amount) AS total FROM {views} v"
    " JOIN {buys} b ON v.id = b.seen GROUP BY v.page",
    "windows": "SELECT time_bucket(INTERVAL '5 seconds', ts) AS w, count(*) AS n FROM {buys}"
    " GROUP BY 1",
    "recent": "SELECT id FROM {views} WHERE mz_now() < ts + INTERVAL '3 seconds'",
    "closed": "SELECT time_bucket(INTERVAL '5 seconds', ts) AS w, count(*) AS n FROM {buys}"
    " GROUP BY 1 EMIT ON CLOSE (w + INTERVAL '5 seconds')",
}
CONTENTS = QUERIES | {
    "closed": "SELECT time_bucket(INTERVAL '5 seconds', ts) AS w, count(*) AS n FROM {buys}"
    " GROUP BY 1 HAVING mz_now() >= w + INTERVAL '5 seconds'",
}
"""What a view holds at a time, as DuckDB says it. No row is late here."""

Row = Mapping[str, Any]
Change = tuple[int, int, tuple[object, ...]]


def arrivals(kind: str, count: int) -> list[Row]:
    """Rows in the order of their arrival: no event time is as much as the delay too early."""
    source = random.Random(kind)
    step = (END - BEGIN) // count
    disorder = DELAYS_MS[kind] - step
    rows: list[Row] = []
    for number in range(count):
        at = BEGIN + number * step - source.randrange(disorder)
        extra = {"page": source.choice("abc")} if kind == "views" else {"amount": number}
        rows.append({"id": number, "seen": source.randrange(count), "ms": at, **extra})
    return rows


def pushes(kind: str) -> list[Row]:
    """For each partition a row that moves the watermark to `END`."""
    return [{"id": -1, "seen": -1, "ms": END + DELAYS_MS[kind]}] * PARTITIONS


def send(broker: EmbeddedBroker, topic: str, rows: Sequence[Row]) -> None:
    """Send rows to the partitions by turns."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 2})
    for number, row in enumerate(rows):
        ts = str(datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=row["ms"]))
        value = {**row, "ts": ts.removesuffix("+00:00")}
        producer.produce(topic, json.dumps(value).encode(), partition=number % PARTITIONS)
    producer.flush()


def changes(environment: Environment, view: str) -> list[Change]:
    """All changes of a collection before `END`."""
    stream = environment.client.stream(f"SUBSCRIBE {view} AS OF 0")
    return list(_changes(stream))


def _changes(stream: Iterator[Mapping[str, Any]]) -> Iterator[Change]:
    for message in stream:
        match message:
            case {"type": "rows", "rows": list(rows)}:
                for time, diff, *row in rows:
                    if time < END:
                        yield time, diff, tuple(row)
            case {"type": "progress", "frontier": int(frontier)} if frontier >= END:
                return
            case _:
                pass


def contents(updates: Sequence[Change], time: int) -> Counter[tuple[object, ...]]:
    rows: Counter[tuple[object, ...]] = Counter()
    for at, diff, row in updates:
        rows[row] += diff if at <= time else 0
    return +rows


class Oracle:
    """DuckDB over the rows up to an event time, in the text of our answers."""

    def __init__(self, sent: Mapping[str, Sequence[Row]]) -> None:
        self._con = duckdb.connect()
        self._con.execute("SET TimeZone='UTC'")
        for kind, rows in sent.items():
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            self._con.register("rows", pa.table(columns))
            timed = "SELECT *, make_timestamp(ms * 1000) AS ts FROM rows"
            self._con.execute(f"CREATE TABLE all_{kind} AS {timed}")

    def at(self, query: str, time: int) -> Counter[tuple[object, ...]]:
        for kind in DELAYS_MS:
            self._con.execute(
                f"CREATE OR REPLACE TEMP VIEW {kind} AS FROM all_{kind} WHERE ms <= {time}"
            )
        set_time(self._con, time)
        rows = self._con.sql(query.format(views="views", buys="buys")).fetchall()
        return Counter(tuple(_told(value) for value in row) for row in rows)


def _told(value: object) -> object:
    return value if isinstance(value, int | str | None) else str(value)


@contextmanager
def shop(
    environment: Environment, broker: EmbeddedBroker, queries: Mapping[str, str] = QUERIES
) -> Iterator[Mapping[str, str]]:
    """The topics of two sources, whose names are `views` and `buys`, with views over them."""
    topics = {kind: raw_topic(broker.bootstrap, PARTITIONS) for kind in DELAYS_MS}
    history = "LAG BEHIND UPPER '3000 weeks'"
    for kind, topic in topics.items():
        extra = "page VARCHAR" if kind == "views" else "amount BIGINT"
        environment.sql(
            f"CREATE SOURCE {kind} FROM KAFKA (TOPIC '{topic}')"
            f" (id BIGINT, seen BIGINT, ts TIMESTAMP, {extra},"
            f" WATERMARK FOR ts AS ts - INTERVAL {DELAYS_MS[kind] // 1000} SECONDS) FORMAT JSON"
            f" WITH (LATE ROWS DEAD LETTER, IDLE AFTER '1 hour', {history})"
        )
    for view, query in queries.items():
        text = query.format(views="views", buys="buys")
        environment.sql(f"CREATE MATERIALIZED VIEW {view} WITH ({history}) AS {text}")
    yield topics
    for view in [*queries][::-1]:
        environment.sql(f"DROP MATERIALIZED VIEW {view}")
    for kind in topics:
        environment.sql(f"DROP SOURCE {kind}")


@through_kills
def test_views_over_event_times_are_right_at_each(
    environment: Environment, broker: EmbeddedBroker
) -> Iterator[str]:
    with shop(environment, broker) as topics:
        yield from halves(environment, broker, topics)


def halves(
    environment: Environment, broker: EmbeddedBroker, topics: Mapping[str, str]
) -> Iterator[str]:
    """Half of the rows, a kill of the replica, the other half."""
    sent = {"views": arrivals("views", 120), "buys": arrivals("buys", 60)}
    for kind, rows in sent.items():
        send(broker, topics[kind], rows[: len(rows) // 2])
    eventually(lambda: upper(environment, "SOURCES", "views") > BEGIN)
    yield "replica"
    for kind, rows in sent.items():
        send(broker, topics[kind], [*rows[len(rows) // 2 :], *pushes(kind)])
    yield "others"
    for kind in sent:
        reached = partial(upper, environment, "SOURCES", kind)
        eventually(lambda reached=reached: reached() == END)  # type: ignore[misc]  # bound now
    times = sorted({row["ms"] for rows in sent.values() for row in rows} | {END - 1})
    seen = {view: changes(environment, view) for view in QUERIES}
    oracle = Oracle(sent)
    for view, time in itertools.product(QUERIES, times):
        assert contents(seen[view], time) == oracle.at(CONTENTS[view], time), (view, time)
    assert len(seen["closed"]) > 10
    assert {diff for _, diff, _ in seen["closed"]} == {1}
    middle = BEGIN + 30_000
    (answer,) = environment.sql(f"SELECT * FROM windows AS OF {middle}")
    assert Counter(answer.rows) == oracle.at(QUERIES["windows"], middle)
    assert answer.facts["as_of"] == middle


def test_a_late_row_is_a_dead_letter(environment: Environment, broker: EmbeddedBroker) -> None:
    with shop(environment, broker, {}) as topics:
        send(broker, topics["buys"], pushes("buys"))
        eventually(lambda: upper(environment, "SOURCES", "buys") == END)
        late = {"id": 7, "seen": 0, "ms": BEGIN, "amount": 1}
        later = [{**push, "ms": push["ms"] + 1000} for push in pushes("buys")]
        send(broker, topics["buys"], [late, *later, *later])
        eventually(lambda: upper(environment, "SOURCES", "buys") == END + 1000)
        (letters,) = environment.sql("SELECT partition, value, reason FROM buys.errors")
        ((partition, _, reason),) = letters.rows
        assert partition == 0
        assert str(END) in str(reason) or "2023-11-14" in str(reason)
        assert environment.sql(f"SELECT * FROM buys AS OF {END}")[0].rows == ()
