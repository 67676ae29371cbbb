"""A dataflow stepped by Spark: the engine's functions in its workers, over its exchange.

    SparkDataflow(dataflow, directory).step(interval, imports)

does what `streams.operators.local` does in a loop, and as a replica does it: a round is a
`mapInArrow` over rows (bucket, blob), a blob is a table for one port of one node, and of state
only the names of run files come back. Kafka alone is missing: the imports' updates come from
the driver, and the output returns to it.

The session is the active one, whose workers must have this package and reach `directory`; where
none is active, one is started on this machine and kept until the process ends.
"""

import atexit
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.sql import SparkSession

from streams.ids import CollectionId
from streams.operators import engine
from streams.operators.context import Context, Emitted
from streams.plan import json as plan_json
from streams.plan.physical import Dataflow
from streams.progress import Interval
from streams.replica.spark.session import SparkSettings, spark_session
from streams.replica.tasks import report
from streams.replica.tasks.descriptor import Runs
from streams.replica.tasks.exchange_blobs import (
    SCHEMA,
    Head,
    Kind,
    Message,
    blobs,
    pack,
    rows,
    unpack,
)
from streams.trace.kernel.kernel import Kernel

BLOBS = "bucket int, blob binary"
PLAN = "plan"

OUTPUT, ERRORS = "output", "errors"
DRIVER = -1
"""The level of what no round takes: it passes through to the driver."""

VIEW = CollectionId("view")

Batches = Iterable[pa.RecordBatch]
Sent = tuple[int, bytes]
"""A blob and the bucket it goes to."""


def current_session() -> SparkSession:
    """The active session, or one of our own."""
    return SparkSession.getActiveSession() or _own_session()


@cache
def _own_session() -> SparkSession:
    stack = ExitStack()
    atexit.register(stack.close)
    directory = stack.enter_context(TemporaryDirectory(prefix="slackwater-"))
    return stack.enter_context(spark_session(SparkSettings(), Path(directory)))


@dataclass(slots=True)
class SparkDataflow:
    """A dataflow with its state, in Spark's workers and over `buckets` buckets."""

    dataflow: Dataflow
    directory: Path
    buckets: int = 2
    merge_factor: int = 2
    session: SparkSession = field(default_factory=current_session)
    runs: Mapping[int, Runs] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.directory / PLAN).write_text(plan_json.dumps(self.dataflow))

    def step(
        self, interval: Interval, imports: Mapping[int, pa.Table]
    ) -> tuple[list[pa.Table], list[pa.Table]]:
        """Step over an interval; the updates of the output, and of the errors."""
        sent = [*_shares(imports), *self._wakes(interval)]
        if not sent:
            return [], []
        messages = self._run(interval, pa.Table.from_batches(rows(sent), SCHEMA))
        result = report.gather(
            message.head for message in messages if message.head.kind == "report"
        )
        if VIEW in result:
            self.runs = report.merge(self.dataflow, self.runs, result[VIEW])
        return _of(messages, OUTPUT), _of(messages, ERRORS)

    def _run(self, interval: Interval, sent: pa.Table) -> list[Message]:
        """All rounds, in one action of Spark's; what came to the driver."""
        means = Means(str(self.directory), interval, self.buckets, self.merge_factor, self.runs)
        frame = self.session.createDataFrame(sent)
        rounds = [partial(start_round, means)]
        levels = range(1, self.dataflow.depth + 1)
        rounds += [partial(advance_round, level, means) for level in levels]
        for each in rounds:
            exchanged = frame.repartitionById(self.buckets, "bucket")
            frame = exchanged.mapInArrow(each, BLOBS)
        return [unpack(blob) for _, blob in blobs(frame.toArrow().to_batches())]

    def _wakes(self, interval: Interval) -> Iterator[Sent]:
        """At birth every bucket is advanced at every level, later where something is due."""
        for bucket in range(self.buckets):
            runs = self.runs.get(bucket, {})
            due = engine.due(self.dataflow, runs, interval.upper)
            for level in range(1, self.dataflow.depth + 1):
                if interval.as_of or level in due:
                    yield bucket, pack(_head("wake", bucket, level))


