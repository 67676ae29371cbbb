"""A controller subscribes to what two replicas maintain, one of which is killed."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from streams.compute.controller import Controller, Deliveries
from streams.compute.subscribes import Subscribe, SubscribeBatch
from streams.ids import CollectionId, Timestamp
from streams.plan import json as plans
from streams.plan.compile import compile_select
from streams.progress import frontier
from streams.replica.main import Replica
from tests.integration.replica import process
from tests.integration.replica.json_producer import Feed
from tests.integration.replica.support import Bench
from tests.integration.replica.test_peeks import controlled
from tests.support.processes import eventually

pytestmark = pytest.mark.integration

ROUNDS, KILLED_AT, EACH = 6, 2, 100


def folded(
    controller: Controller, deliveries: Deliveries, as_of: int, goal: int
) -> Counter[tuple[int, int]]:
    """The rows at a time, of contiguous intervals up to it."""
    reached, rows = frontier(as_of), Counter[tuple[int, int]]()
    while reached.strictly_precedes(frontier(goal)):
        batch = deliveries.get(timeout=60)
        assert isinstance(batch, SubscribeBatch), batch
        assert frontier(batch.lower) == reached, "neither a gap nor a copy"
        reached = batch.upper
        if batch.count:
            columns = pa.ipc.open_stream(batch.updates).read_all().to_pydict()
            for k, n, time, diff in zip(*columns.values(), strict=True):
                rows[k, n] += diff if time >= batch.lower else 0
        controller.acknowledge("s", reached.time)
    return rows


@pytest.mark.timeout(600)
def test_each_interval_comes_once_though_a_replica_is_killed(
    bench: Bench, run: Callable[..., Replica], tmp_path: Path
) -> None:
    topic = bench.raw_topic()
    bench.source("orders", [("id", "BIGINT"), ("x", "BIGINT")], topic)
    bench.view("sums", "SELECT id % 7 AS k, sum(x)::BIGINT AS n FROM orders GROUP BY ALL")
    selected = compile_select("SELECT k, n FROM sums", bench.relations)
    (tmp_path / "killed").mkdir()
    with controlled(bench) as controller:
        killed = process.start(bench, tmp_path / "killed" / "state", {}, name="r1")
        run("r2")
        try:
            eventually(lambda: len(controller.observed.replicas) == 2, 120)
            feed = Feed(bench.kafka.bootstrap)
            feed.send(topic, [{"id": number, "x": number} for number in range(EACH)])
            bench.settle("sums", timeout_s=180)
            as_of = bench.upper("sums") - 1
            deliveries = controller.subscribe(
                Subscribe(
                    uuid="s",
                    collection=CollectionId("sums"),
                    group="sums",
                    as_of=Timestamp(as_of),
                    plan=plans.dumps(selected.dataflow),
                    project=(0, 1),
                )
            )
            for number in range(1, ROUNDS):
                if number == KILLED_AT:
                    process.kill(killed)
                ids = range(number * EACH, (number + 1) * EACH)
                feed.send(topic, [{"id": id_, "x": id_} for id_ in ids])
                bench.settle("sums", timeout_s=180)
            rows = folded(controller, deliveries, as_of, bench.upper("sums"))
            controller.cancel_subscribe("s")
        finally:
            if killed.poll() is None:
                process.kill(killed)
    whole = range(ROUNDS * EACH)
    expected = {(k, sum(id_ for id_ in whole if id_ % 7 == k)): 1 for k in range(7)}
    assert {row: count for row, count in rows.items() if count} == expected
