"""The existing rows that an update affects: all that `check_counts` has to read.

Of each chunk only the rows are kept that may be rows of the update; the rest is neither grouped
nor sorted, and its memory is freed with the chunk. A chunk whose ranges exclude all rows of the
update is not fetched.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streams.kafka.log import ChunkRef, Range
from streams.storage.log.column_stats import range_of
from streams.trace.columns import key_form
from streams.trace.kernel.kernel import Kernel
from streams.trace.updates import consolidate, flatten


@dataclass(frozen=True, slots=True)
class AffectedRows:
    """Selects rows whose values all occur in the update, in the same column (`ChunkSelection`).

    They are a superset of the update's rows.

    Shape: `schema` is c0 .. cn, time, diff; `values` has an array of each of c0 .. cn, in the
    form of keys, each value once; `bounds` those of each as it is, None where there are none.
    """

    schema: pa.Schema
    values: Sequence[pa.Array]
    bounds: Sequence[Range | None]
    kernel: Kernel

    def may_match(self, chunk: ChunkRef) -> bool:
        """Whether the chunk's ranges allow one of the rows."""
        pairs = zip(chunk.ranges, self.bounds, strict=False)
        return all(
            there is None or own is None or may_intersect(there, own) for there, own in pairs
        )

    def apply(self, updates: pa.Table) -> pa.Table:
        """Return the selected rows of a chunk; each once per time.

        Millions of equal rows fit in a few kilobytes of a chunk, so they are summed here.
        """
        rows = flatten([updates], self.schema)
        for position, values in enumerate(self.values):
            if not rows.num_rows:
                break
            keys = key_form(rows.column(position), self.kernel)
            is_touched = pc.is_in(keys, value_set=values)
            if is_touched.true_count < rows.num_rows:
                rows = rows.filter(is_touched)
        return pa.Table.from_batches([consolidate(rows, self.kernel)], self.schema)


def affected_rows(fresh: pa.RecordBatch, kernel: Kernel) -> AffectedRows:
    """Return the selection of an update's rows. Shape: c0 .. cn, time, diff."""
    width = fresh.num_columns - 2
    keys = [key_form(fresh.column(position), kernel) for position in range(width)]
    bounds = [bounds_of(fresh.column(position)) for position in range(width)]
    return AffectedRows(fresh.schema, [key.unique() for key in keys], bounds, kernel)


def bounds_of(column: pa.Array) -> Range | None:
    """Return the bounds of all values; None if one is NULL or NaN."""
    is_odd = pc.is_null(column, nan_is_null=pa.types.is_floating(column.type))
    return None if pc.any(is_odd).as_py() else range_of(column)


def may_intersect(left: Range, right: Range) -> bool:
    """Whether a value may lie within both."""
    return bool(left.low <= right.high and right.low <= left.high)  # type: ignore[operator]  # of one column
