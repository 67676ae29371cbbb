"""Updates: rows with a time and a diff, as record batches.

A collection at t is the sum of the diffs of the updates whose time is at most t, for each
row. An update table has columns `c0 .. cn, time, diff` (`kernel.arrow_schema`). Everything
here keeps that sum for every t, or says for which.

    consolidate   equal (row, time) become one update; zero diffs disappear
    advance       times move up to `since`: reads at or beyond it are unchanged
    clip          only the times of [lower, upper)
    at            the rows that are there at t
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streams.trace.columns import (
    Ints,
    batch,
    canonical,
    group,
    hash_keys,
    int64,
    key_form,
    one_array,
)
from streams.trace.exact.diffs import repeat_positions, sum_by
from streams.trace.kernel.kernel import Kernel

TIME, DIFF = "time", "diff"


def flatten(tables: Sequence[pa.Table | pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """The tables as one batch of the given schema; values in another type are cast.

    Errors: pyarrow.ArrowInvalid when a value does not fit the schema's type.
    """
    parts = [table for table in tables if table.num_rows]
    if parts and all(part.schema.equals(schema) for part in parts):
        whole = [batch for part in parts for batch in _batches(part)]
        return whole[0] if len(whole) == 1 else pa.concat_batches(whole)
    columns = []
    for index, field in enumerate(schema):
        chunks = [chunk for part in parts for chunk in _chunks(part.column(index))]
        columns.append(_one([_cast(chunk, field.type) for chunk in chunks], field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _batches(rows: pa.Table | pa.RecordBatch) -> list[pa.RecordBatch]:
    return [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _one(chunks: list[pa.Array], kind: pa.DataType) -> pa.Array:
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.nulls(0, kind)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, array.cast(kind.storage_type))
    return array.cast(kind)


def key_columns(
    rows: pa.RecordBatch, positions: Sequence[int], kernel: Kernel
) -> tuple[list[pa.Array], list[pa.Array]]:
    """The columns at these positions in canonical form, and the same in key form."""
    clean = [canonical(rows.column(position)) for position in positions]
    return clean, [key_form(column, kernel) for column in clean]


def hash_columns(
    rows: pa.Table | pa.RecordBatch, positions: Sequence[int], kernel: Kernel
) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """The hash of each row's key, equal in every process and version."""
    if isinstance(rows, pa.Table):
        rows = flatten([rows], rows.schema)
    return hash_keys(key_columns(rows, positions, kernel)[1], rows.num_rows)


def consolidate(updates: pa.RecordBatch, kernel: Kernel) -> pa.RecordBatch:
    """One update for each (row, time), and none whose diff is zero; same contents at every t.

    Rows are equal when their bytes are: a retraction repeats the bytes of its row, and so the
    result does not depend on which of -0.0 and 0.0 came first.

    Errors: DiffOverflow.
    """
    width = updates.num_columns - 2
    diffs = int64(updates.column(DIFF))
    if not len(diffs):
        return updates
    keys = [key_form(updates.column(i), kernel) for i in range(width)]
    groups = group([*keys, int64(updates.column(TIME))], updates.num_rows)
    totals = sum_by(groups, diffs)
    nonzero = np.flatnonzero(totals)
    rows = updates.take(pa.array(groups.first[nonzero]))
    return with_diffs(rows, totals[nonzero])


def with_diffs(updates: pa.RecordBatch, diffs: Ints) -> pa.RecordBatch:
    """The same rows and times with other diffs."""
    arrays = [*updates.columns[:-1], pa.array(diffs)]
    return batch(arrays, updates.schema)


def permute(rows: pa.RecordBatch, order: Ints) -> pa.RecordBatch:
    """The rows in another order: updates, or what is made of them with times or diffs.

    Where all have one time or one diff, as in a snapshot, that column stays as it is.
    """
    at = pa.array(order)
    arrays = [
        column if name in {TIME, DIFF} and _is_one(int64(column)) else column.take(at)
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return batch(arrays, rows.schema)


def _is_one(values: Ints) -> bool:
    return bool((values[1:] == values[:-1]).all())


def consolidate_if_needed(updates: pa.RecordBatch, kernel: Kernel) -> pa.RecordBatch:
    """Consolidated when anything may cancel; as it is when every diff is positive.

    Promise: contents unchanged, and no row that is both inserted and retracted at one time.
    """
    diffs = int64(updates.column(DIFF))
    return updates if not len(diffs) or diffs.min() > 0 else consolidate(updates, kernel)


def advance(updates: pa.RecordBatch, since: int) -> pa.RecordBatch:
    """Times below `since` become `since`; contents at or beyond it are unchanged."""
    times = np.maximum(int64(updates.column(TIME)), since)
    return batch([*updates.columns[:-2], pa.array(times), updates.column(DIFF)], updates.schema)


def clip(updates: pa.RecordBatch, lower: int, upper: int) -> pa.RecordBatch:
    """The updates whose times lie in [lower, upper)."""
    times = int64(updates.column(TIME))
    keep = (times >= lower) & (times < upper)
    return updates if keep.all() else updates.filter(pa.array(keep))


def contents_at(updates: pa.RecordBatch, time: int, kernel: Kernel) -> pa.RecordBatch:
    """The contents at `time`: each row with its multiplicity as diff, all at that time.

    A multiplicity may be negative; the caller says what that means.
    """
    times = int64(updates.column(TIME))
    past = updates.filter(pa.array(times <= time))
    return consolidate(advance(past, time), kernel)


def expand(updates: pa.RecordBatch) -> pa.RecordBatch:
    """The data columns alone, every row as often as its diff says.

    Errors: AssertionError for a negative diff; TooManyCopies.
    """
    diffs = int64(updates.column(DIFF))
    assert not len(diffs) or diffs.min() >= 0, (
        "a collection holds a row a negative number of times"
    )
    width = updates.num_columns - 2
    rows = updates.select(list(range(width)))
    if width == 0 or not len(diffs):
        return rows
    return rows.take(pa.array(repeat_positions(diffs)))


def as_batch(table: pa.Table) -> pa.RecordBatch:
    """The table as one batch of its own schema."""
    return pa.RecordBatch.from_arrays(
        [one_array(c) for c in table.columns], schema=table.schema
    )
