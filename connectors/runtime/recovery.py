"""The log of a task, for connectors that leave a checkpoint to the driver: a small table.

It holds one row: the Flow checkpoint of the last commit, and the connector's own checkpoint. A
session fences older sessions when it opens the log, so none of them can write to it. The log is
created only for a connector that needs it: the built-in connectors commit the checkpoint in the
transaction of the rows, which is a stronger guarantee.
"""

from dataclasses import dataclass

from streams.errors import Corrupt, InvalidUsage
from streams.ids import CollectionId
from streams.storage import small_table
from streams.storage.client.shards import Shards
from streams.storage.description import Description
from streams.storage.small_table import SmallTable

DESCRIPTION = Description((("flow", "BLOB"), ("driver", "BLOB")), kind="materialization")


@dataclass(frozen=True, slots=True)
class StoredCheckpoints:
    """Checkpoints: how far the endpoint is, and the connector's own; empty where none is."""

    flow: bytes = b""
    driver: bytes = b""


class LogTakenOver(InvalidUsage):
    """Another session of the task writes its log: this one must end."""


class RecoveryLog:
    """The log of a task, for one session."""

    def __init__(self, shards: Shards, task: str) -> None:
        self._task, self._kept = task, StoredCheckpoints()
        name = CollectionId(f"materialize.{task}")
        self._table = SmallTable(shards, name, DESCRIPTION)

    def open(self) -> StoredCheckpoints:
        """Fence older sessions off the log, if there is one; return the stored checkpoints.

        Errors: TakenOver; Corrupt, Determinate, Indeterminate.
        """
        if self._table.find():
            try:
                self._table.take_over()
            except small_table.TakenOver as error:
                raise self._taken_over(error) from error
            self._kept = self._stored()
        return self._kept

    def _stored(self) -> StoredCheckpoints:
        """What the log holds; nothing if it is empty. Errors: Corrupt."""
        rows = self._table.rows()
        match rows:
            case []:
                return StoredCheckpoints()
            case [(bytes(flow), bytes(driver))]:
                return StoredCheckpoints(flow, driver)
            case _:
                types = [tuple(type(value).__name__ for value in row) for row in rows[:3]]
                raise Corrupt(
                    f"task {self._task}: log: expected one row of two checkpoints, actual"
                    f" {len(rows)} of {types}: drop the log with 'slackwater materialize drop',"
                    " and the task's tables, to have them written again"
                )

    def write(self, checkpoints: StoredCheckpoints) -> None:
        """Keep the checkpoints of a commit. Errors: as `open`."""
        if checkpoints == self._kept:
            return
        try:
            if not self._table.is_owned:
                self._table.own()
            self._table.write([(checkpoints.flow, checkpoints.driver)])
        except small_table.TakenOver as error:
            raise self._taken_over(error) from error
        self._kept = checkpoints

    def drop(self) -> None:
        """Remove the log, once the task is to run no more. Errors: as `open`."""
        self._table.drop()

    def _taken_over(self, error: small_table.TakenOver) -> LogTakenOver:
        return LogTakenOver(
            f"task {self._task}: another session writes its log; this one must end: {error}"
        )
