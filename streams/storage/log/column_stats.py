"""Min and max of the columns of a chunk, so that filtered reads skip chunks. Pure.

They are in the log, beside the reference, so that a skipped chunk is not fetched. Small chunks
have none: they are cheap to fetch, and logs of single-row writers would grow by half. Integers,
floats and short text have bounds; other columns have none, nor has a chunk with errors, which
every reader has to see.
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from streams.kafka.log import ChunkRef, Range

LEAST_ROWS = 256
"""Minimum of rows of a chunk with ranges."""

LONGEST_TEXT = 64
"""Longest bound, in characters; a column with a longer one has none."""


def with_ranges(refs: Sequence[ChunkRef], updates: pa.Table) -> tuple[ChunkRef, ...]:
    """Return the references, with column ranges for larger chunks.

    Shape: `updates` has c0 .. cn, time, diff; the chunks hold its rows, one after the other,
    then errors, if there are any.
    """
    chunks: list[ChunkRef] = []
    start = 0
    for ref in refs:
        end = start + ref.rows
        if ref.rows >= LEAST_ROWS and end <= updates.num_rows:
            rows = updates.slice(start, ref.rows)
            ranges = tuple(range_of(column) for column in rows.columns[:-2])
            chunks.append(replace(ref, ranges=ranges))
        else:
            chunks.append(ref)
        start = end
    return tuple(chunks)


def range_of(column: pa.ChunkedArray) -> Range | None:
    """Return the bounds of a column's values; None if they cannot be stored."""
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
