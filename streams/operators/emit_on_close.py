"""EmitOnClose: emits each row of a view once, when its window closes.

    contents(t) = { row : end(row) <= t, as often as row is in the view just before its end }

The view comes filtered by `mz_now() < end`: of a row (r, s, d) there are the updates (r, s, d)
and (r, end, -d) if s < end, else none. So what happens to r at exactly its end is that it goes,
as often as it was there, and nothing else ever does: that is turned round, and the rest left
out. Hence no state, and no difference how intervals are cut, or where a replica begins again:
what closed before is not in its input.

Windows that had ended when the dataflow was born leave the input one time after its birth. Of
their rows the updates at birth come out, as they are.

Errors are never retracted (`lasting_errors`): a row that failed while a window was open may be
missing from it, and a closed window is never corrected. Readers must see that. Only the first
snapshot may retract them: it comes in slices, and can fail in one and be complete in the next.
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
