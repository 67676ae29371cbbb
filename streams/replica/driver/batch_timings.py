"""Timings of each micro-batch: summed for metrics, one line of JSON each for the benchmarks.

wait_ms        from the source's request for the latest offset until there was work
plan_ms        from that decision to the start of foreachBatch: Spark's log, partitions, plan
tasks_ms       the action: all rounds
commit_ms      reports, Append and records
append_ms      the Append, a part of these
worker_ms      the total time that tasks spent on the dataflows
runs_read      the runs of state that tasks read
runs_brought   those whose file was not on the task's host, and was copied from the store
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from streams.ids import CollectionId
from streams.replica.driver.micro_batch import LaneName, MicroBatch
from streams.replica.driver.work_counts import WorkCounts
from streams.replica.tasks.report import Result

LINES = 100_000
"""Number of lines after which the file is truncated."""


@dataclass(frozen=True, slots=True)
class LaneTotals:
    """The committed micro-batches of a lane: how many, their rows, and seconds of each part.

    The parts are those of a line: plan, tasks, commit.
    """

    batches: int = 0
    rows: int = 0
    plan_s: float = 0.0
    tasks_s: float = 0.0
    commit_s: float = 0.0


@dataclass(slots=True)
class Timings:
    """The file, None writes nothing; and the sums of each lane, and of each dataflow."""

    path: Path | None
    lines: int = 0
    totals: dict[LaneName, LaneTotals] = field(default_factory=dict)
    work: WorkCounts = field(default_factory=WorkCounts)

    def note(
        self,
        batch: MicroBatch,
        results: Mapping[CollectionId, Result],
        moments: tuple[float, float, float],
        append_seconds: float,
    ) -> None:
        """Add a line. `moments`: foreachBatch began, rows collected, committed."""
        began, collected, committed = moments
        self.work.note(batch, results)
        rows = sum(result.rows_in for result in results.values())
        before = self.totals.get(batch.counted_as, LaneTotals())
        self.totals[batch.counted_as] = LaneTotals(
            before.batches + 1,
            before.rows + rows,
            before.plan_s + began - batch.decided,
            before.tasks_s + collected - began,
            before.commit_s + committed - collected,
        )
        if self.path is None:
            return
        line = {
            "lane": batch.lane,
            "way": batch.way.value,
            "seq": batch.seq,
            "at_ms": round(batch.began_at * 1000),
            "dataflows": len(batch.units),
            "depth": batch.depth,
            "tasks": batch.tasks,
            "rows": rows,
            "wait_ms": _ms(batch.decided - batch.asked),
            "plan_ms": _ms(began - batch.decided),
            "tasks_ms": _ms(collected - began),
            "commit_ms": _ms(committed - collected),
            "append_ms": _ms(append_seconds),
            "trigger_ms": _ms(committed - batch.decided),
            "worker_ms": round(sum(result.milliseconds for result in results.values()), 1),
            "runs_read": sum(result.runs_read for result in results.values()),
            "runs_brought": sum(result.runs_brought for result in results.values()),
        }
        mode = "w" if self.lines % LINES == 0 else "a"
        with suppress(OSError), self.path.open(mode) as file:
            # a failure here must not fail the micro-batch
            file.write(json.dumps(line) + "\n")
        self.lines += 1


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
