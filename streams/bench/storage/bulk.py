"""Bulk write and read rates through the public API, including encoding and decoding."""

import time
from dataclasses import dataclass
from statistics import median

import numpy as np
import pyarrow.compute as pc

from streams.bench.figures import Figure, Outcome, at_least
from streams.bench.storage.latency import opened
from streams.bench.storage.rig import Cpu, StorageRig, cpu, load_average
from streams.bench.storage.rows import rows
from streams.errors import Determinate
from streams.ids import CollectionId
from streams.storage.client.handles import WriteCapability

UPDATES = 4_000_000
LOT = 100_000
ROUNDS = 3
PATIENCE_MS = 120_000


def bulk(rig: StorageRig) -> Outcome:
    """A collection is written in lots of 100,000 updates and read back as one snapshot."""
    lots, load = rig.scaled(UPDATES // LOT), load_average()
    writes, reads = list[TimedStretch](), list[TimedStretch]()
    with rig.bar("writing and reading", ROUNDS * lots) as step:
        for number in range(ROUNDS):
            writes.append(written(rig, f"bulk{number}", lots))
            step(lots)
            reads.append(read(rig, f"bulk{number}", lots))
    written_s = median(lap.seconds for lap in writes)
    read_s = median(lap.seconds for lap in reads)
    count = lots * LOT
    return Outcome(
        "bulk",
        (
            at_least("bulk_append_updates_per_second", count / written_s, "/s", 1_000_000),
            at_least("snapshot_read_updates_per_second", count / read_s, "/s", 2_000_000),
            Figure("bulk_updates", count),
            Figure("bulk_bytes_per_update", writes[0].size / count, "B"),
            Figure("bulk_load", load),
        ),
        {"append": phases(writes, count), "read": phases(reads, count)},
        note=f"median of {ROUNDS} rounds; {lots} appends, each durable before the next; the"
        " snapshot is read by a client that is opened for it",
        of="a million updates, seconds",
    )


@dataclass(frozen=True, slots=True)
class TimedStretch:
    """A stretch that was timed. `size` are the bytes that were written."""

    seconds: float
    used: Cpu
    size: int = 0


def phases(laps: list[TimedStretch], count: int) -> dict[str, float]:
    """The time of a million updates, by phase."""
    share = 1e6 / count
    return {
        "wall": median(lap.seconds for lap in laps) * share,
        "client cpu": median(lap.used.ours for lap in laps) * share,
        "broker cpu": median(lap.used.broker for lap in laps) * share,
    }


def written(rig: StorageRig, name: str, lots: int) -> TimedStretch:
    """Append the lots, which are made beforehand."""
    updates = [rows(np.arange(LOT) + LOT * lot, 0, lot) for lot in range(lots)]
    with rig.client() as client:
        _, write = opened(client, name)
        before, began = cpu(), time.perf_counter()
        for lot, table in enumerate(updates):
            moved = client.storage.update_and_downgrade(write, table, lot + 1)
            assert isinstance(moved, WriteCapability), "there is no other writer"
            write = moved
        return TimedStretch(
            time.perf_counter() - began, cpu().since(before), client.chunks.written
        )


def read(rig: StorageRig, name: str, lots: int) -> TimedStretch:
    """Read all of it.

    Errors: Determinate when it is not what was written.
    """
    with rig.client() as client:
        read_handle, write = client.storage.acquire_capabilities(
            CollectionId(name), critical=True
        )
        client.storage.drop(write)  # it would hold upper back
        read_handle = client.storage.downgrade(read_handle, lots - 1)
        before, began = cpu(), time.perf_counter()
        delivery = client.storage.subscribe_at(read_handle).next(PATIENCE_MS)
        lap = TimedStretch(time.perf_counter() - began, cpu().since(before))
    count = lots * LOT
    expected = count * (count - 1) // 2
    actual = 0 if delivery is None else pc.sum(delivery.updates.column("c0")).as_py()
    if actual != expected:
        raise Determinate(f"snapshot: expected ids that add up to {expected}, actual {actual}")
    return lap
