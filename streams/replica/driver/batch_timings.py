"""Timings of each micro-batch, one line of JSON each, for the benchmarks.

wait_ms from the source's request for the latest offset until there was work plan_ms from that
decision to the start of foreachBatch: Spark's log, partitions, plan tasks_ms the action: all
rounds commit_ms reports, Append and records, of which `append_ms` is the Append worker_ms the
total time that tasks spent on the dataflows
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from streams.ids import CollectionId
from streams.replica.driver.scheduler import MicroBatch
from streams.replica.tasks.report import Result

LINES = 100_000
"""Number of lines after which the file is truncated."""


@dataclass(slots=True)
class Timings:
    """The file; None writes nothing."""

    path: Path | None
    lines: int = 0

    def note(
        self,
        batch: MicroBatch,
        results: Mapping[CollectionId, Result],
        moments: tuple[float, float, float],
        append_seconds: float,
    ) -> None:
        """Add a line. `moments`: foreachBatch began, rows collected, committed."""
        if self.path is None:
            return
        began, collected, committed = moments
        line = {
            "lane": batch.lane,
            "seq": batch.seq,
            "at_ms": round(batch.began_at * 1000),
            "dataflows": len(batch.units),
            "depth": batch.depth,
            "tasks": batch.tasks,
            "rows": sum(result.rows_in for result in results.values()),
            "wait_ms": _ms(batch.decided - batch.asked),
            "plan_ms": _ms(began - batch.decided),
            "tasks_ms": _ms(collected - began),
            "commit_ms": _ms(committed - collected),
            "append_ms": _ms(append_seconds),
            "trigger_ms": _ms(committed - batch.decided),
            "worker_ms": round(sum(result.milliseconds for result in results.values()), 1),
        }
        mode = "w" if self.lines % LINES == 0 else "a"
        with suppress(OSError), self.path.open(mode) as file:
            # a failure here must not fail the micro-batch
            file.write(json.dumps(line) + "\n")
        self.lines += 1


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
