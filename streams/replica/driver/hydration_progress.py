"""Progress of a build in rows, and the estimated time for the rest. Pure.

Stored rows are counted, before any predicate; for raw messages, offsets. Work of an earlier
process counts as done, but not for the pace of this one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import assert_never

from streams.replica.driver.dataflow_state import Build
from streams.replica.ingest import ranges
from streams.replica.tasks.descriptor import ChunkLoad, Load, RawLoad, Undo


@dataclass(frozen=True, slots=True, kw_only=True)
class HydrationPace:
    """A build as this process has observed it.

    `began_s` and `began_rows` are the time and progress of the first observation; `slices` is
    the number done by now. Units: seconds of a monotonic clock, rows.
    """

    incarnation: str
    began_s: float
    began_rows: int
    slices: int
    done: int
    total: int
    seconds_left: int | None = None


def follow(pace: HydrationPace | None, build: Build, now_s: float) -> HydrationPace:
    """Return the pace after another observation; unchanged while no further slice is done."""
    if pace is None or pace.incarnation != build.incarnation or build.done < pace.slices:
        done = rows_of(build.slices[: build.done])
        return HydrationPace(
            incarnation=build.incarnation,
            began_s=now_s,
            began_rows=done,
            slices=build.done,
            done=done,
            total=rows_of(build.slices),
        )
    if build.done == pace.slices:
        return pace
    done = rows_of(build.slices[: build.done])
    spent_s, read = now_s - pace.began_s, done - pace.began_rows
    left = ceil(spent_s * (pace.total - done) / read) if read else None
    return replace(pace, slices=build.done, done=done, seconds_left=left)


def rows_of(slices: Sequence[Sequence[Load]]) -> int:
    """Return the number of rows, or messages, that these slices read."""
    return sum(_rows(load) for loads in slices for load in loads)


def _rows(load: Load) -> int:
    match load:
        case ChunkLoad(pieces=pieces) | Undo(pieces=pieces):
            return sum(piece.ref.rows for piece in pieces)
        case RawLoad(slices=slices):
            return ranges.length(slices)
        case _:
            assert_never(load)
