"""Error rows of a collection, as a table: error, time, diff."""

import numpy as np
import pyarrow as pa

from streams.ids import Timestamp
from streams.storage.sinks.sink import Integers

NO_ERRORS = pa.table({"error": pa.array([], pa.utf8()), "time": [], "diff": []}).cast(
    pa.schema([("error", pa.utf8()), ("time", pa.int64()), ("diff", pa.int64())])
)


def advanced(errors: pa.Table, start: Timestamp) -> pa.Table:
    """Errors with times below `start` moved up to it."""
    return at_times(errors, np.maximum(times_of(errors), start))


def at_times(errors: pa.Table, times: Integers) -> pa.Table:
    """The same errors with replaced times."""
    column = pa.array(times, pa.int64())
    return errors.set_column(1, "time", column).cast(NO_ERRORS.schema)


def times_of(errors: pa.Table) -> Integers:
    """At which they are."""
    times: Integers = errors.column("time").to_numpy()
    return times
