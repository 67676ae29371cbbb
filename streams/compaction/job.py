"""Merges on Spark: runs `streams.compaction.merge_task` by (collection, bucket).

    cells    (merge, pieces)                         one row for each few megabytes of chunks
      read   (merge, bucket, updates, errors)        fetched, consolidated, split by row hash
      shuffle by (merge, bucket)
      write  (merge, bucket, refs)                   consolidated once more, written as chunks,
                                                     staged in the log

The driver collects references only and submits one Replace per merge, so a task may be retried,
and a zombie task may write twice: that leaves orphans. Memory is bounded by one bucket per
task. A merge that fails in a task does not affect the others: its error is returned as a row.

Written chunks are protected from collectors for the whole job (`streams.compaction.staging`).
"""

import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streams.class_archives import quoted, with_archive
from streams.compaction.consolidation import ERRORS, Part, split, together
from streams.compaction.merge_execution import (
    Failed,
    Result,
    attempt,
    log_failure,
    lost_or_corrupt,
    reason_of,
    swap,
)
from streams.compaction.merge_task import Limits, Task, read_parts, task_of, write_part
from streams.compaction.plan import Merge
from streams.compaction.read_ahead import Wanted
from streams.compaction.staging import Staging, announce, renewed, staging_of
from streams.errors import Corrupt
from streams.ids import CollectionId
from streams.java import java_for_spark, own_interrupt
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.log import ChunkRef
from streams.kafka.settings import ClientSettings
from streams.storage.client.shards import Shards, fresh_uuid
from streams.trace.kernel.kernel import Kernel

LIMITS = Limits(bucket_bytes=64 << 20, fetch_bytes=4 << 20)
"""Limits below those in one process: tasks share a machine's memory, and rows cross the JVM."""

CELLS = "merge int, pieces binary"
PARTS = "merge int, bucket int, updates binary, errors binary, failure string"
WRITTEN = "merge int, bucket int, refs binary, failure string"

SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of a JVM on this machine: it moves rows between tasks, and ends with its job."""

FAILURE = -1
"""The bucket of a row that carries an error."""

Written = tuple[ChunkRef, ...] | str
"""The chunks of a merge, or its error."""

Tasks = Mapping[int, Task]
Stages = Mapping[int, Staging]
"""Where the chunks of each merge are staged."""

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class SparkWorker:
    """Merges on a Spark cluster whose executors have this package and reach the brokers."""

    shards: Shards
    session: SparkSession
    kafka: ClientSettings
    limits: Limits = field(default=LIMITS)
    new_id: Callable[[], str] = fresh_uuid

    def compact_all(self, wanted: Sequence[Wanted]) -> list[Result | Failed]:
        """Execute merges, all in one Spark job."""
        tasks: dict[int, Task] = {}
        stages: dict[int, Staging] = {}
        refused: dict[int, Failed] = {}
        for number, (collection, merge) in enumerate(wanted):
            try:
                task = task_of(self.shards, collection, merge, self.limits)
                stages[number] = staging_of(self.shards, collection, self.new_id())
            except Exception as error:  # noqa: BLE001  of this merge; the others continue
                log_failure(collection, error)
                refused[number] = Failed(collection, reason_of(error))
            else:
                tasks[number] = task
        staged = [(task.collection, stages[number].name) for number, task in tasks.items()]
        with renewed(self.shards, staged):
            try:
                written = gathered(self._run(tasks, stages))
            except PySparkException as error:
                why = self.kafka.masked(f"spark: {error}")
                return [Failed(collection, why) for collection, _ in wanted]
            return [
                refused.get(number)
                or attempt(self._finisher(written.get(number, ())), *merge_arguments)
                for number, merge_arguments in enumerate(wanted)
            ]

    def _run(self, tasks: Tasks, stages: Stages) -> list[pa.RecordBatch]:
        """Return the rows of `WRITTEN`."""
        cells = [
            (number, pickle.dumps(group))
            for number, task in tasks.items()
            for group in task.groups
        ]
        if not cells:
            return []
        headless = {number: replace(task, groups=()) for number, task in tasks.items()}
        width = self.session.sparkContext.defaultParallelism
        frame: DataFrame = self.session.createDataFrame(cells, CELLS).repartition(width)
        parts = frame.mapInArrow(reader(headless, self.kafka), PARTS)
        placed = parts.repartition(width, "merge", "bucket").groupBy("merge", "bucket")
        done = placed.applyInArrow(writer(headless, stages, self.kafka), WRITTEN)
        batches: list[pa.RecordBatch] = done.toArrow().to_batches()
        return batches

    def _finisher(self, written: Written) -> Callable[[CollectionId, Merge], Result]:
        """Return the step that finishes a merge, given what its tasks wrote or its error."""

        def finish(collection: CollectionId, merge: Merge) -> Result:
            if not isinstance(written, str):
                return swap(self.shards, collection, merge, written)
            return lost_or_corrupt(self.shards, collection, merge, Corrupt(written))

        return finish


@contextmanager
def session(master: str, name: str = "slackwater compact") -> Iterator[SparkSession]:
    """Return a session for a job on `master`, or by Spark's own configuration.

    On this machine its workers run this process's Python; on a cluster that of
    `PYSPARK_PYTHON`, which must have this package installed.
    """
    builder = SparkSession.builder.appName(name)
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.master(master) if master else builder
    with java_for_spark() as java:
        if master.startswith("local"):
            options = quoted(with_archive(java, SHORT_LIVED))
            builder = builder.config("spark.driver.extraJavaOptions", options)
        with own_interrupt():
            session_ = builder.getOrCreate()
        try:
            context = session_.sparkContext
            context.setLogLevel("ERROR")
            if context.master.startswith("local"):
                context.pythonExec = sys.executable
            yield session_
        finally:
            session_.stop()


def gathered(rows: Sequence[pa.RecordBatch]) -> dict[int, Written]:
    """Return the written chunks of each merge, in the order of the buckets."""
    buckets: dict[int, dict[int, tuple[ChunkRef, ...]]] = {}
    failures: dict[int, Written] = {}
    for row in (row for batch in rows for row in batch.to_pylist()):
        if row["failure"] is not None:
            failures[row["merge"]] = str(row["failure"])
        else:
            refs = pickle.loads(row["refs"])  # noqa: S301  our own task's
            buckets.setdefault(row["merge"], {})[row["bucket"]] = refs
    written: dict[int, Written] = {
        number: tuple(ref for bucket in sorted(bucket_rows) for ref in bucket_rows[bucket])
        for number, bucket_rows in buckets.items()
    }
    return {**written, **failures}


def reader(tasks: Tasks, kafka: ClientSettings) -> Callable[[Batches], Batches]:
    """Return the function of a task of the first stage."""

    def read(cells: Batches) -> Batches:
        for batch in cells:
            for cell in batch.to_pylist():
                number = cell["merge"]
                pieces = pickle.loads(cell["pieces"])  # noqa: S301  our own driver's
                yield from read_cell(number, replace(tasks[number], groups=(pieces,)), kafka)

    return read


def read_cell(number: int, task: Task, kafka: ClientSettings) -> Batches:
    """Return the rows of `PARTS` for a cell."""
    try:
        fetch = broker(kafka).chunks.fetch
        for part in read_parts(fetch, task, 0, LIMITS.bucket_bytes, kernel()):
            yield parts_rows(
                [
                    (number, bucket, packed(cell.updates), packed(cell.errors), None)
                    for bucket, cell in enumerate(split(part, task.buckets, kernel()))
                    if cell.rows
                ]
            )
    except Exception as error:  # noqa: BLE001  a task that raises ends the job, and with it all merges
        yield parts_rows([(number, FAILURE, None, None, reason_of(error))])


PartsRow = tuple[int, int, bytes | None, bytes | None, str | None]


def parts_rows(rows: Sequence[PartsRow]) -> pa.RecordBatch:
    """Return rows of `PARTS`."""
    schema = pa.schema(
        [
            ("merge", pa.int32()),
            ("bucket", pa.int32()),
            ("updates", pa.binary()),
            ("errors", pa.binary()),
            ("failure", pa.utf8()),
        ]
    )
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def writer(
    tasks: Tasks, stages: Stages, kafka: ClientSettings
) -> Callable[[pa.Table], pa.Table]:
    """Return the function of a task of the second stage, for the parts of one bucket."""

    def write(parts: pa.Table) -> pa.Table:
        number, bucket = parts.column("merge")[0].as_py(), parts.column("bucket")[0].as_py()
        if bucket == FAILURE:
            return written_row(number, bucket, None, parts.column("failure")[0].as_py())
        task = tasks[number]
        try:
            unpacked_parts = [
                Part(unpacked(updates, task.schema), unpacked(errors, ERRORS))
                for updates, errors in zip(
                    parts.column("updates"), parts.column("errors"), strict=True
                )
            ]
            whole = together(unpacked_parts, task.schema, kernel())
            refs = write_part(broker(kafka).chunks, task, whole)
            announce(broker(kafka).logs, stages[number], refs)
        except Exception as error:  # noqa: BLE001  as above
            return written_row(number, bucket, None, reason_of(error))
        return written_row(number, bucket, pickle.dumps(refs), None)

    return write


def written_row(number: int, bucket: int, refs: bytes | None, failure: str | None) -> pa.Table:
    """Return one row of `WRITTEN`."""
    return pa.table(
        {
            "merge": pa.array([number], pa.int32()),
            "bucket": pa.array([bucket], pa.int32()),
            "refs": pa.array([refs], pa.binary()),
            "failure": pa.array([failure], pa.utf8()),
        }
    )


def packed(rows: pa.RecordBatch) -> bytes:
    """Serialise a record batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue().to_pybytes())


def unpacked(value: pa.Scalar, schema: pa.Schema) -> pa.RecordBatch:
    """Deserialise what `packed` returned, cast to this schema."""
    with pa.ipc.open_stream(value.as_buffer()) as stream:
        rows = stream.read_next_batch()
    return pa.RecordBatch.from_arrays(rows.columns, schema=schema)


@cache
def kernel() -> Kernel:
    """Return this worker process's kernel."""
    return Kernel()


@cache
def broker(kafka: ClientSettings) -> KafkaBroker:
    """Return this worker process's connections."""
    return KafkaBroker(kafka)
