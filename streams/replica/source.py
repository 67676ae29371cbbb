"""The data source `slackwater`: how a lane's streaming query gets its work.

An offset is `{seq, steps: {dataflow: [lower, upper]}}`: the number of a micro-batch and just
the dataflows stepped in it. All decisions are the scheduler's, in the driver; the process that
Spark runs the reader in only passes questions on. `read` runs in the tasks and is round 0.

Invariants: `latestOffset` returns `start` unchanged when there is no news; the work of a
micro-batch follows from the end offset alone, and lies in a descriptor that is written before
the offset is given out. `commit` is ignored: it arrives only with the next trigger.

Spark imports this module in several short-lived processes whenever a query starts, and gives
each ten seconds to come up: it must import nothing heavy, so what tasks need is imported in
the tasks alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from streams.replica.door import ask

if TYPE_CHECKING:
    import pyarrow as pa

Offset = dict[str, Any]  # type: ignore[explicit-any]  # JSON, as Spark wants it

SCHEMA = StructType([StructField("bucket", IntegerType()), StructField("blob", BinaryType())])
NAME = "slackwater"


@dataclass
class Task(InputPartition):  # type: ignore[misc,explicit-any]  # Spark's class has no types
    """One task's share of a micro-batch: which descriptor, and which part of it."""

    state: str
    step: str
    index: int


class SlackwaterSource(DataSource):  # type: ignore[misc]  # Spark's class has no types
    """Options: `socket` (the scheduler's), `lane` and `state` (the state directory)."""

    @classmethod
    def name(cls) -> str:
        """What `spark.readStream.format` calls it."""
        return NAME

    def schema(self) -> StructType:
        """Packed rows."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> "LaneReader":  # noqa: ARG002, N802  Spark's
        """The reader of one lane."""
        options = self.options
        return LaneReader(options["socket"], options["lane"], options["state"])


class LaneReader(DataSourceStreamReader):  # type: ignore[misc]  # Spark's class has no types
    """Passes Spark's questions on to the scheduler."""

    def __init__(self, socket: str, lane: str, state: str) -> None:
        self._socket, self._lane, self._state = socket, lane, state

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's
        """Before the first micro-batch: nothing was stepped."""
        return {"seq": 0, "steps": {}}

    def latestOffset(self, start: Offset, limit: object) -> Offset:  # noqa: ARG002, N802  Spark's
        """What to step next; waits for a while, then gives `start` back."""
        found = ask(self._socket, {"ask": "latest", "lane": self._lane, "start": start})
        assert isinstance(found, dict)
        return found

    def partitions(self, start: Offset, end: Offset) -> list[Task]:  # noqa: ARG002  Spark's
        """The tasks of the micro-batch that `end` names; none when it is gone."""
        found = ask(self._socket, {"ask": "tasks", "lane": self._lane, "seq": end["seq"]})
        assert isinstance(found, list)
        step, tasks = found
        return [Task(self._state, step, index) for index in range(tasks)]

    def read(self, partition: Task) -> Iterator["pa.RecordBatch"]:
        """Round 0, in a task."""
        from streams.replica.stage import start_round  # noqa: PLC0415  see the module's header

        return start_round(partition.state, partition.step, partition.index)
