"""Rule 27 on a real broker: a replica whose clock is an hour off stamps nothing by it."""

import time
from collections.abc import Callable

import pytest

from streams.kafka.embedded import EmbeddedBroker
from streams.replica.driver import assembly
from streams.replica.main import Replica
from tests.integration.replica.json_producer import Feed
from tests.integration.replica.support import Bench, now_ms

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

HOUR_MS = 3_600_000
COLUMNS = (("id", "BIGINT"),)


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, pytest.param(-HOUR_MS, marks=pytest.mark.long)])
def test_what_comes_is_not_stamped_by_a_wrong_clock(
    bench: Bench,
    run: Callable[..., Replica],
    broker: EmbeddedBroker,
    monkeypatch: pytest.MonkeyPatch,
    ahead_ms: int,
) -> None:
    ahead = ahead_ms
    monkeypatch.setattr(assembly, "_now_ms", lambda: now_ms() + ahead)
    raw = bench.raw_topic()
    feed = Feed(broker.bootstrap)
    feed.send(raw, [{"id": 0}])
    bench.source("orders", COLUMNS, raw)
    run()
    for step in (1, 2, 3):
        await_rows(bench, step)
        assert bench.upper("orders") <= now_ms() + 1
        feed.send(raw, [{"id": step}])
    await_rows(bench, 4)
    upper = bench.upper("orders")
    time.sleep(3)
    assert bench.upper("orders") == upper, "it does not tick"
    ahead = 0
    bench.wait_upper("orders", now_ms(), 180)
    assert sorted(bench.table("orders")["id"].to_pylist()) == [0, 1, 2, 3]


def await_rows(bench: Bench, count: int) -> None:
    until = time.monotonic() + 90
    while bench.table("orders").num_rows < count:
        assert time.monotonic() < until, f"{count} rows were expected"
        time.sleep(0.1)
