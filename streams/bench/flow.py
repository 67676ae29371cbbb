"""Benchmarks of the whole path: producer, broker, ingestion, views, on one machine.

throughput   JSON in a raw topic -> source -> count, sum, max by key -> readable in the shard
freshness    at 1,000 events a second: flushed by the producer -> readable in the view, and
             delivered from the output topic of a sink
dataflows    a micro-batch's trigger time with few and many views over sources, and a CREATE
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median

from streams.app.freshness import Freshness, percentile
from streams.bench import bids
from streams.bench.bids import Load
from streams.bench.figures import Figure, Outcome, at_least, at_most
from streams.bench.output_topic import OutputFollower
from streams.bench.rig import Rig, Say, rig
from streams.ids import CollectionId, Topic

VIEW = """CREATE MATERIALIZED VIEW by_auction AS
    SELECT auction, count(*) AS bids, sum(price) AS total, max(price) AS best
    FROM bids GROUP BY auction"""
OUTPUT = Topic("by_auction")
SINK = f"CREATE SINK out FROM by_auction INTO KAFKA (TOPIC '{OUTPUT}') KEY (auction)"
WARM_UP = 20_000
RATE = 1_000
COUNTS = (1, 20, 100)
MOST_RATIOS = {20: 1.5, 100: 3.0}
"""How many times the trigger with one view that with so many should take at most."""


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


def freshness(say: Say, seconds: float, *, sink: bool = False) -> Outcome:
    """Publish steadily; each lot is timed from its flush to readable in the view.

    With a `sink` also to its delivery from the output topic, to a consumer that reads what is
    committed.
    """
    with rig(say) as bench:
        source = bench.create(bids.SOURCE)
        view = bench.create(VIEW)
        meter = Freshness(bench.shards, {source: (view,)})
        with ExitStack() as stack:
            delivered = _delivered(bench, source, view, stack) if sink else None
            meters = [meter] if delivered is None else [meter, delivered]

            def flushed(_: int) -> None:
                ends = bench.ends()
                for one in meters:
                    one.mark(source, ends)

            load = Load(bench.publisher, flushed)
            say("warming up")
            load.steady(RATE, seconds=max(seconds / 3, 10))
            bench.await_readable(source, [view])
            for one in meters:
                one.milliseconds.clear()
            bench.timings.mark()
            say(f"{RATE:,} bids a second for {seconds:.0f} s")
            load.steady(RATE, seconds)
            bench.await_readable(source, [view])
            bench.rest(1)
            for one in meters:
                one.observe()
                one.close()
        figures = list(_freshness_figures("freshness", meter.milliseconds, (300, 600)))
        if delivered is not None:
            figures += _freshness_figures("output", delivered.milliseconds, (80, 160))
        return Outcome("freshness", tuple(figures), bench.timings.breakdown())


def _delivered(
    bench: Rig, source: CollectionId, view: CollectionId, stack: ExitStack
) -> Freshness:
    """Create a sink, and follow its topic; return the meter of what comes from it."""
    bench.environment.sql(SINK)
    follower = OutputFollower(bench.environment.kafka, OUTPUT)
    meter = Freshness(bench.shards, {source: (view,)}, upper_of=lambda _: follower.upper)
    follower.moved = meter.observe
    follower.start()
    stack.callback(follower.close)
    return meter


def _freshness_figures(
    name: str, milliseconds: list[float], most: tuple[float, float]
) -> tuple[Figure, ...]:
    return (
        at_most(f"{name}_ms_p50", percentile(milliseconds, 0.5), "ms", most[0]),
        at_most(f"{name}_ms_p90", percentile(milliseconds, 0.9), "ms", most[1]),
        Figure(f"{name}_ms_max", max(milliseconds, default=0.0), "ms"),
        Figure(f"{name}_lots", len(milliseconds)),
    )


def dataflows(
    say: Say, seconds: float, counts: Sequence[int] = COUNTS, sources: int = 1
) -> Outcome:
    """Trigger time with a few and with many small views over sources, and time of a CREATE.

    `counts` are numbers of views, which share the sources evenly; a source reads all bids.
    """
    with rig(say) as bench:
        read = [bench.create(source_statement(number)) for number in range(sources)]
        views: list[CollectionId] = []
        figures: list[Figure] = []
        triggers: dict[int, float] = {}
        creates: list[float] = []
        load = Load(bench.publisher, lambda _: None)
        for count in counts:
            say(f"{count} views")
            while len(views) < count:
                began = time.monotonic()
                views.append(bench.create(small_view(len(views), len(views) % sources)))
                creates.append((time.monotonic() - began) * 1000)
            load.steady(RATE, seconds=10)
            _await_all(bench, read, views)
            bench.timings.mark()
            load.steady(RATE, seconds)
            _await_all(bench, read, views)
            triggers[count] = _trigger(bench, count)
            figures.append(Figure(f"trigger_ms_{count}_views", triggers[count], "ms"))
        figures.append(at_most("create_view_ms", median(creates), "ms", 300))
        one = triggers.get(1, 0.0)
        for count, most in MOST_RATIOS.items():
            if one and count in triggers:
                ratio = triggers[count] / one
                figures.append(at_most(f"dataflows_ratio_{count}", ratio, "x", most))
        note = f"{sources} source{'s' * (sources > 1)} of {RATE:,} bids a second"
        return Outcome("dataflows", tuple(figures), bench.timings.breakdown(), note=note)


def _await_all(bench: Rig, sources: Sequence[CollectionId], views: list[CollectionId]) -> None:
    """Wait until all bids are readable in all views."""
    for number, source in enumerate(sources):
        bench.await_readable(source, views[number :: len(sources)])


def source_statement(number: int) -> str:
    """Return the statement of one of several sources of the bids."""
    return bids.SOURCE if not number else bids.SOURCE.replace("bids ", f"bids{number} ", 1)


def small_view(number: int, source: int = 0) -> str:
    """Return the statement of one of many small views over bids."""
    return f"""CREATE MATERIALIZED VIEW v{number} AS
        SELECT auction % {number + 2} AS class, count(*) AS bids, sum(price) AS total
        FROM bids{source or ""} GROUP BY auction % {number + 2}"""


def _trigger(bench: Rig, count: int) -> float:
    """The median trigger of micro-batches that stepped all the views."""
    rows = [row for row in bench.timings.rows() if row["dataflows"] >= count and row["depth"]]
    return median([row["trigger_ms"] for row in rows]) if rows else 0.0
