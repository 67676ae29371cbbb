"""Event times of messages, and which of them cannot be."""

import pyarrow as pa
import pytest

from streams.plan.metadata import Watermark
from streams.replica.ingest.event_times import LAST_MS, EventTimes

DAY_MS = 86_400_000
LATEST = (1 << 63) // 1000


@pytest.mark.parametrize("record", [LAST_MS, LAST_MS + DAY_MS, LATEST, (1 << 63) - 1])
def test_no_record_makes_an_event_time_beyond_the_year_9999_sound(record: int) -> None:
    """The producer's clock may be in microseconds: the record agrees with its column."""
    declared = Watermark(
        column="ts", delay_ms=0, late_rows="place", idle_ms=1000, ahead_ms=DAY_MS
    )
    moments = [LAST_MS, LAST_MS + 1, LATEST - 1]
    column = pa.chunked_array([pa.array([at * 1000 for at in moments], pa.timestamp("us"))])
    messages = pa.table({"timestamp": pa.array([record] * 3, pa.int64())})
    times, reasons = EventTimes(declared, 0).read(column, messages)
    assert times.to_pylist() == moments
    sound, next_, last = reasons.to_pylist()
    assert sound is None
    assert next_ == f'column "ts": event time {LAST_MS + 1} ms is beyond the year 9999'
    assert last.endswith("is beyond the year 9999")
