"""Finds the times at which a collection is in error. Pure.

Errors are updates of their own: (error, time, diff). An error is *alive* at t if its diffs up
to t do not add up to zero; one that was retracted too often is alive as well, and different
errors never cancel. So whether there is an answer at t depends on the contents at t alone: not
on how updates were cut into intervals, nor on whether the error disappears later.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.ids import Timestamp
from streams.trace.columns import group, int64, one_array
from streams.trace.exact.diffs import sum_by


def present_errors(errors: pa.Table, time: Timestamp) -> pa.Table:
    """Return the errors at `time` with their multiplicities, without retracted ones."""
    past = errors.filter(pc.less_equal(errors.column("time"), time))
    return sum_diffs(past, ["error"]).sort_by("error")


def said_of(errors: pa.Table, start: Timestamp, last: Timestamp) -> str:
    """Say which error keeps a collection without contents from `start` to `last`.

    It may have come later than what began that: two rows of a key, for example.
    """
    time, errors_at = start, present_errors(errors, start)
    if not errors_at.num_rows:
        time, errors_at = last, present_errors(errors, last)
    return f"the collection is in error at {time}: {errors_at.column('error')[0].as_py()}"


def first_error(errors: pa.Table) -> Timestamp | None:
    """Return the least time at which an error is alive, given that none was before."""
    changed = sum_diffs(errors, ["error", "time"])
    return Timestamp(pc.min(changed.column("time")).as_py()) if changed.num_rows else None


def sum_diffs(errors: pa.Table, by: Sequence[str]) -> pa.Table:
    """Group by these columns and sum the diffs; drop zero sums. Errors: DiffOverflow."""
    if not errors.num_rows:
        return errors.select([*by, "diff"])
    columns = [one_array(errors.column(name)) for name in by]
    groups = group(columns, errors.num_rows)
    totals = sum_by(groups, int64(one_array(errors.column("diff"))))
    nonzero = np.flatnonzero(totals)
    first = pa.array(groups.first[nonzero])
    arrays = [*(column.take(first) for column in columns), pa.array(totals[nonzero])]
    return pa.table(arrays, names=[*by, "diff"])
