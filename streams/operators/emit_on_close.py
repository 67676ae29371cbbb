"""EmitOnClose: emits each row of a view once, when its window closes.

    contents(t) = { row : end(row) <= t, as often as row is in the view just before its end }

The input is the view with the filter `mz_now() < end`: a row (r, s, d) gives the updates
(r, s, d) and (r, end, -d) if s < end, else none. So the only updates of r at exactly its end
are retractions of its whole multiplicity. The operator negates these and drops all others.
Hence it has no state, and its output does not depend on how the interval is split or where a
replica restarts: windows that closed before are not in its input.

Rows of windows that had ended when the dataflow was created leave the input one time after its
as_of. For them the updates at the as_of are the output, unchanged.

Errors are never retracted (`lasting_errors`): a row that failed while its window was open may
be missing from the result, and a closed window is never corrected: readers must see the error.
Only the first snapshot may retract errors: it is computed in slices, and an error in one slice
can be resolved by the next.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streams.operators.temporal import bounds_of_times
from streams.plan.physical import Dataflow, EmitOnClose
from streams.trace.columns import int64, one_array
from streams.trace.exact.diffs import negated
from streams.trace.kernel.kernel import arrow_schema


def step(
    node: EmitOnClose, rows: pa.RecordBatch, output_types: Sequence[str]
) -> pa.RecordBatch:
    """The rows of the windows that close in the interval."""
    width, end = len(output_types), rows.column(node.end)
    times, diffs = int64(rows.column("time")), int64(rows.column("diff"))
    closes, _ = bounds_of_times(end)
    has_end = np.asarray(end.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    closed = has_end & (times == closes)
    if node.born is not None:
        had_ended = closes <= node.born
        closed = (closed & ~had_ended) | (has_end & had_ended & (times == node.born))
        diffs = np.where(had_ended, diffs, negated(diffs))
    else:
        diffs = negated(diffs)
    arrays = [*rows.columns[:width], rows.column("time"), pa.array(diffs)]
    schema = arrow_schema(output_types)
    return pa.RecordBatch.from_arrays(arrays, schema=schema).filter(pa.array(closed))


def lasting_errors(dataflow: Dataflow, errors: pa.Table | None) -> pa.Table | None:
    """The error updates that come out of a dataflow: of this one they stay."""
    last = dataflow.nodes[-1] if dataflow.nodes else None
    if errors is None or not isinstance(last, EmitOnClose):
        return errors
    times, diffs = (int64(one_array(errors.column(name))) for name in ("time", "diff"))
    kept = errors.filter(pa.array((diffs > 0) | (times == last.born)))
    return kept if kept.num_rows else None
