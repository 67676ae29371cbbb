"""What the source of event times must hold: departures, reported when a plane has left."""

import pyarrow as pa

from streams.demo.views import DELAY_MS
from streams.ids import Timestamp
from streams.trace.kernel.kernel import Kernel

TOPIC = "departures"


def event_times(messages: pa.Table, kernel: Kernel) -> pa.Table:
    """Return the scheduled times of the published departures.

    Shape: one column `ms`, int64, milliseconds since the epoch.
    """
    return kernel.query(
        "SELECT epoch_ms(CAST(json_extract_string(value, '$.sched_dep') AS TIMESTAMP)) AS ms"
        f" FROM messages WHERE topic = '{TOPIC}'",
        messages=messages,
    )


def final_upper(times: pa.Table, kernel: Kernel) -> Timestamp:
    """Return the watermark once all partitions are idle; 0 without departures."""
    (row,) = kernel.query("SELECT max(ms) AS ms FROM times", times=times).to_pylist()
    return Timestamp(0 if row["ms"] is None else max(0, row["ms"] - DELAY_MS))


def below(times: pa.Table, upper: Timestamp, kernel: Kernel) -> int:
    """Return how many departures are in the source: the others wait for the watermark."""
    query = f"SELECT count(*) AS n FROM times WHERE ms < {upper}"
    (row,) = kernel.query(query, times=times).to_pylist()
    count: int = row["n"]
    return count
