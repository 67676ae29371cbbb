"""Raw topic to view and back, on a real broker and Spark, judged by DuckDB at every time."""

import random
import time
from collections.abc import Callable

import pytest

from streams.kafka.embedded import EmbeddedBroker
from streams.replica.main import Replica
from tests.integration.replica.producing import Feed
from tests.integration.replica.support import Bench, judge, now_ms

pytestmark = pytest.mark.integration

ORDERS = (("id", "BIGINT"), ("customer", "BIGINT"), ("amount", "BIGINT"))
CUSTOMERS = (("id", "BIGINT"), ("name", "VARCHAR"))


def settle(bench: Bench, *names: str) -> None:
    """Wait until everything has passed the present moment."""
    moment = now_ms()
    for name in names:
        bench.wait_upper(name, moment, 90)


def test_source_and_views_are_exact_at_every_time(
    bench: Bench, run: Callable[..., Replica], broker: EmbeddedBroker
) -> None:
    raw = bench.raw_topic()
    feed = Feed(broker.bootstrap)
    feed.send(raw, [{"id": i, "customer": i % 7, "amount": i} for i in range(1000)])
    bench.source("orders", ORDERS, raw)
    totals = "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"
    bench.view("totals", totals)
    run()
    settle(bench, "orders", "totals")
    big = "SELECT customer, total FROM totals WHERE total > 71000"
    bench.view("big", big)
    rng = random.Random(1)
    for _ in range(10):
        feed.send(
            raw,
            [{"id": i, "customer": rng.randrange(9), "amount": i} for i in range(50)],
        )
        time.sleep(0.2)
    settle(bench, "orders", "totals", "big")
    assert judge(bench, "totals", totals, ["orders"]) >= 5
    assert judge(bench, "big", big, ["totals"]) >= 3


