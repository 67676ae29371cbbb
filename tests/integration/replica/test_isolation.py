"""A dataflow that kills its workers, or never ends: it stands alone, and says so."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streams.compute.codec import decode_response
from streams.compute.protocol import Status
from streams.ids import Offset
from streams.kafka.embedded import EmbeddedBroker
from streams.replica.main import Replica
from streams.trace.kernel.functions import Function
from tests.integration.adapter.support import eventually
from tests.integration.replica.json_producer import Feed
from tests.integration.replica.support import Bench
from tests.support.small_disk import may_mount, mounting, run_unshared

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ORDERS = (("id", "BIGINT"), ("amount", "BIGINT"))
POISONED = "SELECT id, bad(amount) AS n FROM orders"
DEEP = (
    "SELECT id, json_contains(j, j) AS n"
    " FROM (SELECT id, (repeat('[', n) || repeat(']', n))::JSON AS j"
    " FROM (SELECT id, CASE WHEN amount = 13 THEN 150000 ELSE 1 END AS n FROM orders))"
)
"""JSON so deep that DuckDB ends the process (D350)."""


def bad(deed: str) -> Function:
    """Returns its argument, but does a deed where it is 13."""
    body = (
        "import os, time\n"
        "def bad(n):\n"
        "    if 13 in n.to_pylist():\n"
        f"        {deed}\n"
        "    return n\n"
    )
    return Function("bad", ("n",), ("BIGINT",), "BIGINT", body)


def statuses(bench: Bench, name: str) -> list[Status]:
    """What was told of a dataflow's condition, oldest first."""
    tail = bench.broker.logs.tail({bench.response_topic: Offset(0)})
    responses = [decode_response(entry.value).response for entry in tail.poll(2000)]
    tail.close()
    return [status for status in responses if isinstance(status, Status) and status.id == name]


@pytest.mark.parametrize(
    ("query", "deed", "says"),
    [
        (POISONED, "os.kill(os.getpid(), 9)", "was lost: Python worker exited unexpectedly"),
        (POISONED, "time.sleep(3600)", "was cancelled: took longer than"),
        pytest.param(
            DEEP, "", "was lost: Python worker exited unexpectedly", marks=pytest.mark.long
        ),
    ],
)
def test_a_dataflow_that_kills_or_hangs_leaves_its_neighbours_alone(
    bench: Bench,
    run: Callable[..., Replica],
    broker: EmbeddedBroker,
    query: str,
    deed: str,
    says: str,
) -> None:
    topic, feed = bench.raw_topic(), Feed(broker.bootstrap)
    feed.send(topic, [{"id": i, "amount": i} for i in range(10)])
    bench.source("orders", ORDERS, topic)
    bench.view("poisoned", query, functions=[bad(deed)] if deed else [])
    bench.view("neighbour", "SELECT count(*) AS n FROM orders")
    run(deadline_s=8.0, resident_tasks=1)
    bench.settle("orders", "poisoned", "neighbour")
    feed.send(topic, [{"id": 13, "amount": 13}])
    for _ in range(3):
        bench.settle("orders", "neighbour")
    eventually(lambda: f"this dataflow {says}" in statuses(bench, "poisoned")[-1].message, 90)
    assert statuses(bench, "poisoned")[-1].state == "failed"
    assert statuses(bench, "neighbour")[-1].state == "running"
    bench.drop("poisoned")  # nobody waits for what hangs
    bench.settle("orders", "neighbour")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a disk of 24 MB of its own."""
    directory = tmp_path / "disk"
    directory.mkdir()
    subprocess.run(mounting(directory, "24m"), check=True)
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_a_full_disk_stops_the_dataflow_that_fills_it_until_there_is_room(
    request: pytest.FixtureRequest,
) -> None:
    if not may_mount():
        run_unshared(request)
        return
    small_disk: Path = request.getfixturevalue("small_disk")
    bench: Bench = request.getfixturevalue("bench")
    run: Callable[..., Replica] = request.getfixturevalue("run")
    broker: EmbeddedBroker = request.getfixturevalue("broker")
    topic, feed = bench.raw_topic(), Feed(broker.bootstrap)
    feed.send(topic, [{"id": i, "amount": i} for i in range(10)])
    bench.source("orders", ORDERS, topic)
    bench.view("large", "SELECT DISTINCT id, repeat(md5(id::VARCHAR), 8) AS t FROM orders")
    bench.view("small", "SELECT count(*) AS n FROM orders")
    run(state=small_disk / "r1")
    bench.settle("orders", "large", "small")
    feed.send(topic, [{"id": i, "amount": i} for i in range(10, 100_000)])
    for _ in range(3):
        bench.settle("orders", "small")
    eventually(lambda: "no room for state: " in statuses(bench, "large")[-1].message, 90)
    assert statuses(bench, "small")[-1].state == "running"
    subprocess.run(["mount", "-o", "remount,size=512m", str(small_disk)], check=True)
    bench.settle("orders", "large", "small")
    # a status follows the upper it is about
    eventually(lambda: statuses(bench, "large")[-1].state == "running", 180)
