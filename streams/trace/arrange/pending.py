"""A pending arrangement: future updates, in order of their time.

A run's `h` is the update's time, so what is due lies together at its front. Of each run a
checkpoint also knows the next time at which something in it is due:

    [run name, rows that are still to come, next time]
    contents(runs) = the updates of each run at or beyond its next time

Taking what is due moves the next time and writes nothing; a run of which nothing is to come is
forgotten. Runs merge as others do (`trace.runs`), by what is left of them; then updates of one
row and time become one, and what was inserted and retracted before its time is gone.

Cost: O(log n) for each run of which something is due, and what is due.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streams.trace.arrange import merge
from streams.trace.arrange.runs import RunFiles, RunName
from streams.trace.columns import int64, uint64
from streams.trace.kernel.kernel import Kernel
from streams.trace.updates import DIFF, TIME, consolidate, flatten


def next_due(names: Sequence[RunName]) -> int | None:
    """The next time at which something of these runs is due; None for never."""
    return min((int(name[2]) for name in names), default=None)


def take(
    files: RunFiles, names: Sequence[RunName], upper: int
) -> tuple[list[pa.RecordBatch], list[RunName]]:
    """The updates whose times are below `upper`, and the runs without them."""
    due, remaining = [], []
    for name in names:
        if int(name[2]) >= upper:
            remaining.append(name)
            continue
        left, next_time = 0, None
        for run in files.open([name]):
            start, end = np.searchsorted(run.hashes, np.array([name[2], upper], np.uint64))
            due.append(_updates(run.rows[start:end]))
            left += len(run.hashes) - int(end)
            if next_time is None and end < len(run.hashes):
                next_time = int(run.hashes[end])
        if next_time is not None:
            remaining.append([name[0], left, next_time])
    return due, remaining


def insert(
    files: RunFiles, names: Sequence[RunName], updates: pa.RecordBatch, kernel: Kernel
) -> list[RunName]:
    """The runs after these updates, in any order, were added.

    `updates` has the row's columns, then time and diff; no time is negative.
    """
    if not updates.num_rows:
        return list(names)
    count = files.victims(names, updates)
    remaining, merged = list(names[: len(names) - count]), names[len(names) - count :]
    parts = [rows for name in merged for rows in _left(files, name)]
    pieces = merge.by_hash([*parts, _run(updates)], files.piece)
    written = files.write(_run(_merged(piece, kernel)) for piece in pieces)
    return [*remaining, *([*name, int(files.open([name])[0].hashes[0])] for name in written)]


def _merged(parts: Sequence[pa.RecordBatch], kernel: Kernel) -> pa.RecordBatch:
    """The updates of these parts of runs in order of time.

    They are consolidated if anything may cancel: of insertions alone nothing does.
    """
    several = [_updates(part) for part in parts]
    updates = flatten(several, several[0].schema)
    diffs = int64(updates.column(DIFF))
    if diffs.min() <= 0 <= diffs.max():
        updates = consolidate(updates, kernel)
    return updates.take(pa.array(np.argsort(int64(updates.column(TIME)), kind="stable")))


def _left(files: RunFiles, name: RunName) -> list[pa.RecordBatch]:
    """The pending rows of a run."""
    since = np.uint64(name[2])
    return [run.rows[int(np.searchsorted(run.hashes, since)) :] for run in files.open([name])]


def _run(updates: pa.RecordBatch) -> pa.RecordBatch:
    """Updates as a run has them, but in their own order."""
    fields = [updates.schema.field(i) for i in range(updates.num_columns)]
    schema = pa.schema([("h", pa.uint64()), *(f for f in fields if f.name != TIME)])
    data, diffs = updates.columns[:-2], updates.column(DIFF)
    hashes = pa.array(int64(updates.column(TIME)).view(np.uint64))
    return pa.RecordBatch.from_arrays([hashes, *data, diffs], schema=schema)


def _updates(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a run as the updates they stand for."""
    times = pa.array(uint64(rows.column(0)).view(np.int64))
    data, diffs = rows.columns[1:-1], rows.column(DIFF)
    fields = [rows.schema.field(i) for i in range(1, rows.num_columns - 1)]
    schema = pa.schema([*fields, (TIME, pa.int64()), (DIFF, pa.int64())])
    return pa.RecordBatch.from_arrays([*data, times, diffs], schema=schema)
