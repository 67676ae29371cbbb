"""What a peek by key takes through the compute protocol, while its view is maintained.

A view of bids by auction, an index on it, and a load of bids. A controller in this process
takes the replicas over from the coordinator, with the dataflows that it finds on the command
topic, so nothing is created twice. Peeks are sent at a fixed rate, whether or not earlier ones
were answered, and each counts from when it was due.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from streams.app.freshness import percentile
from streams.bench import bids
from streams.bench.compute.scale import ComputeScale
from streams.bench.compute.takeover import polled, successors
from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.rig import Rig
from streams.compute.controller import Controller
from streams.compute.description import DataflowDescription
from streams.compute.peeks import KeyLookup, Peek, PeekOutcome, PeekRows, PeekTarget
from streams.errors import Determinate
from streams.ids import CollectionId, Timestamp
from streams.plan import json as plans
from streams.plan.physical import Dataflow, Import, Source
from streams.process_tree import cpu_s
from streams.storage.client.shards import fresh_uuid

VIEW = (
    "CREATE MATERIALIZED VIEW totals AS SELECT auction, count(*) AS bids,"
    " max(price) AS highest FROM bids GROUP BY auction"
)
INDEX = "CREATE INDEX by_auction ON totals (auction)"
P50_MS, P99_MS = 8.0, 30.0
OF_SHARDS = 2
"""Peeks of the shard a second, beside those by index."""

SENDERS = 16
SELECTS = 20
PATIENCE_S = 60.0


def peeks(bench: Rig, scale: ComputeScale) -> Outcome:
    """Peek so often a second while events arrive at a rate, and while none do."""
    source, view = bench.create(bids.SOURCE), bench.create(VIEW)
    bench.publisher.publish(bids.TOPIC, None, bids.every_key(0, bids.KEYS))
    bench.publisher.flush()
    bench.await_readable(source, [view])
    bench.say("SELECTs of one key, without and with an index")
    before = _selects(bench)
    index = CollectionId(str(bench.environment.sql(INDEX)[0].facts["id"]))
    _await_index(bench)
    after = _selects(bench)
    with successors(bench) as takeovers, polled(takeovers.started()) as controller:
        asked = Peeks(bench, controller, takeovers.descriptions[index], scale.rate)
        asked.one().result(PATIENCE_S)
        quiet = _quiet(bench, scale.seconds)
        bench.say(f"{scale.rate} peeks a second, without load")
        idle = asked.measure(scale.seconds)
        bench.say(f"{scale.rate} peeks a second, with {scale.events:,} events a second")
        busy = _under_load(bench, asked, scale.events, scale.seconds)
    note = (
        f"{scale.rate} a second by key, from when it is due, of {bids.KEYS:,} keys; of the"
        f" shard: {OF_SHARDS} a second at the same time, without the index"
    )
    return Outcome("peeks", _figures(before, after, quiet, idle, busy), note=note)


def _quiet(running: Rig, seconds: float) -> float:
    """The seconds of processor time that the replica takes while it answers no peek."""
    began = cpu_s(running.replica)
    running.rest(seconds)
    return cpu_s(running.replica) - began


@dataclass(frozen=True, slots=True)
class Latencies:
    """Milliseconds of the peeks by index and of those of the shard.

    `cpu_s` is the processor time of the replica meanwhile.
    """

    by_index: list[float] = field(default_factory=list)
    of_shard: list[float] = field(default_factory=list)
    cpu_s: float = 0.0


def _figures(
    before: list[float], after: list[float], quiet: float, idle: Latencies, busy: Latencies
) -> tuple[Figure, ...]:
    peeks = len(idle.by_index) + len(idle.of_shard)
    return (
        at_most("peek_ms_p50", percentile(busy.by_index, 0.5), "ms", P50_MS),
        at_most("peek_ms_p99", percentile(busy.by_index, 0.99), "ms", P99_MS),
        Figure("peek_idle_ms_p50", percentile(idle.by_index, 0.5), "ms"),
        Figure("peek_idle_ms_p99", percentile(idle.by_index, 0.99), "ms"),
        Figure("peek_of_shard_ms_p50", percentile(busy.of_shard, 0.5), "ms"),
        Figure("peek_of_shard_idle_ms_p50", percentile(idle.of_shard, 0.5), "ms"),
        Figure("peeks", len(busy.by_index)),
        Figure("replica_cpu_ms_of_a_peek", (idle.cpu_s - quiet) * 1000 / peeks, "ms"),
        Figure("select_ms_p50_without_index", percentile(before, 0.5), "ms"),
        Figure("select_ms_p50_with_index", percentile(after, 0.5), "ms"),
    )


def _selects(running: Rig) -> list[float]:
    """Milliseconds of SELECTs of one key over HTTP."""
    took = []
    for auction in range(SELECTS):
        began = time.perf_counter()
        running.environment.sql(f"SELECT * FROM totals WHERE auction = {auction}")
        took.append((time.perf_counter() - began) * 1000)
    return took


def _await_index(running: Rig) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (result,) = running.environment.sql("SHOW INDEXES")
        if any("running" in str(row) for row in result.rows):
            return
        if time.monotonic() > deadline:
            raise Determinate("the index was not loaded")
        running.rest(0.2)


@dataclass(slots=True)
class Peeks:
    """Sends peeks of random keys of an index at a fixed rate."""

    running: Rig
    controller: Controller
    index: DataflowDescription
    rate: int
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def one(self, *, by_index: bool = True) -> "Future[PeekOutcome]":
        """Send one peek at the latest time of the view."""
        (read,) = self.index.imports
        upper = self.running.shards.state(read.collection).upper
        index = self.index.export if by_index else None
        types = tuple(column.type for column in self.index.columns)
        imported = Import(read.collection, self.index.columns)
        whole = Dataflow((imported,), (Source(0),), (types,), (0,), self.index.columns)
        peek = Peek(
            uuid=fresh_uuid(),
            target=PeekTarget(read.collection, read.group, index),
            time=Timestamp(upper.time - 1),
            plan=plans.dumps(whole),
            project=tuple(range(len(types))),
            most_bytes=1 << 20,
            lookup=KeyLookup((0,), _key(int(self.random.integers(bids.KEYS)))),
        )
        return self.controller.peek(peek)

    def measure(self, seconds: float) -> Latencies:
        """Peek for so many seconds, and return the latencies. Errors: Determinate."""
        latencies, failures = Latencies(), list[PeekOutcome]()
        cpu, begin = cpu_s(self.running.replica), time.perf_counter() + 0.1
        count, every = int(self.rate * seconds), max(self.rate // OF_SHARDS, 1)
        with ThreadPoolExecutor(SENDERS) as pool:
            for number in range(count):
                due = begin + number / self.rate
                time.sleep(max(0.0, due - time.perf_counter()))
                pool.submit(self._send, due, latencies.by_index, failures, by_index=True)
                if number % every == 0:
                    pool.submit(self._send, due, latencies.of_shard, failures, by_index=False)
        wanted = count + len(range(0, count, every))
        _await(lambda: len(latencies.by_index) + len(latencies.of_shard) >= wanted)
        if failures:
            raise Determinate(f"{len(failures)} peeks failed: {failures[0]}")
        return replace(latencies, cpu_s=cpu_s(self.running.replica) - cpu)

    def _send(
        self, due: float, took: list[float], failures: list[PeekOutcome], *, by_index: bool
    ) -> None:
        def done(result: "Future[PeekOutcome]") -> None:
            took.append((time.perf_counter() - due) * 1000)
            if not isinstance(result.result(), PeekRows):
                failures.append(result.result())

        self.one(by_index=by_index).add_done_callback(done)


def _await(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > deadline:
            raise Determinate(f"peeks were not answered within {PATIENCE_S:.0f} s")
        time.sleep(0.05)


def _key(auction: int) -> bytes:
    rows = pa.record_batch([pa.array([auction], pa.int64())], names=["auction"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())


def _under_load(running: Rig, peeks: Peeks, events: int, seconds: float) -> Latencies:
    """Measure while events arrive, after some seconds of them."""
    warm = 5.0
    load = bids.Load(running.publisher, lambda _: None)
    thread = threading.Thread(target=load.steady, args=(events, seconds + warm + 1))
    thread.start()
    running.rest(warm)
    try:
        return peeks.measure(seconds)
    finally:
        thread.join()
