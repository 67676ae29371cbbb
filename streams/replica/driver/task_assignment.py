"""Distributes the loads of a micro-batch over the tasks of round 0. Pure.

Every update is in exactly one task's share. A small input is distributed by dataflow, which
spreads the computation, and a chunk that many dataflows read is fetched once per task; a large
one is distributed by chunk, so that no chunk is fetched twice and all tasks are busy even with
one dataflow.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import assert_never

from streams.replica.ingest import ranges
from streams.replica.tasks.descriptor import ChunkLoad, Load, RawLoad, Undo

LITTLE_BYTES = 256 << 10
LITTLE_MESSAGES = 2_000

Tasks = tuple[tuple[Load, ...], ...]


def spread(loads: Sequence[Load], tasks: int) -> Tasks:
    """Return the loads of each task; tasks without any are left out."""
    shares: list[list[Load]] = [[] for _ in range(tasks)]
    for number, (_, mine) in enumerate(groupby(loads, key=lambda load: load.dataflow)):
        for load in mine:
            for offset, part in _parts(load, tasks):
                shares[(number + offset) % tasks].append(part)
    return tuple(tuple(share) for share in shares if share)


def _parts(load: Load, tasks: int) -> Iterable[tuple[int, Load]]:
    """Return a load whole, or cut into parts for different tasks."""
    match load:
        case ChunkLoad():
            if tasks == 1 or _is_whole(load):
                return [(0, load)]
            return [
                (task, replace(load, pieces=load.pieces[task::tasks]))
                for task in range(min(tasks, len(load.pieces)))
            ]
        case Undo():
            return [(0, load)]
        case RawLoad():
            if tasks == 1 or ranges.length(load.slices) <= LITTLE_MESSAGES:
                return [(0, load)]
            groups = ranges.assign(load.slices, tasks)
            return [
                (task, replace(load, slices=group, skipped=() if task else load.skipped))
                for task, group in enumerate(groups)
            ]
        case _:
            assert_never(load)


def _is_whole(load: ChunkLoad) -> bool:
    """Whether a load goes to one task; a replay must, because it needs complete times."""
    little = size_of(load) <= LITTLE_BYTES or len(load.pieces) == 1
    return little or load.replay is not None


def size_of(load: ChunkLoad | Undo) -> int:
    """Return the stored bytes of the chunks in a load."""
    return sum(piece.ref.size for piece in load.pieces)
