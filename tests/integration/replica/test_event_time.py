"""A source by event time on Spark: its upper is the watermark of Spark's query."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql.streaming import StreamingQuery

from streams.ids import CollectionId
from streams.kafka.embedded import EmbeddedBroker
from streams.plan.metadata import Watermark
from streams.replica.driver import lane
from streams.replica.main import Replica
from streams.replica.spark import watermark
from tests.integration.replica.support import Bench, judge, now_ms
from tests.support.keyed_event_histories import KEYS, Ranked, changes
from tests.support.processes import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

COLUMNS = (("id", "BIGINT"), ("ts", "TIMESTAMP"))
EVENTS = CollectionId("events")
DELAY_MS = 500
DECLARED = Watermark(
    column="ts", delay_ms=DELAY_MS, late_rows="place", idle_ms=60_000, ahead_ms=86_400_000
)
TOTALS = "SELECT count(*) AS n, sum(id) AS total FROM events"


def send(broker: EmbeddedBroker, topic: str, rows: Sequence[tuple[int, int, int]]) -> None:
    """Send messages: partition, id, event time in milliseconds."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition, number, at in rows:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at)
        value = json.dumps({"id": number, "ts": moment.strftime("%Y-%m-%d %H:%M:%S.%f")})
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


def write(
    broker: EmbeddedBroker, topic: str, messages: Sequence[tuple[int, str, int, int]]
) -> None:
    """Send messages with keys: partition, key, id, event time in milliseconds."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition, key, number, at in messages:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at)
        value = json.dumps({"id": number, "ts": moment.strftime("%Y-%m-%d %H:%M:%S.%f")})
        producer.produce(topic, value, json.dumps(key), partition=partition)
    assert producer.flush(60) == 0


def wait(bench: Bench, upper: int) -> set[int]:
    """Wait until a source has an upper; return the uppers that were seen."""
    seen, deadline = set[int](), time.monotonic() + 120
    while bench.upper("events") < upper:
        seen.add(bench.upper("events"))
        assert time.monotonic() < deadline, seen
        time.sleep(0.002)
    return {*seen, bench.upper("events")}


def test_that_keys_have_the_highest_event_time_and_a_new_replica_goes_on(
    bench: Bench,
    broker: EmbeddedBroker,
    run: Callable[..., Replica],
    tmp_path: Path,
) -> None:
    topic, start, rng = bench.raw_topic(), now_ms() - 100_000, random.Random(3)
    columns = (COLUMNS[0], ("k", "VARCHAR"), COLUMNS[1])
    bench.source("events", columns, topic, keys=("k",), watermark=DECLARED)
    bench.view("totals", TOTALS)
    ranked: Ranked = {key: [] for key in KEYS}
    sent = [0, 0]

    def send_some(first: int, last: int) -> None:
        """Messages of a second, out of order; at its end one of each partition."""
        moments = [(p, rng.randrange(first, last)) for p in rng.choices((0, 1), k=20)]
        messages = []
        for partition, at in [*moments, (0, last), (1, last)]:
            key, number, offset = rng.choice(KEYS), sum(sent), sent[partition]
            ranked[key].append((at, (at, at, offset, partition), number))
            messages.append((partition, key, number, at))
            sent[partition] += 1
        write(broker, topic, messages)

    def check(upper: int) -> None:
        wait(bench, upper)
        rows = bench.table("events").to_pylist()
        found = Counter[tuple[str, int, int]]()
        for row in rows:
            found[row["k"], row["id"], row["_time"]] += row["_diff"]
        there = {key: [m for m in some if m[0] < upper] for key, some in ranked.items()}
        assert {change: n for change, n in found.items() if n} == changes(there)

    first = run("r1")
    for step in range(4):
        send_some(start + 500 * step, start + 500 * (step + 1))
        check(start + 500 * step)
    first.stop()
    run("r2", tmp_path / "r2")
    late = [(p, key, 1_000, start - 5_000) for p in (0, 1) for key in KEYS]
    write(broker, topic, late)  # they lose
    sent[:] = [sent[0] + len(KEYS), sent[1] + len(KEYS)]
    for step in range(4, 6):
        send_some(start + 500 * step, start + 500 * (step + 1))
        check(start + 500 * step)
    bench.wait_upper("totals", start + 500 * 5 - 1)
    assert judge(bench, "totals", TOTALS, ["events"]) > 1


def test_that_each_upper_is_a_watermark_of_spark_and_a_new_replica_goes_on(
    bench: Bench,
    broker: EmbeddedBroker,
    run: Callable[..., Replica],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported = set[int]()

    def recorded(query: StreamingQuery) -> watermark.Progress | None:
        reports = [watermark.parsed(report) for report in query.recentProgress]
        reported.update(report.watermark_ms for report in reports if report is not None)
        return reports[-1] if reports else None

    monkeypatch.setattr(watermark, "progress", recorded)
    monkeypatch.setattr(lane, "COMPARE_S", 0)
    topic, start = bench.raw_topic(), now_ms() - 100_000
    bench.source("events", COLUMNS, topic, watermark=DECLARED)
    bench.view("totals", TOTALS)
    first = run("r1")
    uppers = {0}
    for step in range(5):
        at = start + 1_000 * step
        send(broker, topic, [(p, 10 * step + p, at + 100 * p) for p in (0, 1)])
        uppers |= wait(bench, at - DELAY_MS)
        assert bench.upper("events") == at - DELAY_MS, "the slower partition decides"
    # Spark reports a watermark when the micro-batch after it has ended
    send(broker, topic, [(0, 99, start + 4_000)])
    eventually(lambda: uppers - {0} <= reported, 60)
    first.stop()
    run("r2", tmp_path / "r2")
    late = [(0, 100, start), (0, 101, start + 9_000), (1, 102, start + 8_000)]
    send(broker, topic, late)
    uppers |= wait(bench, start + 8_000 - DELAY_MS)
    send(broker, topic, [(0, 103, start)])
    eventually(lambda: uppers - {0} <= reported, 60)
    bench.wait_upper("totals", start + 8_000 - DELAY_MS - 1)
    rows = bench.table("events")
    times = dict(zip(rows["id"].to_pylist(), rows["_time"].to_pylist(), strict=True))
    expected = {
        10 * step + p: start + 1_000 * step + 100 * p for step in range(5) for p in (0, 1)
    }
    expected[99] = start + 4_000
    assert {number: at for number, at in times.items() if number < 100} == expected
    assert times[100] >= start + 4_000 - DELAY_MS, "late: at upper"
    assert set(times) == {*expected, 100}, "the others are pending"
    assert judge(bench, "totals", TOTALS, ["events"]) > 1
