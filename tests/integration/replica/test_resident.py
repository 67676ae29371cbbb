"""Small steps in a resident task of Spark: exact, whatever becomes of the task."""

import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streams.kafka.embedded import EmbeddedBroker
from streams.replica.driver import fast_path
from streams.replica.main import Replica
from streams.replica.spark import worker_daemon
from streams.trace.kernel.functions import Function
from tests.integration.adapter.support import eventually
from tests.integration.replica.json_producer import Feed
from tests.integration.replica.support import Bench, judge
from tests.integration.replica.test_kill import batches_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ORDERS = (("id", "BIGINT"), ("customer", "BIGINT"), ("amount", "BIGINT"))
VIEWS = {
    "totals": (
        "SELECT customer, count(*) AS n, sum(amount) AS total, max(id) AS last"
        " FROM orders GROUP BY customer",
        ["orders"],
    ),
    "top": (
        "SELECT o.id, o.amount, t.total FROM orders o JOIN totals t ON o.customer = t.customer"
        " WHERE o.amount = 7",
        ["orders", "totals"],
    ),
}


def deadly(directory: Path) -> Function:
    """Returns its argument; the process that first sees one of five numbers kills itself."""
    body = (
        "import os, pathlib\n"
        "def deadly(n):\n"
        "    for each in n.to_pylist():\n"
        "        if each < 2500 and each % 500 == 499:\n"
        f"            file = pathlib.Path({str(directory)!r}) / str(each)\n"
        "            if not file.exists():\n"
        "                file.touch()\n"
        "                os.kill(os.getpid(), 9)\n"
        "    return n\n"
    )
    return Function("deadly", ("n",), ("BIGINT",), "BIGINT", body)


class Orders(threading.Thread):
    """Sends orders, some at a time."""

    def __init__(self, feed: Feed, topic: str) -> None:
        super().__init__(daemon=True)
        self.feed, self.topic, self.sent = feed, topic, 0
        self.stopping = threading.Event()
        self.lock = threading.Lock()

    def run(self) -> None:
        while not self.stopping.wait(0.05):
            self.send(10)

    def send(self, count: int) -> None:
        with self.lock:
            self.feed.send(self.topic, self._rows(count))
            self.sent += count

    def send_at_once(self, count: int) -> None:
        with self.lock:
            self.feed.send_at_once(self.topic, self._rows(count))
            self.sent += count

    def _rows(self, count: int) -> list[dict[str, int]]:
        numbers = range(self.sent, self.sent + count)
        return [{"id": i, "customer": i % 13, "amount": i % 11} for i in numbers]


def ways(state: Path, lane: str = "ingest") -> Counter[str]:
    """How often micro-batches of a lane with rows went each way."""
    return Counter(
        batch["way"] for batch in batches_of(state) if batch["lane"] == lane and batch["rows"]
    )


def ways_of_many(state: Path) -> set[str]:
    """The ways of micro-batches with more rows than a resident task is given, times views."""
    most = fast_path.MOST_MESSAGES * (2 + len(VIEWS))
    return {batch["way"] for batch in batches_of(state) if batch["rows"] > most}


def test_steps_are_exact_whichever_way_they_go(
    bench: Bench,
    run: Callable[..., Replica],
    broker: EmbeddedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tasks are killed in the middle of steps, by a function as well; backlog takes jobs."""
    monkeypatch.setattr(fast_path, "FIRST_BAR_S", 0.5)
    monkeypatch.setattr(fast_path, "LONGEST_BAR_S", 0.5)
    monkeypatch.setattr(fast_path, "LEAST_MS", 1000.0)
    topic = bench.raw_topic()
    orders = Orders(Feed(broker.bootstrap), topic)
    bench.source("orders", ORDERS, topic)
    for name, (query, _) in VIEWS.items():
        bench.view(name, query)
    marks = tmp_path / "marks"
    marks.mkdir()
    bench.view(
        "counted", "SELECT count(deadly(id)) AS n FROM orders", functions=[deadly(marks)]
    )
    points = {"after-state@worker": 30, "before-chunks@worker": 60}
    state = tmp_path / "r1"
    run(state=state, points=points, resident_tasks=1)
    bench.settle("orders", *VIEWS, "counted")
    orders.start()
    eventually(lambda: ways(state)["resident"] > 60 and len(list(marks.iterdir())) > 1, 240)
    for point, hits in points.items():
        assert (state / f"crash-{point}").stat().st_size >= hits, point
    before = ways(state)
    orders.send_at_once(40_000)  # more in each partition than a resident task is given
    bench.settle("orders", *VIEWS, "counted")
    eventually(lambda: ways_of_many(state) == {"query"}, 30)
    eventually(lambda: ways(state)["resident"] > before["resident"], 60)
    orders.stopping.set()
    orders.join()
    bench.settle("orders", *VIEWS, "counted")
    for name, (query, inputs) in VIEWS.items():
        assert judge(bench, name, query, inputs) > 5
    assert judge(bench, "counted", "SELECT count(id) AS n FROM orders", ["orders"]) > 5
    assert sorted(bench.table("orders")["id"].to_pylist()) == list(range(orders.sent))


def test_a_resident_task_ends_with_its_replica(
    bench: Bench,
    run: Callable[..., Replica],
    broker: EmbeddedBroker,
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    topic = bench.raw_topic()
    bench.source("orders", ORDERS, topic)
    orders = Orders(Feed(broker.bootstrap), topic)
    replica = run(state=tmp_path / "r1", resident_tasks=2)
    orders.start()
    eventually(lambda: ways(tmp_path / "r1")["resident"] > 3, 120)
    assert len(daemons(spark)) == 1, "it forks the workers of queries, too"
    orders.stopping.set()
    orders.join()
    replica.stop()
    eventually(lambda: not resident_threads(), 60)


def daemons(spark: SparkSession) -> list[str]:
    """The daemons of Python workers that the driver's JVM has started."""
    jvm = spark.sparkContext._gateway.proc.pid
    listed = subprocess.check_output(["ps", "-ewwo", "ppid,args"], text=True)
    return [
        line
        for line in listed.splitlines()
        if line.split(None, 1)[0] == str(jvm) and worker_daemon.__name__ in line
    ]


def resident_threads() -> list[str]:
    """The threads of resident tasks in the driver."""
    return [
        thread.name for thread in threading.enumerate() if thread.name.startswith("resident")
    ]
