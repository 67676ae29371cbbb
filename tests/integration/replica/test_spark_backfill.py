"""A backfill in real Spark tasks, some of which are killed, and the follow after it."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from connectors.backfill import job
from connectors.backfill.backfill import Backfill
from connectors.backfill.outcome import Outcome, Progress
from connectors.backfill.tasks import Cell, Plan, TaskServices
from connectors.driver import Driver
from connectors.runtime.runner import BackfillProgress, Runner, Status
from connectors.runtime.task import Materialization
from connectors.testing.faults import Act, Fault, Faulty
from streams.app.connector.lookup import driver_of
from streams.app.materialize.backfill import Reached
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from tests.support.collections import Collections

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ITEMS = 500
LOG = {"table": "log", "delta_updates": True}
COLUMNS = (("item", "BIGINT"), ("amount", "BIGINT"))


@pytest.fixture
def collections(broker: EmbeddedBroker) -> Iterator[Collections]:
    """A collection that is written in ten batches; each time a tenth of the items changes."""
    kafka = KafkaBroker(ClientSettings(broker.bootstrap))
    fixture = Collections(kafka, f"fill{uuid.uuid4().hex[:8]}")
    fixture.create("u1", COLUMNS, keys=("item",))
    fixture.append("u1", 12, [(n, 11, 11, 1) for n in range(ITEMS)])
    for time in range(12, 21):
        change(fixture, time)
    yield fixture
    fixture.close()
    kafka.close()


def change(collections: Collections, time: int) -> None:
    """Every tenth item from n = time % 10 on goes from its amount to `time`."""
    items = range(time % 10, ITEMS, 10)
    deletions = [(n, time - 10 if time > 20 else 11, time, -1) for n in items if n % 10 != 1]
    come = [(n, time, time, 1) for n in items if n % 10 != 1]
    collections.append("u1", time + 1, [*deletions, *come])


def contents(time: int) -> list[tuple[int, int]]:
    """At a time."""
    last = {at % 10: at for at in range(12, time + 1) if at % 10 != 1}
    return [(n, last.get(n % 10, 11)) for n in range(ITEMS)]


@dataclass(frozen=True)
class Killed:
    """Kills the processes of the first tasks that come to an event of their session."""

    inner: Reached
    fault: Fault
    markers: Path
    """A directory with a file for each death."""
    deaths: int = 1

    @contextmanager
    def __call__(self) -> Iterator[TaskServices]:
        with self.inner() as access:
            stall = Faulty(access.driver.transport, self.fault, self._die)
            yield TaskServices(access.load, Driver(stall))

    def _die(self, event: str) -> None:
        if event != self.fault.event:
            return
        for number in range(self.deaths):
            try:
                (self.markers / f"killed{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)

    @property
    def count(self) -> int:
        """How many have died."""
        return len(list(self.markers.glob("killed*")))


class Shop:
    """A task over the collection, and what is in its endpoint."""

    def __init__(
        self, collections: Collections, connector: str, config: Any, resource: Any, query: Any
    ) -> None:
        self.collections, self.connector, self.config = collections, connector, config
        self.resource = resource
        self.statuses: list[Status] = []
        self.told: list[tuple[int, int]] = []
        """What the last job has said of its progress."""
        self.more: list[dict[str, Any]] = []
        self.query: Callable[[str], list[Any]] = query

    def task(self, shards: int = 1) -> Materialization:
        binding = {"collection": "u1", "resource": self.resource, "key": ["item"]}
        return Materialization.model_validate(
            {
                "task": "shop",
                "connector": self.connector,
                "config": self.config,
                "bindings": [binding, *self.more],
                "shards": shards,
                "limits": {"every_ms": 0},
            }
        )

    def backfill(self, spark: SparkSession, accessing: Any, ranges: int = 3) -> Any:
        def run(plan: Plan, cells: Sequence[Cell], progress: Progress) -> Outcome:
            def tell(ranges: int, rows: int) -> None:
                self.told.append((ranges, rows))
                progress(ranges, rows)

            self.told.clear()
            return job.run(spark, accessing, plan, cells, tell)

        with driver_of(self.connector) as driver:
            return Backfill(
                self.task(),
                driver,
                self.collections.client(),
                ranges=ranges,
                job=run,
                stopping=threading.Event(),
                report=self.statuses.append,
            ).run()

    def follow(self, shards: int) -> None:
        with driver_of(self.connector) as driver:
            Runner(
                self.task(shards),
                driver,
                self.collections.client(),
                now_ms=lambda: 1000,
                stopping=threading.Event(),
            ).run(until_caught_up=True)


def on_sqlite(collections: Collections, path: Path, _: Any) -> Shop:
    def query(sql: str) -> list[Any]:
        connection = sqlite3.connect(path / "shop.db", timeout=30)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    config = {"path": str(path / "shop.db")}
    return Shop(collections, "sqlite", config, {"table": "prices"}, query)


def on_postgres(collections: Collections, _: Path, request: Any) -> Shop:
    server = request.getfixturevalue("postgres")
    config = server.config()
    query = partial(server.query, config["database"])
    return Shop(collections, "postgres", config, {"table": "prices"}, query)


def read_through(shop: Shop) -> set[int]:
    texts = shop.query("SELECT read_through FROM slackwater_checkpoints")
    return {
        int(source["readThrough"])
        for (text,) in texts
        for source in json.loads(text)["sources"].values()
    }


@pytest.mark.parametrize("make", [on_sqlite, on_postgres])
@pytest.mark.parametrize("event", ["commit", pytest.param("committed", marks=pytest.mark.long)])
def test_killed_tasks_lose_and_repeat_nothing(
    make: Any,
    event: str,
    spark: SparkSession,
    broker: EmbeddedBroker,
    collections: Collections,
    memory_path: Path,
    request: Any,
) -> None:
    """Killed just before its commit, and just after it, when nobody knows of it."""
    shop = make(collections, memory_path, request)
    reached = Reached(ClientSettings(broker.bootstrap), shop.connector, {})
    killed = Killed(reached, Fault(Act.STALL, event), memory_path)
    status = shop.backfill(spark, killed)
    assert killed.count == 1
    assert (status.time, status.rows <= ITEMS) == (20, True)
    assert shop.query("SELECT item, amount FROM prices ORDER BY item") == contents(20)
    assert read_through(shop) == {21}
    change(collections, 21)
    change(collections, 22)
    shop.follow(shards=2)
    assert shop.query("SELECT item, amount FROM prices ORDER BY item") == contents(22)
    assert read_through(shop) == {23}


def test_a_job_that_fails_is_run_again(
    spark: SparkSession, broker: EmbeddedBroker, collections: Collections, memory_path: Path
) -> None:
    """Spark gives a task four attempts, and the job has a task."""
    shop = on_sqlite(collections, memory_path, None)
    reached = Reached(ClientSettings(broker.bootstrap), "sqlite", {})
    killed = Killed(reached, Fault(Act.STALL, "commit"), memory_path, deaths=4)
    shop.backfill(spark, killed, ranges=1)
    assert killed.count == 4
    assert shop.query("SELECT item, amount FROM prices ORDER BY item") == contents(20)


def test_files_of_all_ranges_are_there_once(
    spark: SparkSession, broker: EmbeddedBroker, collections: Collections, memory_path: Path
) -> None:
    def query(sql: str) -> list[Any]:
        with duckdb.connect() as connection:
            return connection.execute(sql).fetchall()

    config = {"url": str(memory_path)}
    shop = Shop(collections, "files", config, {"path": "prices"}, query)
    reached = Reached(ClientSettings(broker.bootstrap), "files", {})
    killed = Killed(reached, Fault(Act.STALL, "committed"), memory_path)
    shop.backfill(spark, killed)
    assert killed.count == 1
    table = f"read_parquet('{memory_path}/prices/*.parquet')"
    rows = f"SELECT item, sum(slackwater_diff), max(amount) FROM {table}"
    assert query(f"{rows} GROUP BY item ORDER BY item") == [
        (item, 1, amount) for item, amount in contents(20)
    ]
    change(collections, 22)
    shop.follow(shards=2)
    now = f"SELECT item, amount FROM {table} GROUP BY ALL HAVING sum(slackwater_diff) > 0"
    assert sorted(query(now)) == contents(22)


def test_a_violated_key_stops_its_binding_alone(
    spark: SparkSession, broker: EmbeddedBroker, collections: Collections, memory_path: Path
) -> None:
    """In the ranges of its other keys too; a binding of delta updates has no key to violate."""
    shop = on_sqlite(collections, memory_path, None)
    shop.more = [{"collection": "u1", "resource": LOG, "key": ["item"]}]
    collections.append("u1", 22, [(7, 1, 21, 1)])
    status = shop.backfill(spark, Reached(ClientSettings(broker.bootstrap), "sqlite", {}))
    assert status.stalls == {"prices": "key (item = 7) is not unique: 2 rows have it at 21"}
    assert (status.rows, status.commits, status.time) == (ITEMS + 1, 3, 21)
    assert shop.query("SELECT count(*) FROM prices") == [(0,)]
    assert shop.query("SELECT count(*) FROM log") == [(ITEMS + 1,)]
    assert shop.told[-1] == (3, ITEMS + 1), "by the accumulator, before the job's answer"
    assert shop.told == sorted(shop.told)
    told = [status for status in shop.statuses if status.backfill is not None]
    assert told[-1].backfill == BackfillProgress(3, 3, "key ranges")


TASK = """
task: shop
connector: sqlite
config: {path: %s}
bindings:
  - {collection: u1, key: [item], resource: {table: prices}}
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_command_fills_and_follows(
    broker: EmbeddedBroker, collections: Collections, memory_path: Path
) -> None:
    """In a process of its own: a JVM that another test has started has its own settings."""
    shop = on_sqlite(collections, memory_path, None)
    file = memory_path / "shop.yaml"
    file.write_text(TASK % (memory_path / "shop.db"))
    command = [sys.executable, "-m", "streams.app.main", "materialize", "run", str(file)]
    where = ["--brokers", broker.bootstrap, "--namespace", collections.namespace, "--json"]
    spark = ["--backfill", "spark", "--master", "local[2,4]", "--ranges", "3"]
    done = subprocess.run(
        [*command, *where, *spark, "--until-caught-up"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    states = [json.loads(line) for line in done.stdout.splitlines()]
    filling = next(state for state in states if state["state"] == "backfilling")
    assert filling["message"] == "3 key ranges at 20"
    assert (states[-1]["state"], states[-1]["time"]) == ("done", 20)
    assert shop.query("SELECT item, amount FROM prices ORDER BY item") == contents(20)
