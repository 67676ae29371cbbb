"""The watermark of a lane's query, as Spark has it: fed by a column, read from its commits.

Spark writes `commits/N` at the end of micro-batch N: a line with the version, then JSON, of
which `nextBatchWatermarkMs` is the greatest event time that was fed less the delay, and never
goes back. It is there before Spark asks for the next micro-batch.
"""

import json
from pathlib import Path

from pyspark.sql import DataFrame

COLUMN = "event_time"


def followed(rows: DataFrame, delay_ms: int) -> DataFrame:
    """Return a stream of such rows whose query has a watermark."""
    return rows.withWatermark(COLUMN, f"{delay_ms} milliseconds")


def committed(checkpoint: Path) -> int:
    """Return the watermark after the last micro-batch, in milliseconds; 0 before the first."""
    names = [path.name for path in (checkpoint / "commits").glob("*")]
    numbers = [int(name) for name in names if name.isdecimal()]
    if not numbers:
        return 0
    lines = (checkpoint / "commits" / str(max(numbers))).read_text("utf-8").splitlines()
    watermark = json.loads(lines[1])["nextBatchWatermarkMs"]
    assert isinstance(watermark, int)
    return watermark
