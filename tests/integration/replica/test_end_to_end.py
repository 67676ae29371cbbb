"""Raw topic to view and back, on a real broker and Spark, judged by DuckDB at every time."""

import random
import time
from collections.abc import Callable

import pytest

from streams.kafka.embedded import EmbeddedBroker
from streams.replica.main import Replica
from tests.integration.replica.json_producer import Feed
from tests.integration.replica.support import Bench, judge

pytestmark = pytest.mark.integration

ORDERS = (("id", "BIGINT"), ("customer", "BIGINT"), ("amount", "BIGINT"))
CUSTOMERS = (("id", "BIGINT"), ("name", "VARCHAR"))


def test_source_and_views_are_exact_at_every_time(
    bench: Bench, run: Callable[..., Replica], broker: EmbeddedBroker
) -> None:
    raw = bench.raw_topic()
    feed = Feed(broker.bootstrap)
    feed.send(raw, [{"id": i, "customer": i % 7, "amount": i} for i in range(1000)])
    bench.source("orders", ORDERS, raw)
    totals = (
        "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"
    )
    bench.view("totals", totals)
    run()
    bench.settle("orders", "totals")
    big = "SELECT customer, total FROM totals WHERE total > 71000"
    bench.view("big", big)
    rng = random.Random(1)
    for _ in range(6):
        feed.send(
            raw,
            [{"id": i, "customer": rng.randrange(9), "amount": i} for i in range(50)],
        )
        bench.settle("orders")
    bench.settle("orders", "totals", "big")
    assert judge(bench, "totals", totals, ["orders"]) >= 5
    assert judge(bench, "big", big, ["totals"]) >= 3


def test_upserts_joins_and_bad_messages(
    bench: Bench, run: Callable[..., Replica], broker: EmbeddedBroker
) -> None:
    orders, people = bench.raw_topic(), bench.raw_topic()
    feed = Feed(broker.bootstrap)
    feed.put(people, [({"id": i}, {"name": f"p{i % 3}"}) for i in range(20)])
    feed.send(orders, [{"id": i, "customer": i % 20, "amount": i} for i in range(200)])
    bench.source("orders", ORDERS, orders)
    bench.source("people", CUSTOMERS, people, keys=("id",))
    by_name = (
        "SELECT p.name, count(*) AS n, sum(o.amount) AS total, min(o.amount) AS least, "
        "max(o.amount) AS most FROM orders o JOIN people p ON o.customer = p.id GROUP BY p.name"
    )
    bench.view("by_name", by_name)
    run()
    bench.settle("orders", "people", "by_name")
    rng = random.Random(2)
    for round_ in range(5):
        feed.put(
            people,
            [
                ({"id": i}, rng.choice([None, {"name": f"q{rng.randrange(3)}"}]))
                for i in rng.sample(range(25), 4)
            ],
        )
        feed.send(orders, [{"id": 0, "customer": rng.randrange(25), "amount": round_}] * 3)
        bench.settle("orders", "people")
    bench.settle("orders", "people", "by_name")
    assert judge(bench, "by_name", by_name, ["orders", "people"]) >= 4
    feed.put(people, [({"id": 1}, b"{"), ({"id": 2}, {"name": "ok"})])
    bench.settle("people", "by_name")
    _, errors = bench.updates("by_name")
    assert [row["diff"] for row in errors.to_pylist()] == [1]
    assert people in errors["error"][0].as_py()
    feed.put(people, [({"id": 1}, {"name": "healed"})])
    bench.settle("people", "by_name")
    _, errors = bench.updates("by_name")
    assert sum(errors["diff"].to_pylist()) == 0


def test_a_dropped_view_stops_and_the_others_go_on(
    bench: Bench, run: Callable[..., Replica], broker: EmbeddedBroker
) -> None:
    raw = bench.raw_topic()
    feed = Feed(broker.bootstrap)
    bench.source("orders", ORDERS, raw)
    run()
    count = "SELECT count(*) AS n FROM orders"
    bench.view("one", count)
    bench.view("two", count)
    feed.send(raw, [{"id": 1, "customer": 1, "amount": 1}])
    bench.settle("one", "two")
    bench.drop("one")
    time.sleep(1)
    stands = bench.upper("one")
    feed.send(raw, [{"id": 2, "customer": 1, "amount": 1}])
    bench.settle("two")
    assert bench.upper("one") <= stands + 1500
    assert judge(bench, "two", count, ["orders"]) >= 2


@pytest.mark.parametrize("count", [8, pytest.param(50, marks=pytest.mark.long)])
def test_many_views_over_one_source(
    bench: Bench, run: Callable[..., Replica], broker: EmbeddedBroker, count: int
) -> None:
    raw = bench.raw_topic()
    feed = Feed(broker.bootstrap)
    feed.send(raw, [{"id": i, "customer": i % 90, "amount": i} for i in range(500)])
    bench.source("orders", ORDERS, raw)
    queries = {
        f"v{number}": f"SELECT customer % {number + 2} AS k, count(*) AS n, "
        "sum(amount) AS total FROM orders GROUP BY ALL"
        for number in range(count)
    }
    for name, query in queries.items():
        bench.view(name, query)
    run()
    bench.settle(*queries)
    for round_ in range(3):
        feed.send(raw, [{"id": i, "customer": i, "amount": round_} for i in range(40)])
        bench.settle("orders")
    bench.settle(*queries)
    for name, query in queries.items():
        assert judge(bench, name, query, ["orders"]) >= 2
