"""Consolidates the updates of a merge: advanced, summed, split by hash of row and time.

Updates of the same row at the same time fall into the same bucket, whatever chunk they came
from; so buckets can be consolidated one after the other, or on different machines, and the
result is consolidated as a whole. A row that changes at every time is spread over all of them.
Contents at or beyond the time advanced to are unchanged.

Shape: contents are (c0 .. cn, time, diff), errors (error, time, diff); both are consolidated
alike, because an error is a row of one column.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.ids import Timestamp
from streams.storage.read.reader import Loaded
from streams.trace.kernel.kernel import Kernel
from streams.trace.updates import advance, consolidate, flatten, hash_columns

ERRORS = pa.schema([("error", pa.utf8()), ("time", pa.int64()), ("diff", pa.int64())])


@dataclass(frozen=True, slots=True)
class Part:
    """Some updates of a merge, consolidated."""

    updates: pa.RecordBatch
    errors: pa.RecordBatch

    @property
    def rows(self) -> int:
        """The number of updates."""
        return int(self.updates.num_rows + self.errors.num_rows)

    @property
    def nbytes(self) -> int:
        """Their bytes in memory."""
        return int(self.updates.nbytes + self.errors.nbytes)

    @property
    def tables(self) -> Loaded:
        """The tables in the form that storage writes."""
        return pa.Table.from_batches([self.updates]), pa.Table.from_batches([self.errors])


def reduced(
    loaded: Sequence[Loaded], schema: pa.Schema, time: Timestamp, kernel: Kernel
) -> Part:
    """Return the updates with their times advanced to `time`, consolidated."""
    updates = flatten([batch for batch, _ in loaded], schema)
    errors = flatten([batch for _, batch in loaded], ERRORS)
    return Part(
        consolidate(advance(updates, time), kernel), consolidate(advance(errors, time), kernel)
    )


def together(parts: Sequence[Part], schema: pa.Schema, kernel: Kernel) -> Part:
    """Concatenate parts of one bucket."""
    if len(parts) == 1:
        return parts[0]
    return Part(
        consolidate(flatten([part.updates for part in parts], schema), kernel),
        consolidate(flatten([part.errors for part in parts], ERRORS), kernel),
    )


def split(part: Part, buckets: int, kernel: Kernel) -> list[Part]:
    """Split the part by bucket; equal rows of one time go to one bucket in every process."""
    if buckets == 1:
        return [part]
    updates = scattered(part.updates, buckets, kernel)
    errors = scattered(part.errors, buckets, kernel)
    return [
        Part(update_rows, other) for update_rows, other in zip(updates, errors, strict=True)
    ]


def scattered(rows: pa.RecordBatch, buckets: int, kernel: Kernel) -> list[pa.RecordBatch]:
    """Return the rows by the bucket of their hash."""
    if not rows.num_rows:
        return [rows] * buckets
    hashes = hash_columns(rows, range(rows.num_columns - 1), kernel)  # all columns but the diff
    numbers = (hashes % np.uint64(buckets)).astype(np.int64)
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=buckets))
    sorted_ = rows.take(pa.array(order))
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    return [
        sorted_.slice(int(start), int(end - start))
        for start, end in zip(starts, ends, strict=True)
    ]
