"""A keyed arrangement: the latest row of each key.

Columns of a run: `h`, the key columns `k0 ..`, `live`, then the caller's columns. A run has a
key at most once; of several runs the newest that has the key counts. A row that is not live
says that the key is gone: it is kept only while an older run may still have the key.

    contents(runs) = { key: row | the newest run with the key has row, and row is live }

The hash finds candidates and the key columns decide: two keys of equal hash stay apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.trace.arrange import merge
from streams.trace.arrange.runs import RunFiles, RunName, by_hash, lookup, repeated
from streams.trace.columns import Flags, Ints, Words, equal_rows, group, key_form
from streams.trace.kernel.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of state, and for each key asked for the place of its row there, or -1."""

    rows: pa.RecordBatch
    places: Ints

    def rows_or_null(self, column: int | str) -> pa.Array:
        """A column's value for each key asked for; NULL for the keys that are not there."""
        return self.rows.column(column).take(pa.array(self.places, mask=self.places < 0))


def schema(keys: Sequence[pa.DataType], more: Sequence[pa.Field]) -> pa.Schema:
    """The schema of the runs of a keyed arrangement."""
    names = [pa.field(f"k{index}", kind) for index, kind in enumerate(keys)]
    return pa.schema([("h", pa.uint64()), *names, ("live", pa.bool_()), *more])


def find(
    files: RunFiles,
    names: Sequence[RunName],
    keys: Sequence[pa.Array],
    hashes: Words,
    shape: pa.Schema,
    kernel: Kernel,
) -> Found:
    """The live rows of these keys.

    Args:
        files: the directory of the runs.
        names: the runs, oldest first.
        keys: the keys' columns in key form, no key twice.
        hashes: the keys' hashes.
        shape: the schema of the runs.
        kernel: for keys of nested types.
    """
    parts, read = [], 0
    places_found = np.full(len(hashes), -1, np.int64)
    for run in files.open(names):
        which, places = lookup(run, hashes)
        if not len(places):
            continue
        rows, key_places = run.rows.take(pa.array(places)), pa.array(which)
        equal = np.ones(len(places), np.bool_)
        for index, key in enumerate(keys):
            equal &= equal_rows(key_form(rows.column(1 + index), kernel), key.take(key_places))
        places_found[which[equal]] = read + np.flatnonzero(equal)  # a newer run comes later
        parts.append(rows)
        read += len(places)
    if not parts:
        return Found(_empty(shape), places_found)
    rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    live = rows.column("live")
    if live.true_count < len(live):
        places_found[
            (places_found >= 0) & ~live.to_numpy(zero_copy_only=False)[places_found]
        ] = -1
    return Found(rows, places_found)


def _empty(shape: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in shape], schema=shape)


def insert(
    files: RunFiles,
    names: Sequence[RunName],
    rows: pa.RecordBatch,
    keys: int,
    kernel: Kernel,
) -> list[RunName]:
    """The runs after these rows were said, no key twice among them; any order of rows.

    `keys` is the number of key columns.
    """
    if not rows.num_rows:
        return list(names)
    count = files.victims(names, rows)
    remaining, merged = list(names[: len(names) - count]), names[len(names) - count :]
    parts = [*(run.rows for run in files.open(merged)), rows]
    pieces = merge.by_hash(parts, files.piece)
    return [
        *remaining,
        *files.write(_merged(piece, keys, kernel, gone=not remaining) for piece in pieces),
    ]


def _merged(
    parts: Sequence[pa.RecordBatch], keys: int, kernel: Kernel, *, gone: bool
) -> pa.RecordBatch:
    """The last row of each key, by hash; those that are not live are left out if `gone`."""
    hashes, order = by_hash(parts)
    everything = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    if len(parts) > 1:
        order = _latest(everything, hashes, order, keys, kernel)
    result = everything.take(pa.array(order))
    live = result.column("live")
    return result.filter(live) if gone and live.true_count < len(live) else result


def _latest(
    rows: pa.RecordBatch, hashes: Words, order: Ints, keys: int, kernel: Kernel
) -> Ints:
    """The order without the rows that a later row of the same key replaces."""
    hashes = hashes[order]
    pairs = np.flatnonzero(hashes[1:] == hashes[:-1])
    if not len(pairs):
        return order
    keep = np.ones(len(order), np.bool_)
    first, second = pa.array(order[pairs]), pa.array(order[pairs + 1])
    columns = [rows.column(1 + index) for index in range(keys)]
    if all(_same(column.take(first), column.take(second), kernel).all() for column in columns):
        keep[pairs] = False  # no hash is that of two keys
        return order[keep]
    twins = repeated(hashes)
    suspects = rows.take(pa.array(order[twins]))
    forms = [key_form(suspects.column(1 + index), kernel) for index in range(keys)]
    ids = group(forms, len(twins)).ids
    last = np.empty(int(ids.max()) + 1, np.int64)
    last[ids] = np.arange(len(twins))  # the sort is stable: the latest comes last
    keep[twins] = False
    keep[twins[last]] = True
    return order[keep]


def _same(left: pa.Array, right: pa.Array, kernel: Kernel) -> Flags:
    return equal_rows(key_form(left, kernel), key_form(right, kernel))
