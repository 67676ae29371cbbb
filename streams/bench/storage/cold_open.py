"""Measures the time to open a shard with a long history.

A million appends are made in lots: the events of a lot go to the log in one flush, each with
the upper that it expects, and one in ten carries a row in a chunk of its own. Beside them the
ordinary compaction runs, a round every 5,000 appends, as every 30 seconds at 170 appends a
second: it merges batches, writes Rollups and truncates the log. Then new clients open the shard
at the worst moment, just before the next round.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np

from schemas import chunk
from streams.app.compaction_setup import compaction, worker
from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.storage.rig import Client, StorageRig, load_average
from streams.bench.storage.rows import DESCRIPTION, rows
from streams.compaction.runner import CompactionRequest
from streams.errors import Determinate
from streams.ids import CollectionId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import frontier
from streams.storage.log.events import Append, Body, Part, write_capability
from streams.storage.log.outcomes import Appended
from streams.storage.policy import LagBehindUpper, catalog_hold

OLD = CollectionId("old")
APPENDS = 1_000_000
LOT = 500
"""Events in one flush: fewer than the log's memory of outcomes, so that none comes too late."""

ROUND = 5_000
CARRYING = 10
KEPT = 1_000
"""The number of times that remain readable."""

OPENS = 5


@dataclass(frozen=True, slots=True)
class OpenCost:
    """The cost of opening, and what was opened. Units: seconds; events of the log."""

    seconds: float
    connected_s: float
    kept: int
    folded: int
    rolled_up: Offset


def cold(rig: StorageRig) -> Outcome:
    """A new client opens a shard behind which lie a million appends."""
    count, load = rig.scaled(APPENDS // LOT, least=6) * LOT, load_average()
    began = time.perf_counter()
    with rig.client() as client:
        client.shards.create(OLD, OLD, DESCRIPTION, Timestamp(0), read=catalog_hold(OLD))
        rounds = sum(made(rig, client, count))
    made_s = time.perf_counter() - began
    opens = [opened(rig, count) for _ in range(OPENS)]
    seconds = median(opened.seconds for opened in opens)
    connected_s = median(opened.connected_s for opened in opens)
    return Outcome(
        "cold",
        (
            at_most("cold_open_s", seconds, "s", 1),
            Figure("cold_open_appends", count),
            Figure("cold_open_log_records_kept", opens[0].kept),
            Figure("cold_open_events_folded", opens[0].folded),
            Figure("cold_open_making_s", made_s, "s"),
            Figure("cold_open_load", load),
        ),
        {"open": {"whole": seconds, "connect": connected_s, "fold": seconds - connected_s}},
        note=f"appends made in lots of {LOT}, one in {CARRYING} with a row; {rounds} rounds of"
        f" the ordinary compaction, the newest rollup up to offset {opens[0].rolled_up}",
        of=f"median of {OPENS} opens, s",
    )


def made(rig: StorageRig, client: Client, count: int) -> Iterator[int]:
    """Make the appends; how many rounds of compaction after each lot."""
    shards = client.shards
    request = CompactionRequest(policy=LagBehindUpper(KEPT), patient=True)
    with (
        compaction(shards, client.broker.settings, worker(shards)) as job,
        rig.bar("appending and compacting", count) as step,
    ):
        for first in range(0, count, LOT):
            outcomes = shards.submit([(OLD, body) for body in lot(client, first)])
            if not all(isinstance(outcome, Appended) for outcome in outcomes):
                raise Determinate(f"appends from {first} on: expected all to count")
            done = first + LOT
            is_due = done % min(ROUND, count // 3) == 0 and done < count
            if is_due:
                job.run_once(request)
            step(LOT)
            yield int(is_due)


def lot(client: Client, first: int) -> list[Body]:
    """Appends of single times, one after the other, with the chunks that some carry."""
    times = np.arange(first, first + LOT, CARRYING)
    updates = rows(times, 0, times)
    bodies = [
        body
        for row in range(len(times))
        for body in chunk.encode(updates.slice(row, 1), DESCRIPTION.names)
    ]
    shards = client.shards
    refs = shards.chunks.write(shards.data_topic(OLD), bodies, shards.headers(OLD))
    carried = {int(time_): (ref,) for time_, ref in zip(times, refs, strict=True)}
    return [single(time_, carried.get(time_, ())) for time_ in range(first, first + LOT)]


def single(time_: int, chunks: tuple[ChunkRef, ...]) -> Append:
    """An append of one time."""
    part = Part(
        collection=OLD,
        capability=write_capability(OLD),
        lower=frontier(time_),
        upper=frontier(time_ + 1),
        chunks=chunks,
    )
    return Append((part,))


def opened(rig: StorageRig, count: int) -> OpenCost:
    """Open the shard with a new client.

    Errors: Determinate when it is not where it was left.
    """
    began = time.perf_counter()
    with rig.client() as client:
        client.broker.topics.names()
        connected_s = time.perf_counter() - began
        client.shards.open(OLD)
        seconds = time.perf_counter() - began
        collection, state = client.shards.state(OLD), client.shards.group_state(OLD)
        low, end = client.logs.bounds(client.shards.names(OLD).log)
    if collection.upper != frontier(count):
        raise Determinate(f"upper: expected {count}, actual {collection.upper}")
    newest = state.rollups[-1].upto if state.rollups else Offset(-1)
    return OpenCost(seconds, connected_s, end - low, end - 1 - newest, newest)
