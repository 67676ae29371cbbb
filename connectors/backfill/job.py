"""A backfill as a Spark job: its tasks read chunks, shuffle rows by key range, write ranges.

    cells     (binding, pieces)                    one row for each few megabytes of chunks
      read    (gap, binding, updates, errors)      by the hash of keys
      shuffle by gap                               kept on disk, for two jobs:
      check   (binding, reason)                    bindings that have no contents
      write   (gap, rows, failure)                 one session of the endpoint and one commit

An accumulator has the rows of the gaps whose tasks have ended; they are reported meanwhile.

A task that fails of what may pass, or since another attempt has taken its range over, raises:
Spark tries it again, or goes on with the other attempt. Any other failure is returned, for
trying again is of no use. Memory holds what `connectors.runtime.spill` needs for a range.
"""

import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import Accumulator, StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from connectors.backfill.outcome import Outcome, Progress
from connectors.backfill.tasks import Accessing, Cell, Plan, Rows, read, stalled, write
from connectors.runtime.error_rows import NO_ERRORS
from connectors.runtime.runner import can_pass
from connectors.runtime.spill import COMPRESSED
from connectors.sql.fence import Fenced
from connectors.transport.errors import causes
from streams.errors import Determinate, InvalidUsage, SlackwaterError
from streams.periodic import periodically
from streams.trace.kernel.kernel import Kernel
from streams.trace.updates import flatten

CELLS = "cell binary"
ROWS = "gap int, binding int, updates binary, errors binary"
STALLED = "binding int, reason string"
"""The binding `MARKER`: no binding stalls, and the job fails."""
DONE = "gap int, rows bigint, failure string"
MARKER = -1
"""The binding of a row that says that there is a gap; it may have no others."""
BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
BATCH_ROWS = 16
"""Rows that go from the JVM to a task together: each is a few megabytes."""
LOOK_S = 0.2
"""How often the progress is looked at."""

Batches = Iterator[pa.RecordBatch]


def run_in(
    opened: AbstractContextManager[SparkSession],
    accessing: Accessing,
    plan: Plan,
    cells: Sequence[Cell],
    progress: Progress,
) -> Outcome:
    """Write all gaps in a session that is opened for it. Errors: as `run`."""
    try:
        with opened as session:
            return run(session, accessing, plan, cells, progress)
    except (PySparkException, Py4JError, OSError) as error:
        raise Determinate(f"spark: {reason(str(error))}") from error


def run(
    session: SparkSession,
    accessing: Accessing,
    plan: Plan,
    cells: Sequence[Cell],
    progress: Progress,
) -> Outcome:
    """Write all gaps, of the bindings that have contents.

    Errors: InvalidUsage if a gap cannot be written, Determinate if the job failed.
    """
    before = session.conf.get(BATCH)
    session.conf.set(BATCH, str(BATCH_ROWS))
    try:
        with placed(session, accessing, plan, cells) as rows:
            stalls = stalls_of(rows.mapInArrow(checker(plan), STALLED).toArrow())
            if MARKER in stalls:
                raise InvalidUsage(stalls[MARKER])
            counts = session.sparkContext.accumulator({}, RowCounts())
            writing = writer(plan.without(stalls), accessing, counts)
            with reporting(counts, progress):
                done: pa.Table = rows.mapInArrow(writing, DONE).toArrow()
    except (PySparkException, Py4JError) as error:
        raise Determinate(f"spark: {reason(str(error))}") from error
    finally:
        session.conf.set(BATCH, before or "")
    failures = [text for text in done.column("failure").to_pylist() if text is not None]
    if failures:
        raise InvalidUsage(failures[0])
    return Outcome(sum(done.column("rows").to_pylist()), stalls)


@contextmanager
def placed(
    session: SparkSession, accessing: Accessing, plan: Plan, cells: Sequence[Cell]
) -> Iterator[DataFrame]:
    """Rows of the cells, those of a gap in one partition; on disk while the block runs."""
    pickled = [(pickle.dumps(cell),) for cell in [None, *cells]]
    frame = session.createDataFrame(pickled, CELLS)
    width = max(1, session.sparkContext.defaultParallelism)
    rows = frame.repartition(width).mapInArrow(reader(plan, accessing), ROWS)
    by_gap = rows.repartitionById(len(plan.gaps), "gap").persist(StorageLevel.DISK_ONLY)
    try:
        yield by_gap
    finally:
        by_gap.unpersist()


def stalls_of(rows: pa.Table) -> Mapping[int, str]:
    """The stalled bindings, each with the reason in one of its gaps, the same in all runs."""
    pairs = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return dict(sorted(pairs, reverse=True))


class RowCounts:
    """How an accumulator adds: the rows of each gap; an attempt that repeats one adds none."""

    def zero(self, value: dict[int, int]) -> dict[int, int]:
        """None of any gap."""
        del value
        return {}

    def addInPlace(  # noqa: N802  Spark's name
        self, left: dict[int, int], right: dict[int, int]
    ) -> dict[int, int]:
        """A new value, since a thread reads the old one."""
        gaps = left.keys() | right.keys()
        return {gap: max(left.get(gap, 0), right.get(gap, 0)) for gap in gaps}


