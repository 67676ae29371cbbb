"""A lane: one streaming query that steps many dataflows, one micro-batch after the other.

A failed micro-batch does not end the query. Otherwise Spark would match the error with a
regular expression that overflows its thread's stack on a long trace, and the cause would be
lost. A query that dies all the same is restarted.

A micro-batch that misses its deadline is cancelled, and so is one that blocks others. A query
that Spark does not run, with or without a micro-batch, is restarted
(`streams.replica.driver.watchdog`).

The query's checkpoint directory is fresh at every start: an old one could replay an interval
whose inputs are compacted by now (rule 21). Spark's own progress is not used: the end of
`foreachBatch` is the acknowledgement, and the scheduler decides what comes next. In the lane
of a source with a watermark Spark's reports are compared with what the lane knows of it
(`streams.replica.spark.watermark`).

A micro-batch is one Spark action: every action would run round 0 again. It chains as many
rounds as the deepest of its dataflows needs.
"""

import logging
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.streaming import StreamingQuery

from streams.errors import Indeterminate, SlackwaterError
from streams.replica.driver import error_causes
from streams.replica.driver.batch_timings import Timings
from streams.replica.driver.commit import Committer
from streams.replica.driver.micro_batch import LaneName
from streams.replica.driver.scheduler import Scheduler
from streams.replica.driver.watchdog import QuerySilence, RunningBatch
from streams.replica.spark import watermark
from streams.replica.spark.rounds import Rounds
from streams.replica.spark.source import NAME
from streams.replica.spark.watermark import QueryWatermark
from streams.replica.tasks import report
from streams.replica.tasks.exchange_blobs import peek

log = logging.getLogger(__name__)

SOURCE_TIMEOUT_S = 30.0
UNWRITTEN_PROGRESS = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "3600000",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
"""Do not write Spark's own progress, which is never read: saves 25 ms per micro-batch."""

COMPARE_S = 1.0
"""The time between two comparisons of a watermark with Spark's: each is a call of the JVM."""

CANCEL_S = 60.0
"""How long Spark may take to cancel a micro-batch. After that only a new process helps."""


