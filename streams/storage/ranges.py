"""Bounds of the values in a chunk, so that readers who filter need not fetch it. Pure.

They stand in the log beside the reference, for a chunk that had to be opened would have
travelled already. Small chunks have none: they cost little to fetch, and the log of every
writer of single rows would grow by half. Integers, floats and short text are bounded; other
columns are not, and neither is anything of a chunk with errors, which every reader is told.
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from streams.kafka.log import ChunkRef, Range

LEAST_ROWS = 256
"""Chunks of fewer rows are not worth their ranges."""

LONGEST_TEXT = 64
"""Characters of a bound; a column with a longer one has none."""


def with_ranges(refs: Sequence[ChunkRef], updates: pa.Table) -> tuple[ChunkRef, ...]:
    """The references, those of larger chunks with the ranges of their columns.

    Shape: `updates` has c0 .. cn, time, diff; the chunks hold its rows, one after the other,
    then errors, if there are any.
    """
    found: list[ChunkRef] = []
    start = 0
    for ref in refs:
        end = start + ref.rows
        if ref.rows >= LEAST_ROWS and end <= updates.num_rows:
            rows = updates.slice(start, ref.rows)
            ranges = tuple(range_of(column) for column in rows.columns[:-2])
            found.append(replace(ref, ranges=ranges))
        else:
            found.append(ref)
        start = end
    return tuple(found)


def range_of(column: pa.ChunkedArray) -> Range | None:
    """Bounds of a column's values; None when there are none that we could write down."""
    kind = column.type
    is_bounded = pa.types.is_signed_integer(kind) or pa.types.is_floating(kind)
    if not is_bounded and not pa.types.is_string(kind):
        return None
    ends = pc.min_max(column).as_py()
    low, high = ends["min"], ends["max"]
    if low is None or low != low or high != high:  # noqa: PLR0124  # NaN alone differs from itself
        return None
    if isinstance(low, str) and max(len(low), len(high)) > LONGEST_TEXT:
        return None
    return Range(low, high)
