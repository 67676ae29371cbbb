"""At which times a collection is in error. Pure.

Errors are updates of their own: (error, time, diff). An error is *alive* at t when its diffs up
to t do not add up to zero; one that was taken back too often is alive as well, and different
errors never make up for each other. So whether there is an answer at t depends on the contents
of t alone: not on how updates were cut into intervals, nor on whether the error heals later.
"""

import pyarrow as pa
import pyarrow.compute as pc

from streams.ids import Timestamp


def alive(errors: pa.Table, time: Timestamp) -> pa.Table:
    """The errors at `time` with their multiplicities; those that were retracted are gone."""
    past = errors.filter(pc.less_equal(errors.column("time"), time))
    if not past.num_rows:
        return past.select(["error", "diff"])
    sums = past.group_by("error", use_threads=False).aggregate([("diff", "sum")])
    sums = sums.select(["error", "diff_sum"]).rename_columns(["error", "diff"])
    kept = sums.filter(pc.not_equal(sums.column("diff"), 0))
    return kept.sort_by("error")


def first_error(errors: pa.Table) -> Timestamp | None:
    """The least time at which an error is alive, when none was before these."""
    if not errors.num_rows:
        return None
    sums = errors.group_by(["error", "time"], use_threads=False).aggregate([("diff", "sum")])
    changed = sums.filter(pc.not_equal(sums.column("diff_sum"), 0))
    return Timestamp(pc.min(changed.column("time")).as_py()) if changed.num_rows else None
