"""Checkpoints of a dataflow's state: which records and run files are needed. Pure.

A *checkpoint record* lists the run files that make up the state at a frontier. Tasks write run
files under unique names and return them; only the driver writes records, one for each
(dataflow, fingerprint, incarnation, frontier, slice) (rule 19). An *incarnation* is one life of
a state, from its hydration on; a state dropped and built again has another.

    a record is needed until a later one is at or below the shard's upper as read back
    a run file is needed while a retained record or a running step names it

All of this is a cache: losing it costs time, never correctness.

Hydration goes in *slices*: the snapshot's chunks are divided once, the division is stored
before the first slice runs, and progress is a record (frontier, k) after each slice. The
division must not be repeated in the middle: the shard may hold the same updates in other chunks
by then, and the rest of one list is not the rest of another (rule 20).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streams.ids import Timestamp
from streams.progress import Antichain


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The record of complete state at `frontier`, with its run files."""

    fingerprint: str
    incarnation: str
    frontier: Timestamp
    runs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HydrationCheckpoint:
    """A hydration in progress: `done` of `slices` slices of the stored plan are in state.

    `chunks` are the keys of all chunks of the plan.
    """

    fingerprint: str
    incarnation: str
    as_of: Timestamp
    slices: int
    done: int
    runs: frozenset[str] = frozenset()
    chunks: frozenset[str] = frozenset()

    @property
    def complete(self) -> bool:
        """Whether the last slice is in state, so that the state is at `as_of + 1`."""
        return self.done == self.slices


def newest(checkpoints: Iterable[Checkpoint], shard_upper: Antichain) -> Checkpoint | None:
    """Return the record with the greatest frontier at or below the shard's upper."""
    readable = [c for c in checkpoints if _at_or_below(c.frontier, shard_upper)]
    return max(readable, key=lambda c: c.frontier, default=None)


def of_fingerprint(
    checkpoints: Iterable[Checkpoint], fingerprint: str
) -> tuple[Checkpoint, ...]:
    """Return the records that the present plan and versions may use (rule 24)."""
    return tuple(c for c in checkpoints if c.fingerprint == fingerprint)


def retained(
    checkpoints: Iterable[Checkpoint], shard_upper: Antichain
) -> tuple[Checkpoint, ...]:
    """Return the records to keep; `shard_upper` is the output's upper as read back.

    They are the greatest one at or below it, from which a restart would continue, and all later
    ones, whose Appends are not known to count.
    """
    retained_ = tuple(checkpoints)
    needed = newest(retained_, shard_upper)
    if needed is None:
        return retained_
    return tuple(c for c in retained_ if c is needed or c.frontier > needed.frontier)


def removable(
    files: Iterable[str],
    records: Iterable[Checkpoint | HydrationCheckpoint],
    running: Iterable[Collection[str]],
) -> frozenset[str]:
    """Return the run files that no retained record and no running step names.

    `running` holds for each running step the runs it reads *and* those it has written so
    far; the caller lists `files` before it collects `running`, or a run written in between
    would look like an orphan.
    """
    named = {run for record in records for run in record.runs}
    named.update(run for step in running for run in step)
    return frozenset(files) - named


@dataclass(slots=True)
class Sightings:
    """Which run files are complete: the steps that ran when each was first seen have ended.

    No clock decides it: that of the disk, which dates files, may differ from the driver's.
    """

    running_then: dict[str, frozenset[str]] = field(default_factory=dict)

    def complete(self, files: Iterable[str], running: frozenset[str]) -> frozenset[str]:
        """Return the files that no running step may have begun.

        The caller lists `files` before it collects the names of the steps that run.
        """
        self.running_then = {file: self.running_then.get(file, running) for file in files}
        return frozenset(
            file for file, steps in self.running_then.items() if not steps & running
        )


def slices(sizes: Sequence[int], budget: int) -> tuple[range, ...]:
    """Divide chunks, given by size, into slices of neighbours that fit `budget`.

    A chunk larger than the budget has a slice of its own. No chunks make one empty slice: a
    dataflow over empty imports is hydrated too, because a global aggregate has a row there
    (rule 42).

    Units: bytes. Shape: positions in `sizes`, all of them, in order.
    """
    result: list[range] = []
    start, filled = 0, 0
    for position, size in enumerate(sizes):
        if position > start and filled + size > budget:
            result.append(range(start, position))
            start, filled = position, 0
        filled += size
    result.append(range(start, len(sizes)))
    return tuple(result)


def usable_hydration(
    hydration: HydrationCheckpoint | None,
    fingerprint: str,
    live_chunks: Mapping[str, object] | Collection[str],
    found_runs: Collection[str],
) -> HydrationCheckpoint | None:
    """The stored progress if a hydration can resume from it; None: start from empty state.

    `live_chunks` are the keys of the imports' chunks that are still protected, `found_runs` the
    run files on disk. A hydration with any lost part cannot be used (rule 20).
    """
    if hydration is None or hydration.fingerprint != fingerprint:
        return None
    has_chunks = all(key in live_chunks for key in hydration.chunks)
    has_runs = all(run in found_runs for run in hydration.runs)
    return hydration if has_chunks and has_runs else None


def _at_or_below(time: Timestamp, upper: Antichain) -> bool:
    return upper.is_empty or time <= upper.time
