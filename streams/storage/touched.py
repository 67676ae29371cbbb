"""Which rows of a collection an update is about: all that `check_counts` has to look at.

Of what a collection holds only the rows are kept, chunk by chunk, that may be rows of the
update; the rest is neither grouped nor sorted, and its memory goes as soon as its chunk was
looked at. A chunk whose ranges say that it holds none of them is not fetched.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streams.kafka.log import ChunkRef, Range
from streams.storage.ranges import range_of
from streams.trace.columns import key_form
from streams.trace.kernel import Kernel
from streams.trace.updates import consolidate, flatten


@dataclass(frozen=True, slots=True)
class Touched:
    """Selects rows each value of which is one of the update's, in its column (`Selecting`).

    They are the rows of the update, and perhaps others.

    Shape: `schema` is c0 .. cn, time, diff; `values` has an array of each of c0 .. cn, in the
    form of keys, each value once; `bounds` those of each as it is, None where there are none.
    """

    schema: pa.Schema
    values: Sequence[pa.Array]
    bounds: Sequence[Range | None]
    kernel: Kernel

    def may_match(self, chunk: ChunkRef) -> bool:
        """Whether the chunk's ranges allow for one of the rows."""
        pairs = zip(chunk.ranges, self.bounds, strict=False)
        return all(there is None or own is None or meets(there, own) for there, own in pairs)

    def apply(self, updates: pa.Table) -> pa.Table:
        """The rows that are selected, of a chunk; each once at each time.

        Millions of equal rows are some kilobytes of a chunk, so they are added up here.
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


def touched(fresh: pa.RecordBatch, kernel: Kernel) -> Touched:
    """Selects what the rows of an update may be. Shape: c0 .. cn, time, diff."""
    width = fresh.num_columns - 2
    keys = [key_form(fresh.column(position), kernel) for position in range(width)]
    bounds = [bounds_of(fresh.column(position)) for position in range(width)]
    return Touched(fresh.schema, [each.unique() for each in keys], bounds, kernel)


def bounds_of(column: pa.Array) -> Range | None:
    """Bounds of all values; None where one lies outside of any: a NULL, or no number."""
    is_odd = pc.is_null(column, nan_is_null=pa.types.is_floating(column.type))
    return None if pc.any(is_odd).as_py() else range_of(column)


def meets(one: Range, other: Range) -> bool:
    """Whether a value may lie within both."""
    return bool(one.low <= other.high and other.low <= one.high)  # type: ignore[operator]  # of one column
