"""Benchmarks of the whole path: producer, broker, ingestion, views, on one machine.

throughput   JSON in a raw topic -> source -> count, sum, max by key -> readable in the shard
freshness    at 1,000 events a second: flushed by the producer -> readable in the view
dataflows    a micro-batch's trigger time with 1, 20 and 100 views over one source
"""

import time
from statistics import median

from streams.app.freshness import Freshness, percentile
from streams.bench import bids
from streams.bench.bids import Load
from streams.bench.figures import Figure, Outcome, at_least, at_most
from streams.bench.rig import Rig, Say, rig
from streams.ids import CollectionId

VIEW = """CREATE MATERIALIZED VIEW by_auction AS
    SELECT auction, count(*) AS bids, sum(price) AS total, max(price) AS best
    FROM bids GROUP BY auction"""
WARM_UP = 20_000
RATE = 1_000
COUNTS = (1, 20, 100)


def throughput(say: Say, events: int) -> Outcome:
    """Publish `events` bids as fast as it goes; the clock runs until all are readable."""
    with rig(say) as bench:
        source = bench.create(bids.SOURCE)
        view = bench.create(VIEW)
        load = Load(bench.publisher, lambda _: None)
        say("warming up")
        for seed in range(5):
            load.burst(bids.messages(WARM_UP, seed))
            bench.await_readable(source, [view])
        values = bids.messages(events, seed=7)
        say(f"publishing {events:,} bids")
        bench.timings.mark()
        began = time.monotonic()
        load.burst(values)
        published_s = time.monotonic() - began
        bench.await_readable(source, [view])
        seconds = time.monotonic() - began
        return Outcome(
            "throughput",
            (
                at_least("events_per_second", events / seconds, "/s", 250_000),
                Figure("produced_per_second", events / published_s, "/s"),
                Figure("throughput_seconds", seconds, "s"),
            ),
            bench.timings.breakdown(),
            note="producer, broker, coordinator and replica share the machine",
        )


def freshness(say: Say, seconds: float) -> Outcome:
    """Publish steadily; each lot is timed from its flush to readable in the view."""
    with rig(say) as bench:
        source = bench.create(bids.SOURCE)
        view = bench.create(VIEW)
        meter = Freshness(bench.shards, {source: (view,)})
        load = Load(bench.publisher, lambda _: meter.mark(source, bench.ends()))
        say("warming up")
        load.steady(RATE, seconds=max(seconds / 3, 10))
        bench.await_readable(source, [view])
        meter.milliseconds.clear()
        bench.timings.mark()
        say(f"{RATE:,} bids a second for {seconds:.0f} s")
        load.steady(RATE, seconds)
        bench.await_readable(source, [view])
        meter.observe()
        meter.close()
        milliseconds = meter.milliseconds
        return Outcome(
            "freshness",
            (
                at_most("freshness_ms_p50", percentile(milliseconds, 0.5), "ms", 300),
                at_most("freshness_ms_p90", percentile(milliseconds, 0.9), "ms", 600),
                Figure("freshness_ms_max", max(milliseconds, default=0.0), "ms"),
                Figure("freshness_lots", len(milliseconds)),
            ),
            bench.timings.breakdown(),
        )


def dataflows(say: Say, seconds: float) -> Outcome:
    """Trigger time of the views' lane with 1, 20 and 100 small views over one source."""
    with rig(say) as bench:
        source = bench.create(bids.SOURCE)
        views: list[CollectionId] = []
        figures: list[Figure] = []
        triggers: list[float] = []
        for count in COUNTS:
            say(f"{count} views")
            while len(views) < count:
                views.append(bench.create(small_view(len(views))))
            load = Load(bench.publisher, lambda _: None)
            load.steady(RATE, seconds=10)
            bench.await_readable(source, views)
            bench.timings.mark()
            load.steady(RATE, seconds)
            bench.await_readable(source, views)
            trigger = _trigger(bench, count)
            triggers.append(trigger)
            figures.append(Figure(f"trigger_ms_{count}_views", trigger, "ms"))
        ratio = triggers[-1] / triggers[0] if triggers[0] else 0.0
        figures.append(at_most("dataflows_ratio", ratio, "x", 3))
        return Outcome("dataflows", tuple(figures), bench.timings.breakdown())


def small_view(number: int) -> str:
    """Return the statement of one of many small views over the bids."""
    return f"""CREATE MATERIALIZED VIEW v{number} AS
        SELECT auction % {number + 2} AS class, count(*) AS bids, sum(price) AS total
        FROM bids GROUP BY auction % {number + 2}"""


def _trigger(bench: Rig, count: int) -> float:
    """The median trigger of micro-batches that stepped all the views."""
    rows = [row for row in bench.timings.rows() if row["dataflows"] >= count and row["depth"]]
    return median([row["trigger_ms"] for row in rows]) if rows else 0.0
