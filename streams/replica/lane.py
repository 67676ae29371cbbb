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
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from streams.replica import report
from streams.replica.commit import Committer
from streams.replica.packed import peek
from streams.replica.scheduler import LaneName, Scheduler
from streams.replica.source import NAME, SCHEMA
from streams.replica.stage import advance_round
from streams.replica.timings import Timings

log = logging.getLogger(__name__)

SOURCE_TIMEOUT_S = 30.0
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
        self.query = writer.option("checkpointLocation", str(self.checkpoint)).start()
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
            rounds(frame, 1, self.scheduler).collect()
            return
        began = time.monotonic()
        rows = rounds(frame, batch.depth, self.scheduler).collect()
        collected = time.monotonic()
        results = report.gather(peek(pa.py_buffer(row.blob)) for row in rows)
        seconds = self.committer.commit(batch, results)
        self.scheduler.finish(batch)
        self.timings.note(batch, results, (began, collected, time.monotonic()), seconds)


def rounds(frame: DataFrame, depth: int, scheduler: Scheduler) -> DataFrame:
    """Round 0's frame with `depth` rounds after it."""
    state = str(scheduler.store.directory)
    for level in range(1, depth + 1):
        exchanged = frame.repartitionById(scheduler.buckets, "bucket")
        frame = exchanged.mapInArrow(partial(advance_round, level, state), SCHEMA)
    return frame


def _first_line(cause: object) -> str:
    return next((line for line in str(cause).splitlines() if line.strip()), "")
