"""A dataflow stepped by Spark: the rounds of a replica's micro-batches, in Spark's workers.

    SparkDataflow(dataflow, directory).step(interval, imports)

does what `streams.operators.local` does in a loop. A step is a micro-batch with a descriptor:
its tasks load chunks, run the rounds (`streams.replica.tasks.rounds`) and write chunks, and of
state only the names of run files come back. Kafka alone is missing: chunks are files.

The session is the active one, whose workers must have this package and reach `directory`; where
none is active, one is started on this machine and kept until the process ends.
"""

import atexit
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from schemas import chunk
from streams.errors import SlackwaterError
from streams.ids import CollectionId, Topic
from streams.kafka.log import ChunkRef
from streams.plan import json as plan_json
from streams.plan.physical import Dataflow
from streams.progress import Interval
from streams.replica.crash_injection import Crash
from streams.replica.driver.checkpoint_store import CheckpointStore
from streams.replica.driver.task_inputs import TaskInputs
from streams.replica.spark.rounds import Rounds
from streams.replica.spark.session import SparkSettings, spark_session
from streams.replica.tasks import report, rounds
from streams.replica.tasks.descriptor import ChunkLoad, Descriptor, Output, Runs, Share
from streams.replica.tasks.exchange_blobs import SCHEMA, blobs, peek
from streams.replica.tasks.report import Result
from streams.storage.read import reader
from streams.storage.read.reader import Piece
from streams.temporary import temporary_directory
from streams.testing.chunk_files import ChunkFiles, Files

BLOBS = "bucket int, blob binary"
CHUNKS, PLAN = "chunks", "plan"
TASKS = 2
"""The tasks of round 0: each loads a half of every import."""

VIEW, TOPIC = CollectionId("view"), Topic("view")


class StepFailed(SlackwaterError):
    """A task of a step failed."""


def current_session() -> SparkSession:
    """The active session, or one of our own."""
    return SparkSession.getActiveSession() or _own_session()


@cache
def _own_session() -> SparkSession:
    stack = ExitStack()
    atexit.register(stack.close)
    directory = stack.enter_context(temporary_directory("slackwater-"))
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
    inputs: TaskInputs = field(init=False)
    rounds: Rounds = field(init=False)
    chunks: ChunkFiles = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = CheckpointStore(self.directory).inputs
        self.inputs.put_plan(PLAN, plan_json.dumps(self.dataflow))
        (self.directory / CHUNKS).mkdir()
        self.rounds = Rounds(self.session, self.inputs.place, self.buckets)
        self.chunks = Files(self.directory / CHUNKS).chunks()

    def step(
        self, interval: Interval, imports: Mapping[int, pa.Table]
    ) -> tuple[list[pa.Table], list[pa.Table]]:
        """Step over an interval; the updates of the output, and of the errors.

        Errors: StepFailed.
        """
        result = self._run(self._described(interval, imports))
        if result.failure is not None:
            raise StepFailed(result.failure)
        self.runs = report.merge(self.dataflow, self.runs, result)
        pieces = [Piece(ref, interval.lower, interval.upper) for ref in result.chunks]
        loaded = [reader.load(self.chunks, TOPIC, [piece]) for piece in pieces]
        outputs = [updates for updates, _ in loaded if updates.num_rows]
        return outputs, [errors for _, errors in loaded if errors.num_rows]

    def _described(self, interval: Interval, imports: Mapping[int, pa.Table]) -> Descriptor:
        names = tuple(f"c{number}" for number in range(len(self.dataflow.types[-1])))
        share = Share(
            dataflow=VIEW,
            plan=PLAN,
            interval=interval,
            runs=self.runs,
            output=Output(TOPIC, names, {}),
        )
        return Descriptor(
            step=uuid.uuid4().hex,
            buckets=self.buckets,
            clients=Files(self.directory / CHUNKS),
            shares={VIEW: share},
            tasks=tuple(tuple(self._loads(half, interval, imports)) for half in range(TASKS)),
            crash=Crash(),
            merge_factor=self.merge_factor,
        )

    def _loads(
        self, half: int, interval: Interval, imports: Mapping[int, pa.Table]
    ) -> Iterator[ChunkLoad]:
        for index, table in imports.items():
            middle = table.num_rows // TASKS
            part = table[middle:] if half else table[:middle]
            pieces = [Piece(ref, interval.lower, interval.upper) for ref in self._stored(part)]
            if pieces:
                yield ChunkLoad(VIEW, index, TOPIC, tuple(pieces))

    def _stored(self, updates: pa.Table) -> tuple[ChunkRef, ...]:
        names = tuple(updates.column_names[: -len(("time", "diff"))])
        bodies = chunk.encode(updates, names) if updates.num_rows else ()
        return self.chunks.write(TOPIC, bodies, {})

    def _run(self, batch: Descriptor) -> Result:
        """All rounds, in one action of Spark's; what the tasks report."""
        self.inputs.put_step(batch)
        numbers = pa.table([range(TASKS), [b""] * TASKS], schema=SCHEMA)
        tasks = self.session.createDataFrame(numbers).repartitionById(TASKS, "bucket")
        start = partial(start_round, self.inputs.place, batch.step)
        frame = self.rounds.after(tasks.mapInArrow(start, BLOBS), self.dataflow.depth)
        collected = blobs(frame.toArrow().to_batches())
        return report.gather(peek(blob) for _, blob in collected).get(VIEW, Result())


def start_round(
    place: str, step: str, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Round 0 of the tasks whose numbers come, in a worker."""
    for number, _ in blobs(numbers):
        yield from rounds.start_round(place, step, number)
