"""Stored state of a dataflow on a replica: which records and run files are needed. Pure.

A *checkpoint record* says which run files make up the state at a frontier. Tasks write run
files under names never used twice and return them; the driver alone writes records, one for
each (dataflow, fingerprint, incarnation, frontier, slice) (rule 19). An *incarnation* is one
life of a state, from its hydration on; a state dropped and built again has another.

    a record is needed until a later one is at or below the shard's upper as read back
    a run file is needed while a retained record or a running step names it

Everything here is a cache: losing it costs time and never an answer.

Hydration goes in *slices*: the snapshot's chunks are divided once, the division is stored
before the first slice runs, and progress is a record (frontier, k) after each slice. The
division must not be made anew in the middle: the shard may list the same updates in other
chunks by then, and what is "the rest" of one list is not the rest of another (rule 20).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from streams.ids import Timestamp
from streams.progress import Antichain


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The record of complete state at `frontier`, and the run files it names."""

    fingerprint: str
    incarnation: str
    frontier: Timestamp
    runs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Hydration:
    """A hydration under way: `done` of `slices` slices of the stored plan are in state.

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
        """Whether the last slice is in state, so that it stands at `as_of + 1`."""
        return self.done == self.slices


def newest(checkpoints: Iterable[Checkpoint], shard_upper: Antichain) -> Checkpoint | None:
    """The record with the greatest frontier at or below the shard's upper."""
    known = [c for c in checkpoints if _at_or_below(c.frontier, shard_upper)]
    return max(known, key=lambda c: c.frontier, default=None)


def of_fingerprint(
    checkpoints: Iterable[Checkpoint], fingerprint: str
) -> tuple[Checkpoint, ...]:
    """The records that the present plan and versions may use (rule 24)."""
    return tuple(c for c in checkpoints if c.fingerprint == fingerprint)


def retained(
    checkpoints: Iterable[Checkpoint], shard_upper: Antichain
) -> tuple[Checkpoint, ...]:
    """The records to keep; `shard_upper` is the output's upper as read back.

    That is the greatest one at or below it, from which a restart would go on, and all later
    ones, whose Appends are not known to count.
    """
    kept = tuple(checkpoints)
    needed = newest(kept, shard_upper)
    if needed is None:
        return kept
    return tuple(c for c in kept if c is needed or c.frontier > needed.frontier)


def removable(
    files: Iterable[str],
    records: Iterable[Checkpoint | Hydration],
    running: Iterable[Collection[str]],
) -> frozenset[str]:
    """Of the run files found, those that no retained record and no running step names.

    `running` holds for each running step the runs it reads *and* those it has written so
    far; the caller lists `files` before it collects `running`, or a run written in between
    would look like an orphan.
    """
    named = {run for record in records for run in record.runs}
    named.update(run for step in running for run in step)
    return frozenset(files) - named


def slices(sizes: Sequence[int], budget: int) -> tuple[range, ...]:
    """Divide chunks, given by size, into runs of neighbours that fit `budget`.

    A chunk larger than the budget has a slice of its own. No chunks make one empty slice:
    a dataflow over nothing is hydrated too, a global aggregate has its row there (rule 42).

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


def usable(
    hydration: Hydration | None,
    fingerprint: str,
    live_chunks: Mapping[str, object] | Collection[str],
    found_runs: Collection[str],
) -> Hydration | None:
    """The stored progress if one can go on from it, else None: start from empty state.

    `live_chunks` are the keys of the imports' chunks that are still protected, `found_runs`
    the run files on disk. A hydration of which any part is lost is worth nothing (rule 20).
    """
    if hydration is None or hydration.fingerprint != fingerprint:
        return None
    kept = all(key in live_chunks for key in hydration.chunks)
    found = all(run in found_runs for run in hydration.runs)
    return hydration if kept and found else None


def _at_or_below(time: Timestamp, upper: Antichain) -> bool:
    return upper.is_empty or time <= upper.time
