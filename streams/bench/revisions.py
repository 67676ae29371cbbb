"""A backlog of revisions in a view of hop windows, and in the output topic of its sink.

Each bid counts in four overlapping windows of its auction, so that a backlog of bids becomes
four times as many rows, all of which are revised when they are there. The clock runs from the
first bid of the backlog until all are readable in the view, and goes on until the sink's
frontier is as far: then all of them are committed in the topic. What the sink reports is 0.1 s
old at most, and it is looked at as often.
"""

import time

from streams.bench import bids
from streams.bench.bids import Load
from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.rig import PATIENCE_S, Rig, Say, rig
from streams.errors import Determinate
from streams.ids import CollectionId

HOPS = """CREATE MATERIALIZED VIEW hops AS
    SELECT auction, hop, count(*) AS bids, sum(price) AS total
    FROM (SELECT auction, price, unnest([h, h - 1, h - 2, h - 3]) AS hop
        FROM (SELECT auction, price, (ts / 10)::BIGINT AS h FROM bids))
    GROUP BY auction, hop"""
SINK = "CREATE SINK hops_out FROM hops INTO KAFKA (TOPIC 'hops_out') KEY (auction, hop)"
OFTEN = "ALTER CLUSTER default SET (frontiers_ms 100)"
REACHED = "SELECT upper FROM slackwater.frontiers WHERE name = 'hops_out'"
WARM_UP, SETTLE_S, LOOK_EVERY_S = 20_000, 8.0, 0.1
RATIO = 1.3


def revisions(say: Say, events: int) -> Outcome:
    """Publish a backlog of so many bids. Errors: Determinate if it takes too long."""
    with rig(say) as bench:
        source, view = bench.create(bids.SOURCE), bench.create(HOPS)
        bench.environment.sql(f"{OFTEN}; {SINK}")
        load = Load(bench.publisher, lambda _: None)
        say("warming up")
        load.burst(bids.messages(WARM_UP, seed=1))
        bench.await_readable(source, [view])
        bench.rest(SETTLE_S)
        say(f"publishing {events:,} bids")
        bench.timings.mark()
        began = time.monotonic()
        load.burst(bids.messages(events, seed=7))
        bench.await_readable(source, [view])
        view_s = time.monotonic() - began
        _await_sink(bench, _upper_of_rows(bench, view))
        sink_s = time.monotonic() - began
        ((rows,),) = bench.environment.sql("SELECT count(*) FROM hops")[0].rows
        figures = (
            at_most("sink_ratio", sink_s / view_s, "x", RATIO),
            Figure("view_seconds", view_s, "s"),
            Figure("sink_seconds", sink_s, "s"),
            Figure("hops", float(str(rows))),
        )
        return Outcome("revisions", figures, bench.timings.breakdown())


def _upper_of_rows(bench: Rig, view: CollectionId) -> int:
    """Return the time before which all rows of a view are: its upper goes on without any."""
    batches = bench.shards.state(view).batches
    return max(batch.upper.time for batch in batches if batch.chunks)


def _await_sink(bench: Rig, upper: int) -> None:
    """Wait until the sink has committed all before `upper`. Errors: Determinate."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        ((reached,),) = bench.environment.sql(REACHED)[0].rows
        if reached is not None and int(str(reached)) >= upper:
            return
        time.sleep(LOOK_EVERY_S)
    raise Determinate(f"the sink did not finish in {PATIENCE_S:.0f} s")
