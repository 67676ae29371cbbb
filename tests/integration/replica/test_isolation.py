"""A dataflow that kills its workers, or never ends: it stands alone, and says so."""

from collections.abc import Callable

import pytest

from streams.compute.codec import decode_response
from streams.compute.protocol import Status
from streams.ids import Offset
from streams.kafka.embedded import EmbeddedBroker
from streams.replica.main import Replica
from streams.trace.functions import Function
from tests.integration.adapter.support import eventually
from tests.integration.replica.producing import Feed
from tests.integration.replica.support import Bench, now_ms

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ORDERS = (("id", "BIGINT"), ("amount", "BIGINT"))
POISONED = "SELECT id, bad(amount) AS n FROM orders"


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
    found = [decode_response(entry.value).response for entry in tail.poll(2000)]
    tail.close()
    return [each for each in found if isinstance(each, Status) and each.id == name]


@pytest.mark.parametrize(
    ("deed", "says"),
    [
        ("os.kill(os.getpid(), 9)", "was lost: Python worker exited unexpectedly"),
        ("time.sleep(3600)", "was cancelled: took longer than"),
    ],
)
def test_a_dataflow_that_kills_or_hangs_leaves_its_neighbours_alone(
    bench: Bench, run: Callable[..., Replica], broker: EmbeddedBroker, deed: str, says: str
) -> None:
    topic, feed = bench.raw_topic(), Feed(broker.bootstrap)
    feed.send(topic, [{"id": i, "amount": i} for i in range(10)])
    bench.source("orders", ORDERS, topic)
    bench.view("poisoned", POISONED, functions=[bad(deed)])
    bench.view("neighbour", "SELECT count(*) AS n FROM orders")
    run(deadline_s=8.0)
    settle(bench, "orders", "poisoned", "neighbour")
    feed.send(topic, [{"id": 13, "amount": 13}])
    for _ in range(3):
        settle(bench, "orders", "neighbour")
    eventually(lambda: f"this dataflow {says}" in statuses(bench, "poisoned")[-1].message, 90)
    assert statuses(bench, "poisoned")[-1].state == "failed"
    assert statuses(bench, "neighbour")[-1].state == "running"
    bench.drop("poisoned")  # nobody waits for what hangs
    settle(bench, "orders", "neighbour")


def settle(bench: Bench, *names: str) -> None:
    """Wait until collections have passed the present moment."""
    moment = now_ms()
    for name in names:
        bench.wait_upper(name, moment, 90)
