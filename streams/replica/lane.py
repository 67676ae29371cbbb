"""A lane: one streaming query that steps many dataflows, and starts again when it dies.

The query's checkpoint directory is fresh at every start: an old one could replay an interval
whose inputs are compacted by now (rule 21). What Spark thinks of progress matters to nobody;
the end of `foreachBatch` is the acknowledgement, and the scheduler says what comes next.

A micro-batch is one Spark action: every action would run round 0 again. It chains as many
rounds as the deepest of its dataflows needs.
"""

import logging
import shutil
import time
import uuid
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.functions import col, pandas_udf
from pyspark.sql.streaming import StreamingQuery
from pyspark.util import PythonEvalType

from streams.replica import report
from streams.replica.commit import Committer
from streams.replica.packed import peek
from streams.replica.scheduler import LaneName, Scheduler
from streams.replica.source import NAME, SCHEMA
from streams.replica.stage import advance_round
from streams.replica.timings import Timings

log = logging.getLogger(__name__)

SOURCE_TIMEOUT_S = 30.0
UNWRITTEN_PROGRESS = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "3600000",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
"""Spark's own progress is never read again, so it is not written: 25 ms less a micro-batch."""

WORKER_DIED = ("Python worker exited unexpectedly", "Python worker process terminated")


@dataclass(slots=True)
class Lane:
    """One lane's query and what runs in it."""

    name: LaneName
    session: SparkSession
    scheduler: Scheduler
    committer: Committer
    socket: Path
    timings: Timings
    query: StreamingQuery | None = None
    checkpoint: Path | None = None
    rounds: "Rounds" = field(init=False)

    def __post_init__(self) -> None:
        scheduler = self.scheduler
        self.rounds = Rounds(self.session, scheduler.store.directory, scheduler.buckets)

    def start(self) -> None:
        """Start the query, in a scheduling pool of the lane's own."""
        state = self.scheduler.store.directory
        before = self.scheduler.lanes[self.name].questions
        self._forget_checkpoint()
        self.checkpoint = state / "lanes" / f"{self.name}-{uuid.uuid4().hex}"
        self.session.sparkContext.setLocalProperty("spark.scheduler.pool", self.name)
        stream = self.session.readStream.format(NAME).options(
            socket=str(self.socket), lane=self.name, state=str(state)
        )
        writer = stream.load().writeStream.foreachBatch(self._run).queryName(self.name)
        options = {"checkpointLocation": str(self.checkpoint), **UNWRITTEN_PROGRESS}
        self.query = writer.options(**options).start()
        self._await_source(before)

    def _await_source(self, before: int) -> None:
        """Wait until the query's source asks for work, or the query died.

        Spark gives the source's process ten seconds to come up. Several at once, on few cores,
        may all miss that: so lanes start one after another.
        """
        place = self.scheduler.lanes[self.name]
        deadline = time.monotonic() + SOURCE_TIMEOUT_S
        while place.questions == before and self.query is not None and self.query.isActive:
            if time.monotonic() > deadline or self.scheduler.stopping:
                return
            time.sleep(0.02)

    def revive(self) -> None:
        """Start the query again if it died; its micro-batch is given up."""
        if self.query is None or self.query.isActive:
            return
        cause = self.query.exception()
        log.warning("a lane died", extra={"lane": self.name, "cause": _first_line(cause)})
        killed = any(text in str(cause) for text in WORKER_DIED)
        message = f"the lane's query died: {_first_line(cause)}"
        self.scheduler.abandon(self.name, message, killed=killed)
        self.start()

    def stop(self) -> None:
        """Stop the query."""
        if self.query is not None:
            self.query.stop()
        self._forget_checkpoint()

    def _forget_checkpoint(self) -> None:
        if self.checkpoint is not None:
            shutil.rmtree(self.checkpoint, ignore_errors=True)

    def _run(self, frame: DataFrame, _: int) -> None:
        """One micro-batch, from the frame of round 0 to the end of its commit."""
        batch = self.scheduler.current(self.name)
        if batch is None:  # the query's first micro-batch is empty: let it start the workers
            self.rounds.after(frame, 1).collect()
            return
        began = time.monotonic()
        rows = self.rounds.after(frame, batch.depth).collect()
        collected = time.monotonic()
        results = report.gather(peek(pa.py_buffer(row.blob)) for row in rows)
        seconds = self.committer.commit(batch, results)
        self.scheduler.finish(batch)
        self.timings.note(batch, results, (began, collected, time.monotonic()), seconds)


@dataclass(slots=True)
class Rounds:
    """Puts rounds after round 0.

    What `DataFrame.mapInArrow` makes of a function at every call, at 20 to 30 ms, is made once
    for each level here; hence the reach into PySpark's own classes.
    """

    session: SparkSession
    state: Path
    buckets: int
    made: dict[int, JavaObject] = field(default_factory=dict)

    def after(self, frame: DataFrame, depth: int) -> DataFrame:
        """The frame of round 0 with `depth` rounds after it."""
        for level in range(1, depth + 1):
            exchanged = frame.repartitionById(self.buckets, "bucket")
            rows = exchanged._jdf.mapInArrow(self._round(level), *_PLAINLY)  # noqa: SLF001
            frame = DataFrame(rows, self.session)
        return frame

    def _round(self, level: int) -> JavaObject:
        if level not in self.made:
            advance = partial(advance_round, level, str(self.state))
            function = pandas_udf(advance, SCHEMA, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
            self.made[level] = function(*map(col, SCHEMA.names))._jc  # noqa: SLF001
        return self.made[level]


_PLAINLY = (False, None)
"""Not as a barrier stage, with no resource profile."""


def _first_line(cause: object) -> str:
    return next((line for line in str(cause).splitlines() if line.strip()), "")
