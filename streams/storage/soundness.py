"""At which times a collection is in error. Pure.

Errors are updates of their own: (error, time, diff). An error is *alive* at t when its diffs up
to t do not add up to zero; one that was taken back too often is alive as well, and different
errors never make up for each other. So whether there is an answer at t depends on the contents
of t alone: not on how updates were cut into intervals, nor on whether the error heals later.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.ids import Timestamp
from streams.trace.columns import combined, group, int64
from streams.trace.diffs import sum_by


def alive(errors: pa.Table, time: Timestamp) -> pa.Table:
    """The errors at `time` with their multiplicities; those that were retracted are gone."""
    past = errors.filter(pc.less_equal(errors.column("time"), time))
    return summed(past, ["error"]).sort_by("error")


def first_error(errors: pa.Table) -> Timestamp | None:
    """The least time at which an error is alive, when none was before these."""
    changed = summed(errors, ["error", "time"])
    return Timestamp(pc.min(changed.column("time")).as_py()) if changed.num_rows else None


def summed(errors: pa.Table, by: Sequence[str]) -> pa.Table:
    """These columns and the sum of the diffs, where it is not zero. Errors: DiffOverflow."""
    if not errors.num_rows:
        return errors.select([*by, "diff"])
    columns = [combined(errors.column(name)) for name in by]
    groups = group(columns, errors.num_rows)
    totals = sum_by(groups, int64(combined(errors.column("diff"))))
    kept = np.flatnonzero(totals)
    first = pa.array(groups.first[kept])
    arrays = [*(column.take(first) for column in columns), pa.array(totals[kept])]
    return pa.table(arrays, names=[*by, "diff"])
