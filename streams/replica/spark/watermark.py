"""The watermark of a lane's query: fed by a column, and compared with what Spark reports.

Spark's watermark is the greatest event time that was fed, less the delay, from the micro-batch
after on. So the lane knows it before Spark reports it, and Spark need not write it down: its
logs cost a quarter of a small micro-batch. Each report is compared all the same. Spark may be
ahead, if it took in a micro-batch that failed afterwards: then the lane follows. It is never
behind: an Append would have an upper that is no watermark.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

COLUMN = "event_time"

KEPT = 1_000
"""How many micro-batches a report of Spark's may be behind."""


class Progress(NamedTuple):
    """A report of Spark's: the watermark of a micro-batch, in milliseconds, as it began."""

    batch: int
    watermark_ms: int


def followed(rows: DataFrame, delay_ms: int) -> DataFrame:
    """Return a stream of such rows whose query has a watermark."""
    return rows.withWatermark(COLUMN, f"{delay_ms} milliseconds")


def progress(query: StreamingQuery) -> Progress | None:
    """Return the newest report of a query; None without a watermark in it."""
    report = query.lastProgress
    return None if report is None else parsed(report)


def parsed(report: Mapping[str, object]) -> Progress | None:
    """Return what a report says, in the JSON form that Spark documents.

    None for a moment that Python has not: sources refuse event times after the year 9999.
    """
    match report:
        case {"batchId": int(batch), "eventTime": {"watermark": str(text)}}:
            try:
                moment = datetime.fromisoformat(text)
            except ValueError:
                return None
            return Progress(batch, round(moment.timestamp() * 1000))
        case _:
            return None


@dataclass(slots=True)
class QueryWatermark:
    """The watermark of a query as its lane knows it, in milliseconds; 0 before the first."""

    watermark_ms: int = 0
    _began: dict[int, int] = field(default_factory=dict)

    def begin(self, batch: int) -> None:
        """Record that Spark began a micro-batch."""
        self._began[batch] = self.watermark_ms
        self._began.pop(batch - KEPT, None)

    def feed(self, watermark_ms: int) -> None:
        """Record what a micro-batch that has ended fed to the query."""
        self.watermark_ms = max(self.watermark_ms, watermark_ms)

    def began_ms(self, batch: int) -> int | None:
        """Return the watermark at the begin of a micro-batch; None if it was not noted."""
        return self._began.get(batch)

    def compare(self, report: Progress) -> str | None:
        """Return what is wrong with Spark's watermark, if it is behind; follow it if ahead."""
        began_ms = self.began_ms(report.batch)
        if began_ms is None or report.watermark_ms == began_ms:
            return None
        if report.watermark_ms > began_ms:
            self.feed(report.watermark_ms)
            return None
        return (
            f"Spark's watermark was {report.watermark_ms} ms in micro-batch {report.batch},"
            f" expected {began_ms} ms"
        )
