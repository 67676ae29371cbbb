"""BACKFILL BY SPARK in an environment: real Spark tasks, and kills while they write."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from streams.app.environment import Environment
from streams.errors import InvalidStatement
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.support import eventually, raw_topic
from tests.integration.replica.json_producer import Feed
from tests.support.processes import settled, suspend

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ORDERS = 400
JOB = "streams.app.materialize.spark_process"
STATED = (
    "CREATE MATERIALIZATION filled INTO {} BIND forders (TABLE 'orders', KEY (id))"
    " WITH (BACKFILL BY SPARK, BACKFILL MASTER 'local[2,4]', BACKFILL RANGES 3)"
)


def jobs(environment: Environment) -> set[int]:
    """The processes of Spark jobs that the service runs now."""
    service = environment.children["materializations"].pid
    return {
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if JOB in text(process / "cmdline")
        and f"PPid:\t{service}\n" in text(process / "status")
    }


def text(path: Path) -> str:
    """Empty for a process that has ended."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def rows(path: Path) -> list[Any]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        try:
            return connection.execute("SELECT id, amount FROM orders ORDER BY id").fetchall()
        except sqlite3.OperationalError:
            return []


def test_what_a_killed_job_and_service_leave_is_written_once(
    environment: Environment, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic, feed, path = raw_topic(broker.bootstrap), Feed(broker.bootstrap), tmp_path / "f.db"
    environment.sql(
        f"CREATE SOURCE forders FROM KAFKA (TOPIC '{topic}') (id BIGINT, amount BIGINT)"
        " FORMAT JSON"
    )

    def order(begin: int) -> None:
        ids = range(begin, begin + ORDERS)
        feed.send(topic, [{"id": id_, "amount": id_ % 7} for id_ in ids])

    def status() -> tuple[str, str]:
        ((*_, status, detail),) = (
            (str(row[4]), str(row[-1]))
            for row in environment.sql("SHOW MATERIALIZATIONS")[0].rows
            if row[0] == "filled"
        )
        return status, detail

    order(0)
    count = "SELECT count(*) FROM forders"
    eventually(lambda: environment.sql(count)[0].rows == ((ORDERS,),))
    with pytest.raises(InvalidStatement, match="a file of duckdb is open in one process"):
        environment.sql(STATED.format(f"DUCKDB (PATH '{tmp_path / 'f.duckdb'}')"))

    environment.sql(STATED.format(f"SQLITE (PATH '{path}')"))
    eventually(lambda: bool(jobs(environment)))
    (first,) = jobs(environment)
    job = psutil.Process(first)
    suspend(first)
    eventually(lambda: status()[0] == "backfilling")
    assert status()[1].startswith("3 key ranges at ")
    environment.kill("materializations")  # and with it the job
    settled([job])
    eventually(lambda: len(rows(path)) == ORDERS)
    eventually(lambda: status()[0] == "running")
    assert not jobs(environment), "Spark has ended with its job"

    order(ORDERS)
    eventually(lambda: len(rows(path)) == 2 * ORDERS)
    assert rows(path) == [(id_, id_ % 7) for id_ in range(2 * ORDERS)]
    environment.sql("DROP MATERIALIZATION filled")
    environment.sql("DROP SOURCE forders")
