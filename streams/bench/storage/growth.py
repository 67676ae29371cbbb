"""Disk space of a collection that is written and compacted continuously.

A million rows are live. Each change takes a row out and puts another version of it in: 1,000 of
them a second of logical time, in lots of a hundred, written as fast as it goes. With fewer rows
there are fewer changes a second in the same lots, so that the shares stay what they are. Every
30 seconds of logical time the ordinary compaction runs a round, as that of an environment does.
What is stored are the bytes of chunks that were written and have no tombstone yet: live
ones, superseded ones, orphans, Rollups. When the broker gives the bytes of a tombstoned chunk
back is for its own cleaner to say.
"""

import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from streams.app.compaction_setup import worker
from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.storage.rig import Client, StorageRig, load_average
from streams.bench.storage.rows import DESCRIPTION, Ints, rows
from streams.compaction.collector import Collector
from streams.compaction.runner import Compaction, CompactionRequest
from streams.errors import Determinate
from streams.ids import CollectionId, Timestamp
from streams.kafka.client.raw import RawReader
from streams.progress import frontier
from streams.storage.client.handles import WriteCapability
from streams.storage.log.events import write_capability
from streams.storage.policy import LagBehindUpper, catalog_hold

GROWN = CollectionId("grown")
LIVE = 1_000_000
SECONDS = 1_800
LOT = 100
PER_SECOND = LIVE // 1_000
ROUND_MS = 30_000
KEPT_MS = 60_000
"""The history that stays readable: what the target is stated for is the live rows."""

SLICE = 100_000


@dataclass(slots=True)
class Growth:
    """The results. `live` are the bytes of the present rows, as one merged batch.

    Units: bytes; `after` is what was stored after each round.
    """

    live: int = 0
    after: list[int] = field(default_factory=list)
    compacted: int = 0
    rounds_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LiveRows:
    """So many live rows, changed for so many seconds of logical time."""

    live: int
    seconds: int

    @property
    def lot_ms(self) -> int:
        """The logical time of a lot of changes."""
        return LOT * 1_000 * LIVE // (PER_SECOND * self.live)

    @property
    def lots(self) -> int:
        """The number of lots."""
        return self.seconds * 1_000 // self.lot_ms


def growth(rig: StorageRig) -> Outcome:
    """The most that is stored at any moment, in terms of what is live."""
    busy, began = load_average(), time.perf_counter()
    load = LiveRows(rig.scaled(LIVE, least=10_000), rig.scaled(SECONDS, least=300))
    with rig.client() as client:
        client.shards.create(GROWN, GROWN, DESCRIPTION, Timestamp(0), read=catalog_hold(GROWN))
        sizes = grown(rig, client, load)
        chunks = client.chunks
    took = time.perf_counter() - began
    written = chunks.written - sizes.compacted
    return Outcome(
        "compaction",
        (
            at_most("compaction_stored_ratio_max", chunks.most / sizes.live, "x", 3),
            Figure("compaction_stored_ratio_end", sizes.after[-1] / sizes.live, "x"),
            Figure("compaction_rewritten_ratio", sizes.compacted / written, "x"),
            Figure("compaction_live_bytes", sizes.live, "B"),
            Figure("compaction_live_rows", load.live),
            Figure("compaction_changes", load.lots * LOT),
            Figure("compaction_speedup", load.seconds / took, "x"),
            Figure("compaction_share_of_time", sizes.rounds_s / took),
            Figure("compaction_load", busy),
        ),
        {"stored": over_time(sizes)},
        note=f"{load.seconds} s of logical time in {took:.0f} s; {KEPT_MS // 1000} s of"
        " history are kept; on the broker's disk, with what its cleaner has yet to take:"
        f" {on_disk(rig) / sizes.live:.1f} x",
        of="stored after rounds, in terms of what is live",
    )


def over_time(growth: Growth) -> dict[str, float]:
    """The stored bytes after some of the rounds, from the first to the last."""
    rounds = len(growth.after)
    shown = sorted({round(share * (rounds - 1) / 8) for share in range(9)})
    return {
        f"{(round_ + 1) * ROUND_MS // 1000} s": growth.after[round_] / growth.live
        for round_ in shown
    }


def on_disk(rig: StorageRig) -> int:
    """The bytes of the broker's files of the data topic, just now."""
    files = Path(rig.directory).glob(f"data/*.{GROWN}.data-*/*.log")
    return sum(file.stat().st_size for file in files)


def grown(rig: StorageRig, client: Client, load: LiveRows) -> Growth:
    """Load the rows, change them and compact; merge all of it in the end."""
    growth, clock = Growth(), Clock()
    with closing(RawReader(client.broker.settings)) as records:
        collector = Collector(client.shards, records, clock)
        job = Compaction(client.shards, worker(client.shards), collector, clock)
        write = loaded(client, load.live)
        versions, rng = np.zeros(load.live, np.int64), np.random.default_rng(7)
        with rig.bar("changing and compacting", load.lots) as step:
            for lot in range(1, load.lots + 1):
                before, clock.now_ms = clock.now_ms, lot * load.lot_ms
                ids = rng.choice(load.live, LOT, replace=False)
                write = changed(client, write, ids, versions, clock.now_ms)
                step(1)
                if clock.now_ms // ROUND_MS > before // ROUND_MS:
                    compact(client, job, growth)
        job.run_once(CompactionRequest(policy=LagBehindUpper(0), whole=True))
    batches = client.shards.state(GROWN).batches
    growth.live = sum(ref.size for batch in batches for ref in batch.chunks)
    rows_left = sum(ref.rows for batch in batches for ref in batch.chunks)
    if rows_left != load.live:
        raise Determinate(f"live rows: expected {load.live:,}, actual {rows_left:,}")
    return growth


@dataclass(slots=True)
class Clock:
    """Logical time as it is now."""

    now_ms: int = 0

    def __call__(self) -> int:
        """Now, in milliseconds."""
        return self.now_ms


def loaded(client: Client, live: int) -> WriteCapability:
    """The capability after all rows were written once."""
    write = WriteCapability(GROWN, frontier(0), write_capability(GROWN))
    for first in range(0, live, SLICE):
        time_ = write.frontier.time
        ids = np.arange(first, min(first + SLICE, live))
        write = appended(client, write, rows(ids, 0, time_), time_ + 1)
    return write


def changed(
    client: Client, write: WriteCapability, ids: Ints, versions: Ints, upper: int
) -> WriteCapability:
    """The capability after the next version of some rows was written."""
    times = np.sort(upper - 1 - ids % (upper - write.frontier.time))
    old, new = rows(ids, versions[ids], times, -1), rows(ids, versions[ids] + 1, times)
    versions[ids] += 1
    return appended(client, write, pa.concat_tables([old, new]), upper)


def appended(
    client: Client, write: WriteCapability, updates: pa.Table, upper: int
) -> WriteCapability:
    """The capability after an append."""
    moved = client.storage.update_and_downgrade(write, updates, upper)
    assert isinstance(moved, WriteCapability), "there is no other writer"
    return moved


def compact(client: Client, job: Compaction, growth: Growth) -> None:
    """A round, as the compaction of an environment runs it."""
    began = time.perf_counter()
    done = job.run_once(CompactionRequest(policy=LagBehindUpper(KEPT_MS), patient=True))
    if done.failed:
        raise Determinate(f"compaction: {done.failed[0].reason}")
    growth.rounds_s += time.perf_counter() - began
    growth.compacted += sum(merge.bytes_written for merge in done.compacted)
    growth.after.append(client.chunks.stored)