@dataclass(slots=True)
class Lane:
    """One lane's streaming query and its current micro-batch."""

    name: LaneName
    session: SparkSession
    scheduler: Scheduler
    committer: Committer
    socket: Path
    timings: Timings
    delay_ms: int | None = None
    """The delay of its watermark; None: the query has none."""
    query: StreamingQuery | None = None
    watched: RunningBatch | None = None
    checkpoint: Path | None = None
    following: QueryWatermark = field(default_factory=QueryWatermark)
    """The query's watermark."""
    compared_s: float = 0.0
    runs: bool = False
    """Whether Spark has called us with a micro-batch, which may be its first, empty one."""
    silence: QuerySilence = field(default_factory=QuerySilence)
    clock: Callable[[], float] = time.monotonic
    rounds: Rounds = field(init=False)

    def __post_init__(self) -> None:
        scheduler = self.scheduler
        self.rounds = Rounds(self.session, scheduler.store.inputs.place, scheduler.buckets)

    @property
    def is_busy(self) -> bool:
        """Whether a micro-batch is running or was given out."""
        is_alive = self.query is not None and self.query.isActive
        return is_alive and (self.runs or self.scheduler.current(self.name) is not None)

    def start(self) -> None:
        """Start the query in the lane's own scheduling pool."""
        state = self.scheduler.store.directory
        before = self.scheduler.place(self.name).questions
        self._forget_checkpoint()
        folder = f"{self.name.replace(':', '-')}-{uuid.uuid4().hex}"  # a path of Hadoop's
        self.checkpoint = state / "lanes" / folder
        self.following = QueryWatermark()
        self.session.sparkContext.setLocalProperty("spark.scheduler.pool", self.name)
        stream = self.session.readStream.format(NAME).options(
            socket=str(self.socket), lane=self.name
        )
        options = {"checkpointLocation": str(self.checkpoint), **UNWRITTEN_PROGRESS}
        if self.delay_ms is None:
            rows = stream.load()
        else:
            timed = stream.option("watermark", str(self.delay_ms))
            rows = watermark.followed(timed.load(), self.delay_ms)
        writer = rows.writeStream.foreachBatch(self._run).queryName(self.name)
        self.query = writer.options(**options).start()
        self._await_source(before)

    def _await_source(self, before: int) -> None:
        """Wait until the query's source asks for work, or the query has died.

        Spark gives the source's process ten seconds to start. Several at once, on few cores,
        may all miss that: so lanes start one after another.
        """
        place = self.scheduler.place(self.name)
        deadline = time.monotonic() + SOURCE_TIMEOUT_S
        while place.questions == before and self.query is not None and self.query.isActive:
            if time.monotonic() > deadline or self.scheduler.stopping:
                return
            time.sleep(0.02)

    def tend(self) -> None:
        """Start the query if it is needed or has died; cancel what takes too long."""
        if self.query is None:
            if self.scheduler.is_needed(self.name):
                self._try_to_start()
        elif not self.query.isActive:
            self._revive(self.query)
        elif self._is_silent():
            self._give_up_query(self.query)
        else:
            self._watch(self.query)
            self._compare(self.query)

    def _compare(self, query: StreamingQuery) -> None:
        """Compare the query's watermark with Spark's report of it, now and then."""
        now = self.clock()
        if self.delay_ms is None or now - self.compared_s < COMPARE_S:
            return
        self.compared_s = now
        report = watermark.progress(query)
        wrong = None if report is None else self.following.compare(report)
        if wrong is not None:
            self.scheduler.defect = Indeterminate(f"lane {self.name}: {wrong}")

    def _is_silent(self) -> bool:
        """Whether Spark does not run the query: it neither calls back nor asks for offsets."""
        at_work = self.runs and self.scheduler.current(self.name) is not None
        questions = self.scheduler.place(self.name).questions
        return self.silence.look(self.clock(), questions, is_at_work=at_work)

    def _give_up_query(self, query: StreamingQuery) -> None:
        """Restart the query; its micro-batch, if any, hung.

        If it is silent again, or cannot be stopped, only a new process helps.
        """
        failure = self.silence.give_up()
        log.warning("a lane is silent", extra={"lane": self.name, "cause": failure.message})
        if self.silence.given_up > 1:
            text = f"lane {self.name}: Spark did not call, even after a restart"
            self.scheduler.defect = Indeterminate(text)
            return
        try:
            query.stop()
        except (PySparkException, Py4JError) as error:
            self.scheduler.defect = Indeterminate(
                f"lane {self.name}: a silent query could not be stopped:"
                f" {error_causes.failure_of(error).message}"
            )
            return
        self.scheduler.abandon(self.name, failure)
        self._try_to_start()

    def _revive(self, query: StreamingQuery) -> None:
        """Restart the query; its micro-batch is given up."""
        failure = error_causes.failure_of(
            query.exception() or Indeterminate("Spark ended the query")
        )
        log.warning(
            "a lane failed; restarting", extra={"lane": self.name, "cause": failure.message}
        )
        self.scheduler.abandon(self.name, failure)
        self._try_to_start()

    def _try_to_start(self) -> None:
        """Start the query; Spark may fail to, for example because the disk is full."""
        try:
            self.start()
        except (PySparkException, Py4JJavaError) as error:
            failure = error_causes.failure_of(error)
            log.warning(
                "a lane could not start", extra={"lane": self.name, "cause": failure.message}
            )

    def _watch(self, query: StreamingQuery) -> None:
        """Cancel the current micro-batch if it is over its deadline.

        Errors: Indeterminate when it was cancelled long ago.
        """
        watched, now = self.watched, self.clock()
        if watched is None:
            return
        if watched.cancelled is not None:
            if now - watched.cancelled > CANCEL_S:
                self.scheduler.defect = Indeterminate(
                    f"lane {self.name}: a micro-batch could not be cancelled in {CANCEL_S:g} s"
                )
        elif watched.is_over(now, self.scheduler.has_dropped, self.scheduler.is_in_the_way):
            log.warning("cancelling a micro-batch", extra={"lane": self.name})
            watched.cancelled = now
            # Spark's streaming queries run their jobs in a group named after the run
            self.session.sparkContext.cancelJobGroup(str(query.runId))

    def stop(self) -> None:
        """Stop the query."""
        if self.query is not None:
            self.query.stop()
        self._forget_checkpoint()

    def _forget_checkpoint(self) -> None:
        if self.checkpoint is not None:
            shutil.rmtree(self.checkpoint, ignore_errors=True)

    def _run(self, frame: DataFrame, number: int) -> None:
        self.runs = True
        self.following.begin(number)
        try:
            self._step(frame if self.delay_ms is None else frame.select("bucket", "blob"))
        finally:
            self.runs = False

    def _step(self, frame: DataFrame) -> None:
        """Run one micro-batch, from the frame of round 0 to the end of its commit."""
        batch = self.scheduler.current(self.name)
        if batch is None:  # the query's first micro-batch is empty: let it start the workers
            self.rounds.after(frame, 1).collect()
            return
        watched = self.watched = RunningBatch(batch, self.clock())
        try:
            rows = self.rounds.after(frame, batch.depth).collect()
            self.watched = None
            collected = time.monotonic()
            if self.scheduler.current(self.name) is not batch:
                return  # given up meanwhile: its dataflows may be in another one
            results = report.gather(peek(pa.py_buffer(row.blob)) for row in rows)
            seconds = self.committer.commit(batch, results)
        except Exception as error:  # noqa: BLE001  any failure; the query continues
            self.watched = None
            self._give_up(watched, error)
            return
        if self.delay_ms is not None and batch.candidate_ms is not None:
            self.following.feed(batch.candidate_ms - self.delay_ms)
        self.scheduler.finish(batch)
        with self.scheduler.lock:
            work_ms = sum(result.milliseconds for result in results.values())
            took_ms = (collected - batch.decided) * 1000
            self.scheduler.fast_path.had_job(took_ms, work_ms)
        self.timings.note(batch, results, (watched.began, collected, time.monotonic()), seconds)

    def _give_up(self, watched: RunningBatch, error: Exception) -> None:
        """Give up a micro-batch that failed or was cancelled, unless it was meanwhile."""
        if self.scheduler.stopping or self.scheduler.current(self.name) is not watched.batch:
            return
        failure = watched.failure(error)
        said = "no longer needed" if failure is None else failure.message
        extra = {"lane": self.name, "step": watched.batch.step, "cause": said}
        log.warning("a micro-batch failed", extra=extra, exc_info=_is_ours(error))
        self.scheduler.abandon(self.name, failure)


def _is_ours(error: Exception) -> bool:
    """Whether a failure comes from this process; for Spark's, the cause is enough."""
    return not isinstance(error, Py4JError | PySparkException | SlackwaterError)
