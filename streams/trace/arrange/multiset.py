"""A multiset arrangement: all rows of a key, each with its multiplicity.

Columns of a run: `h` (hash of the key), the row's columns, `diff`. The runs add up:

    contents(runs) = sum over all rows of all runs of diff * row

A row may occur several times, in one run and in several. Rows that cancel are removed when
their runs are merged; only the keys of rows without a positive diff are looked at for that, so
a merge without retractions is a merge of sorted files and nothing more.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streams.trace.arrange import merge
from streams.trace.arrange.runs import Run, RunFiles, RunName, in_order, lookup
from streams.trace.columns import Ints, Words, group, int64, key_form
from streams.trace.exact.diffs import sum_by
from streams.trace.kernel.kernel import Kernel


def schema(row: pa.Schema) -> pa.Schema:
    """The schema of the runs of an arrangement of rows with these columns."""
    return pa.schema([("h", pa.uint64()), *row, ("diff", pa.int64())])


def candidates(runs: Sequence[Run], hashes: Words, shape: pa.Schema) -> pa.RecordBatch:
    """The rows whose key has one of these hashes (no hash twice), of all runs."""
    parts = []
    for run in runs:
        _, places = lookup(run, hashes)
        if len(places):
            parts.append(run.rows.take(pa.array(places)))
    if not parts:
        return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in shape], schema=shape)
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def insert(
    files: RunFiles, names: Sequence[RunName], rows: pa.RecordBatch, kernel: Kernel
) -> list[RunName]:
    """The runs with these rows added; `rows` has the schema of the runs, in any order."""
    if not rows.num_rows:
        return list(names)
    count = files.victims(names, rows)
    remaining, merged = list(names[: len(names) - count]), names[len(names) - count :]
    parts = [*(run.rows for run in files.open(merged)), rows]
    pieces = merge.by_hash(parts, files.piece)
    return [*remaining, *files.write(_merged(piece, kernel) for piece in pieces)]


def _merged(parts: Sequence[pa.RecordBatch], kernel: Kernel) -> pa.RecordBatch:
    """The rows of these parts as a run has them."""
    rows, hashes = in_order(parts)
    return _cancel(rows, hashes, kernel)


def _cancel(rows: pa.RecordBatch, hashes: Words, kernel: Kernel) -> pa.RecordBatch:
    diffs = int64(rows.column("diff"))
    negative = np.unique(hashes[diffs <= 0])
    if not len(negative):
        return rows
    place = np.minimum(np.searchsorted(negative, hashes), len(negative) - 1)
    suspects = np.flatnonzero(negative[place] == hashes)
    totals, first = _sums(rows.take(pa.array(suspects)), kernel)
    diffs = diffs.copy()
    diffs[suspects] = 0
    diffs[suspects[first]] = totals
    nonzero = pa.array(np.flatnonzero(diffs))
    columns = [*rows.columns[:-1], pa.array(diffs)]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema).take(nonzero)


def _sums(rows: pa.RecordBatch, kernel: Kernel) -> tuple[Ints, Ints]:
    """The total diff of each distinct row, and where it occurs first. Errors: DiffOverflow."""
    forms = [key_form(column, kernel) for column in rows.columns[:-1]]
    groups = group(forms, rows.num_rows)
    return sum_by(groups, int64(rows.column("diff"))), groups.first