@contextmanager
def reporting(counts: "Accumulator[dict[int, int]]", progress: Progress) -> Iterator[None]:
    """Report the gaps that are written while the block runs; all of them at its end."""
    reported = 0

    def report() -> None:
        nonlocal reported
        rows = counts.value
        if len(rows) > reported:
            reported = len(rows)
            progress(reported, sum(rows.values()))

    with periodically(report, LOOK_S, name="progress", warning="progress not reported"):
        yield
    report()


def reason(text: str) -> str:
    """The cause of a failed job: the last line before the stack of the JVM."""
    lines = text.partition("\n\tat ")[0].strip().splitlines()
    return lines[-1].strip() if lines else "no reason given"


def reader(plan: Plan, accessing: Accessing) -> Callable[[Batches], Batches]:
    """The function of a task of the first stage."""

    def run_task(cells: Batches) -> Batches:
        with accessing() as access:
            for batch in cells:
                for text in batch.column("cell").to_pylist():
                    cell: Cell | None = pickle.loads(text)  # noqa: S301  our own driver's
                    if cell is None:
                        yield markers(len(plan.gaps))
                        continue
                    yield from map(packed, read(plan, cell, access.load, kernel()))

    return run_task


def checker(plan: Plan) -> Callable[[Batches], Batches]:
    """The function of a task that looks for stalled bindings in the rows of one gap."""

    def run_task(batches: Batches) -> Batches:
        for number, rows in gaps_in(batches):
            try:
                reasons = stalled(plan, number, rows, kernel())
            except SlackwaterError as error:
                if can_pass(error):
                    raise
                reasons = {MARKER: str(error)}
            columns = {
                "binding": pa.array(list(reasons.keys()), pa.int32()),
                "reason": pa.array(list(reasons.values()), pa.utf8()),
            }
            yield pa.RecordBatch.from_pydict(columns)

    return run_task


def writer(
    plan: Plan, accessing: Accessing, counts: "Accumulator[dict[int, int]]"
) -> Callable[[Batches], Batches]:
    """The function of a task that writes the rows of one gap."""

    def run_task(batches: Batches) -> Batches:
        for number, rows in gaps_in(batches):
            try:
                with accessing() as access:
                    count = write(plan, number, rows, access.driver, kernel())
            except SlackwaterError as error:
                is_fenced = any(isinstance(cause, Fenced) for cause in causes(error))
                if is_fenced or can_pass(error):
                    raise
                yield done_row(number, 0, str(error))
                continue
            if plan.gaps[number].bindings:
                counts.add({number: count})
            yield done_row(number, count, None)

    return run_task


def gaps_in(batches: Batches) -> Iterator[tuple[int, Iterator[Rows]]]:
    """The gap of a partition, with its rows; none if the partition is empty."""
    first = next(batches, None)
    if first is not None:
        every = itertools.chain([first], batches)
        yield (
            first.column("gap")[0].as_py(),
            (row for batch in every for row in unpacked(batch)),
        )


def markers(count: int) -> pa.RecordBatch:
    """A row of `ROWS` for each gap."""
    nothing = pa.nulls(count, pa.binary())
    numbers = pa.array(range(count), pa.int32())
    names = ["gap", "binding", "updates", "errors"]
    bindings = pa.array([MARKER] * count, pa.int32())
    return pa.RecordBatch.from_arrays([numbers, bindings, nothing, nothing], names=names)


def packed(rows: Rows) -> pa.RecordBatch:
    """A row of `ROWS`."""
    columns = {
        "gap": pa.array([rows.gap], pa.int32()),
        "binding": pa.array([rows.binding], pa.int32()),
        "updates": pa.array([blob(pa.Table.from_batches([rows.updates]))], pa.binary()),
        "errors": pa.array([blob(rows.errors) if rows.errors.num_rows else None], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


def unpacked(batch: pa.RecordBatch) -> Iterator[Rows]:
    """The inverse of `packed`, without marker rows."""
    columns = [column.to_pylist() for column in batch.columns]
    for gap, binding, rows, wrong in zip(*columns, strict=True):
        if binding != MARKER:
            updates = table_of(rows)
            errors = NO_ERRORS if wrong is None else table_of(wrong)
            yield Rows(gap, binding, flatten([updates], updates.schema), errors)


def blob(table: pa.Table) -> bytes:
    """A table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=COMPRESSED) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def table_of(data: bytes) -> pa.Table:
    """The inverse of `blob`."""
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()


def done_row(gap: int, rows: int, failure: str | None) -> pa.RecordBatch:
    """A row of `DONE`."""
    columns = {
        "gap": pa.array([gap], pa.int32()),
        "rows": pa.array([rows], pa.int64()),
        "failure": pa.array([failure], pa.utf8()),
    }
    return pa.RecordBatch.from_pydict(columns)


@cache
def kernel() -> Kernel:
    """This worker process's kernel."""
    return Kernel()