@dataclass(frozen=True, slots=True)
class Means:
    """What the tasks of a step have to know; pickled to them."""

    directory: str
    interval: Interval
    buckets: int
    merge_factor: int
    runs: Mapping[int, Runs]
    """By bucket, the whole state before the step."""

    @property
    def plan(self) -> Dataflow:
        """The dataflow."""
        return _plan((Path(self.directory) / PLAN).read_text())

    @property
    def context(self) -> Context:
        """Where to evaluate and to keep runs; their names are never used twice."""
        where = Path(self.directory)
        return Context(where, _kernel(), _new_name, merge_factor=self.merge_factor)


def start_round(means: Means, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Round 0, in a worker: level 0 over each share of the imports' updates."""
    shares: dict[int, dict[int, pa.Table]] = {}
    passed: list[Sent] = []
    for bucket, blob in blobs(batches):
        message = unpack(blob)
        if message.head.level:
            passed.append((bucket, blob.to_pybytes()))
        else:
            table = message.table.replace_schema_metadata()
            shares.setdefault(bucket, {})[message.head.node] = table
    for imports in shares.values():
        emitted = engine.start(
            means.plan, imports, means.interval, means.buckets, means.context
        )
        passed += _sent(emitted)
    return rows(passed)


def advance_round(level: int, means: Means, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Round `level`, in a worker: over everything that came to its buckets."""
    inboxes: dict[int, dict[tuple[int, str], list[pa.Table]]] = {}
    passed: list[Sent] = []
    for bucket, blob in blobs(batches):
        message = unpack(blob)
        head = message.head
        if head.level != level:
            passed.append((bucket, blob.to_pybytes()))
            continue
        inbox = inboxes.setdefault(bucket, {})
        if head.kind == "update":
            table = message.table.replace_schema_metadata()
            inbox.setdefault((head.node, head.port), []).append(table)
    plan = means.plan
    for bucket, inbox in inboxes.items():
        emitted, after = engine.advance(
            plan,
            level,
            bucket,
            inbox,
            means.runs.get(bucket, {}),
            means.interval,
            means.context,
            buckets=means.buckets,
        )
        passed += [*_sent(emitted), _told(level, bucket, after)]
    return rows(passed)


@cache
def _kernel() -> Kernel:
    return Kernel()


@cache
def _plan(text: str) -> Dataflow:
    return plan_json.loads(text)


def _new_name() -> str:
    return uuid.uuid4().hex


def _head(
    kind: Kind, bucket: int, level: int, node: int = 0, port: str = "", body: str = ""
) -> Head:
    return Head(
        kind=kind, step="", dataflow=VIEW, bucket=bucket,
        level=level, node=node, port=port, body=body,
    )  # fmt: skip


def _shares(imports: Mapping[int, pa.Table]) -> Iterator[Sent]:
    """The imports' updates in two halves, for two tasks of round 0."""
    for index, table in imports.items():
        middle = table.num_rows // 2
        for half, part in enumerate((table[:middle], table[middle:])):
            if part.num_rows:
                yield half, pack(_head("update", half, 0, index), part)


def _sent(emitted: Emitted) -> list[Sent]:
    """What a call of the engine made, as blobs."""
    sent = [
        (
            packet.bucket,
            pack(
                _head("update", packet.bucket, packet.level, packet.node, packet.port),
                packet.table,
            ),
        )
        for packet in emitted.packets
    ]
    ends = {OUTPUT: emitted.output, ERRORS: emitted.errors}
    sent += [
        (0, pack(_head("update", 0, DRIVER, port=port), table))
        for port, table in ends.items()
        if table is not None
    ]
    return sent


def _told(level: int, bucket: int, runs: Runs) -> Sent:
    """The state of a level's operators in a bucket, for the driver."""
    told = report.Report(
        level=level,
        bucket=bucket,
        runs=runs,
        chunks=(),
        rows_in=0,
        milliseconds=0.0,
    )
    return bucket, pack(_head("report", bucket, DRIVER, body=report.dumps(told)))


def _of(messages: Sequence[Message], port: str) -> list[pa.Table]:
    return [
        message.table.replace_schema_metadata()
        for message in messages
        if message.head.kind == "update" and message.head.port == port
    ]
