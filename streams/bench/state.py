"""Benchmarks of state: what a change costs against much of it, and how much room it takes."""

from pathlib import Path

from streams.bench import bids
from streams.bench.bids import Load
from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.rig import Rig, Say, rig
from streams.ids import CollectionId
from streams.process_tree import resident_bytes

VIEW = """CREATE MATERIALIZED VIEW by_auction AS
    SELECT auction, count(*) AS bids, sum(price) AS total FROM bids GROUP BY auction"""
LOT = 200_000
SETTLED_S = 15.0
"""Every 10 s a replica deletes the run files that no state names any more."""


def memory(say: Say, rows: int) -> Outcome:
    """Bytes on disk and resident for each row of state, with `rows` groups more in one view.

    What a micro-batch needs to run at all is no part of it: one has run before.
    """
    with rig(say) as bench:
        source = bench.create(bids.SOURCE)
        view = bench.create(VIEW)
        fill(bench, source, view, range(LOT))
        bench.rest(SETTLED_S)
        resident, disk = _resident(bench), _disk(bench)
        fill(bench, source, view, range(LOT, LOT + rows))
        bench.rest(SETTLED_S)
        on_disk = (_disk(bench) - disk) / rows
        in_memory = max(_resident(bench) - resident, 0) / rows
        return Outcome(
            "memory",
            (
                at_most("bytes_per_row", on_disk + in_memory, "B", 300),
                Figure("disk_bytes_per_row", on_disk, "B"),
                Figure("resident_bytes_per_row", in_memory, "B"),
                Figure("state_rows", rows),
            ),
            note=f"from {LOT:,} rows on; disk: the replica's run files; resident: what its"
            " processes grew by, shared pages counted once and mapped files included",
        )


def fill(bench: Rig, source: CollectionId, view: CollectionId, groups: range) -> None:
    """Make the view have a row for each of these auctions. Errors: Determinate."""
    bench.say(f"{len(groups):,} groups")
    load = Load(bench.publisher, lambda _: None)
    for start in range(groups.start, groups.stop, LOT):
        load.burst(bids.every_key(start, min(LOT, groups.stop - start)))
        bench.await_readable(source, [view])


def _disk(bench: Rig) -> int:
    return _size(bench.environment.replica_state / "runs")


def _size(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def _resident(bench: Rig) -> int:
    return resident_bytes(bench.replica)
