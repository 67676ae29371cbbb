"""The Spark data source `slackwater`: gives a lane's streaming query its work.

In a lane with a watermark the rows carry an event time, too
(`streams.replica.tasks.rounds.timed_start_round`).

An offset is `{seq, steps: {dataflow: [lower, upper]}}`: the number of a micro-batch and the
dataflows stepped in it. The scheduler in the driver makes all decisions; the process in which
Spark runs the reader only forwards requests. `read` runs in the tasks and is round 0.

Invariants: `latestOffset` returns `start` unchanged if there is no work; the work of a
micro-batch follows from the end offset alone, and is in a descriptor that is written before the
offset is returned. `commit` is ignored: it arrives only with the next trigger.

Spark imports this module in several short-lived processes whenever a query starts, and gives
each ten seconds to start: it must import nothing heavy, so what tasks need is imported in the
tasks only.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    StructField,
    StructType,
    TimestampType,
)

from streams.replica.spark.scheduler_rpc import ask

if TYPE_CHECKING:
    import pyarrow as pa

Offset = dict[str, Any]  # type: ignore[explicit-any]  # JSON, as Spark wants it

SCHEMA = StructType([StructField("bucket", IntegerType()), StructField("blob", BinaryType())])
TIMED_SCHEMA = StructType([*SCHEMA.fields, StructField("event_time", TimestampType())])
NAME = "slackwater"


@dataclass
class TaskPartition(InputPartition):  # type: ignore[misc,explicit-any]  # Spark's class has no types
    """One task's share of a micro-batch: the descriptor, and the index in it."""

    place: str = field(repr=False)
    step: str
    index: int


class SlackwaterSource(DataSource):  # type: ignore[misc]  # Spark's class has no types
    """Options: `socket` (the scheduler's) and `lane`.

    With `watermark` the rows carry an event time.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.readStream.format`."""
        return NAME

    def schema(self) -> StructType:
        """Packed rows."""
        return TIMED_SCHEMA if "watermark" in self.options else SCHEMA

    def streamReader(self, schema: StructType) -> "LaneReader":  # noqa: ARG002, N802  Spark's
        """Return the reader of one lane."""
        options = self.options
        timed = "watermark" in options
        return LaneReader(options["socket"], options["lane"], timed=timed)


class LaneReader(DataSourceStreamReader):  # type: ignore[misc]  # Spark's class has no types
    """Forwards Spark's requests to the scheduler."""

    def __init__(self, socket: str, lane: str, *, timed: bool = False) -> None:
        self._socket, self._lane, self._timed = socket, lane, timed

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's
        """Return the offset before the first micro-batch."""
        return {"seq": 0, "steps": {}}

    def latestOffset(self, start: Offset, limit: object) -> Offset:  # noqa: ARG002, N802  Spark's
        """Return the next offset; after a timeout without work, `start`."""
        answer = ask(self._socket, {"ask": "latest", "lane": self._lane, "start": start})
        assert isinstance(answer, dict)
        return answer

    def partitions(self, start: Offset, end: Offset) -> list[TaskPartition]:  # noqa: ARG002  Spark's
        """Return the tasks of the micro-batch that `end` names; none if it is gone."""
        answer = ask(self._socket, {"ask": "tasks", "lane": self._lane, "seq": end["seq"]})
        assert isinstance(answer, list)
        place, step, tasks = answer
        return [TaskPartition(place, step, index) for index in range(tasks)]

    def read(self, partition: TaskPartition) -> Iterator["pa.RecordBatch"]:
        """Run round 0, in a task."""
        from streams.replica.tasks import rounds  # noqa: PLC0415  see the module's header

        place = (partition.place, partition.step, partition.index)
        return rounds.timed_start_round(*place) if self._timed else rounds.start_round(*place)
