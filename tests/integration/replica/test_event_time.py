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
from tests.integration.replica.timed_topic import TimedTopic
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
        actual = Counter[tuple[str, int, int]]()
        for row in rows:
            actual[row["k"], row["id"], row["_time"]] += row["_diff"]
        there = {key: [m for m in some if m[0] < upper] for key, some in ranked.items()}
        assert {change: n for change, n in actual.items() if n} == changes(there)

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


class Comparison:
    """Compares every micro-batch of a source with Spark's report, where lanes take a sample.

    `reported` has Spark's watermarks, and `batches` whether they were ours, by query, number.
    """

    def __init__(self) -> None:
        self.reported = set[int]()
        self.batches: dict[str, dict[int, bool]] = {}

    def compare(self, by: lane.Lane, query: StreamingQuery) -> None:
        """Take the place of `Lane._compare`."""
        if by.delay_ms is None:
            return
        batches = self.batches.setdefault(str(query.id), {})
        for report in map(watermark.parsed, query.recentProgress):
            began_ms = None if report is None else by.following.began_ms(report.batch)
            if report is not None and began_ms is not None:
                batches[report.batch] = report.watermark_ms == began_ms
                self.reported.add(report.watermark_ms)

    def judge(self, queries: int) -> None:
        """No micro-batch had another watermark, and none was left out."""
        assert len(self.batches) == queries
        for batches in self.batches.values():
            assert len(batches) > 2
            assert batches == dict.fromkeys(range(len(batches)), True)


def test_that_each_upper_is_a_watermark_of_spark_and_a_new_replica_goes_on(
    bench: Bench,
    broker: EmbeddedBroker,
    run: Callable[..., Replica],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    comparison = Comparison()

    def compare(by: lane.Lane, query: StreamingQuery) -> None:
        comparison.compare(by, query)

    monkeypatch.setattr(lane.Lane, "_compare", compare)
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
    eventually(lambda: uppers - {0} <= comparison.reported, 180)
    first.stop()
    run("r2", tmp_path / "r2")
    late = [(0, 100, start), (0, 101, start + 9_000), (1, 102, start + 8_000)]
    send(broker, topic, late)
    uppers |= wait(bench, start + 8_000 - DELAY_MS)
    send(broker, topic, [(0, 103, start)])
    eventually(lambda: uppers - {0} <= comparison.reported, 180)
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
    comparison.judge(queries=2)


@pytest.mark.long
def test_that_a_random_history_is_exact_at_every_event_time(
    bench: Bench, run: Callable[..., Replica], tmp_path: Path
) -> None:
    """Out of order, late, with a partition that falls silent, and another replica half way."""
    timed, rng = TimedTopic(bench, idle_ms=1_500, partitions=3), random.Random(5)
    bench.view("totals", TOTALS)
    began = now_ms()
    timed.write(20, (0, 1, 2))
    replica = run("r1")
    # rows of a snapshot are not late, whatever their times
    bench.wait_upper("events", began - 2_000, timeout_s=300)
    for round_ in range(24):
        active = rng.sample((0, 1, 2), rng.randrange(1, 4)) if round_ < 10 else (0, 1)
        timed.write(rng.randrange(1, 20), active, rng.choice([DELAY_MS // 2, 4 * DELAY_MS]))
        time.sleep(rng.random() / 2)
        if round_ == 12:
            replica.stop()
            run("r2", tmp_path / "r2")
    upper = timed.finish((0, 1))
    bench.wait_upper("totals", upper - 1, timeout_s=300)
    assert timed.judge(upper) > 5
    assert judge(bench, "totals", TOTALS, ["events"]) > 5
