"""Rows that come and go by themselves, stepped by Spark on an idle topic, across a kill.

`make test` has the kill, behind which they go as well; `make test-long` both.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.kafka.embedded import EmbeddedBroker
from streams.replica.main import Replica
from tests.integration.replica import process
from tests.integration.replica.json_producer import Feed
from tests.integration.replica.support import Bench, judge, now_ms

pytestmark = pytest.mark.integration

SESSIONS = (("id", "BIGINT"), ("starts", "BIGINT"), ("ends", "BIGINT"))
VIEWS = {
    "live": (
        "SELECT id, ends FROM sessions WHERE mz_now() >= starts AND mz_now() < ends",
        "sessions",
    ),
    "counted": ("SELECT count(*) AS n, max(ends) AS latest FROM live", "live"),
}
LASTS_MS = 10_000


def begin(bench: Bench, broker: EmbeddedBroker) -> Callable[[], int]:
    """A source and its views; and what lets sessions begin and end from now on."""
    raw, feed = bench.raw_topic(), Feed(broker.bootstrap)
    bench.source("sessions", SESSIONS, raw, keys=("id",))
    for name, (query, _) in VIEWS.items():
        bench.view(name, query)

    def announce() -> int:
        moment = now_ms()
        spans = [(moment + 150 * i, moment + 650 * i + 1) for i in range(15)]
        feed.put(raw, [({"id": i}, {"starts": s, "ends": e}) for i, (s, e) in enumerate(spans)])
        return moment

    return announce


def wait(bench: Bench, moment: int) -> None:
    for name in ("sessions", *VIEWS):
        bench.wait_upper(name, moment, 300)


def check(bench: Bench, moment: int) -> None:
    """All have gone by themselves, each at its time."""
    wait(bench, moment + LASTS_MS + 2_000)
    for name, (query, source) in VIEWS.items():
        assert judge(bench, name, query, [source]) > 15, name
    last = bench.table("sessions")["_time"].to_pylist()[-1]
    changes = bench.table("live")
    times = changes["_time"].to_pylist()
    assert sum(time_ > last for time_ in times) > 20, "nothing arrives, and rows come and go"
    assert sum(changes["_diff"].to_pylist()) == 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_rows_go_on_an_idle_topic(
    bench: Bench, run: Callable[..., Replica], broker: EmbeddedBroker
) -> None:
    announce = begin(bench, broker)
    run()
    wait(bench, now_ms())
    check(bench, announce())


@pytest.mark.timeout(600)
def test_what_is_pending_outlives_a_kill(
    bench: Bench, run: Callable[..., Replica], broker: EmbeddedBroker, tmp_path: Path
) -> None:
    announce = begin(bench, broker)
    running = process.start(bench, tmp_path / "r1", {})
    try:
        wait(bench, now_ms())
        moment = announce()
        wait(bench, moment + LASTS_MS // 3)
    finally:
        process.kill(running)
    time.sleep(1)
    assert bench.upper("live") < moment + LASTS_MS, "it was to be killed before the end"
    run("r1", tmp_path / "r1")
    check(bench, moment)
