"""A view on a Spark cluster whose hosts share a store alone, beside the same on this machine.

A standalone master and two workers of two cores each, with directories of their own
(`streams.bench.standalone`), and an environment whose replica is on them; before that the same
with the replica's Spark in one process. Then, each timed until a message that is published
afterwards is readable in the view: an executor is killed, on each host in turn; the replica's
driver is killed; and the cluster is told another number of buckets. Without resident tasks all
steps are jobs, as large ones always are.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

from streams.app.environment import Environment, Settings
from streams.bench import bids
from streams.bench.bids import Load
from streams.bench.figures import Figure, Outcome, at_least, at_most
from streams.bench.flow import RATE, VIEW
from streams.bench.rig import Rig, Say, rigged
from streams.bench.standalone import Host, Standalone, standalone
from streams.errors import Determinate
from streams.process_tree import command_line, family, processes, require_linux
from streams.temporary import temporary_directory

HOSTS, CORES, BUCKETS, MORE_BUCKETS = 2, 2, 2, 8
KEYS = 20_000
WARM_UP_S, SETTLE_S = 15.0, 10.0
TRIGGER_RATIO, LOSS_S, RESTART_S, RESCALE_S, HITS = 1.2, 5.0, 20.0, 10.0, 99.0


def cluster(say: Say, seconds: float, resident_tasks: int) -> Outcome:
    """Measure a view over bids at 1,000 a second for so long in each of both places.

    Errors: Determinate if the cluster does not come up; InvalidUsage except on Linux.
    """
    require_linux("the benchmark of a cluster")
    with temporary_directory("slackwater-") as scratch:
        directory = Path(scratch)
        settings = Settings(
            directory=directory / "local",
            timings=True,
            buckets=BUCKETS,
            resident_tasks=resident_tasks,
        )
        say("on this machine")
        with Environment(settings, say) as environment, rigged(environment, say) as bench:
            local_ms = _Measured(bench).trigger_ms(seconds)
        with standalone(directory / "spark", HOSTS, cores=CORES) as spark:
            settings = replace(
                settings,
                directory=directory / "cluster",
                master=spark.url,
                store=f"file://{directory}/store",
            )
            say(f"on {HOSTS} hosts")
            with ExitStack() as stack:
                environment = stack.enter_context(Environment(settings, say))
                measured = _Measured(stack.enter_context(rigged(environment, say)))
                return _outcome(measured, spark, seconds, local_ms)


class _Measured:
    """A rig with a source and a view, which has warmed up."""

    def __init__(self, bench: Rig) -> None:
        self.bench = bench
        self.load = Load(bench.publisher, lambda _: None)
        self.source = bench.create(bids.SOURCE)
        self.views = [bench.create(VIEW)]
        self.load.burst(bids.every_key(0, KEYS))
        self.load.steady(RATE, WARM_UP_S)
        bench.await_readable(self.source, self.views)

    def trigger_ms(self, seconds: float) -> float:
        """The median time of a micro-batch of the ingesting lane, decided to committed."""
        self.bench.timings.mark()
        self.load.steady(RATE, seconds)
        self.bench.await_readable(self.source, self.views)
        return median(row["trigger_ms"] for row in self.bench.timings.rows("ingest"))

    def fresh_s(self, change: Callable[[], object]) -> float:
        """Seconds from a change to when a message that is published after it is readable."""
        self.bench.rest(SETTLE_S)
        began = time.monotonic()
        change()
        self.load.burst(bids.every_key(1, 1))
        self.bench.await_readable(self.source, self.views)
        return time.monotonic() - began


def _outcome(
    measured: _Measured, spark: Standalone, seconds: float, local_ms: float
) -> Outcome:
    bench, say = measured.bench, measured.bench.say
    cluster_ms = measured.trigger_ms(seconds)
    breakdown, hits = bench.timings.breakdown(), _hits(bench)
    losses = []
    for number, host in enumerate(spark.hosts):
        say(f"killing the executor of host {number}")
        losses.append(measured.fresh_s(partial(_kill_executors, host)))
    say("killing the driver")
    restart_s = measured.fresh_s(lambda: bench.environment.kill("replica"))
    say(f"{MORE_BUCKETS} buckets in place of {BUCKETS}")
    statement = f"ALTER CLUSTER default SET (BUCKETS {MORE_BUCKETS})"
    rescale_s = measured.fresh_s(lambda: bench.environment.sql(statement))
    figures = (
        at_most("cluster_trigger_ratio", cluster_ms / local_ms, "", TRIGGER_RATIO),
        Figure("local_trigger_ms", local_ms, "ms"),
        Figure("cluster_trigger_ms", cluster_ms, "ms"),
        at_least("cache_hits_percent", hits, "%", HITS),
        at_most("executor_loss_s", max(losses), "s", LOSS_S),
        at_most("driver_restart_s", restart_s, "s", RESTART_S),
        at_most("rescale_s", rescale_s, "s", RESCALE_S),
    )
    note = f"master, {HOSTS} workers, broker and producer share the machine's cores"
    return Outcome("cluster", figures, breakdown, note)


def _hits(bench: Rig) -> float:
    """The percentage of the runs that were read whose file was on the task's host."""
    rows = bench.timings.rows()
    read = sum(row["runs_read"] for row in rows)
    brought = sum(row["runs_brought"] for row in rows)
    return 100.0 * (read - brought) / read if read else 100.0


def _kill_executors(host: Host) -> None:
    """Errors: Determinate if there is none."""
    executors = [
        pid
        for pid in family(host.process.pid, processes())
        if any("ExecutorBackend" in argument for argument in command_line(pid))
    ]
    if not executors:
        raise Determinate("a host has no executor to kill")
    for pid in executors:
        os.kill(pid, signal.SIGKILL)
