"""The log of a task, for connectors that leave a checkpoint to the driver: a small collection.

It holds one row: the Flow checkpoint of the last commit, and the connector's own checkpoint. A
session takes its write capability over by setting the token, so no older session can write to
it. There is none as long as no connector needs it: those of ours keep the checkpoint in the
transaction of the rows, which is more.
"""

from dataclasses import dataclass

import pyarrow as pa

from streams.errors import InvalidUsage
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp
from streams.progress import frontier
from streams.storage.client.shards import Shards, fresh_uuid, write_capability
from streams.storage.description import Description
from streams.storage.log.events import Append, Downgrade, Part, system_capability
from streams.storage.log.outcomes import Appended, Downgraded
from streams.storage.log.state import CollectionState
from streams.storage.read.reader import load_stable
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import at, flatten

DESCRIPTION = Description((("flow", "BLOB"), ("driver", "BLOB")), kind="materialization")
SCHEMA = arrow_schema(DESCRIPTION.types)


@dataclass(frozen=True, slots=True)
class Kept:
    """Checkpoints: how far the endpoint is, and the connector's own; empty where none is."""

    flow: bytes = b""
    driver: bytes = b""


class TakenOver(InvalidUsage):
    """Another session of the task writes its log: this one must end."""


class RecoveryLog:
    """The log of a task, for one session."""

    def __init__(self, shards: Shards, task: str, kernel: Kernel) -> None:
        self._shards, self._kernel = shards, kernel
        self._task, self._token = task, fresh_uuid()
        self._id = CollectionId(f"materialize.{task}")
        self._kept: Kept | None = None
        self._is_ours = False

    def open(self) -> Kept:
        """Take the log over, if there is one; return what the sessions before have kept.

        Errors: TakenOver; Corrupt, Determinate, Indeterminate.
        """
        if self._shards.identity(self._id) is None:
            return Kept()
        self._shards.open(self._id)
        self._shards.sync_group(self._id)
        if self._id not in self._shards.group_state(self._id).collections:
            return Kept()
        self._take_over()
        self._kept = self._read()
        return self._kept or Kept()

    def write(self, kept: Kept) -> None:
        """Keep the checkpoints of a commit. Errors: as `open`."""
        if kept == self._kept:
            return
        if not self._is_ours:
            hold = system_capability(self._id, "log")
            self._shards.create(self._id, self._id, DESCRIPTION, MINIMUM_TIME, read=hold)
            self._take_over()
        upper = self._state.upper.time
        rows = [(kept, 1)] if self._kept is None else [(self._kept, -1), (kept, 1)]
        table = pa.Table.from_pylist(
            [
                {"c0": each.flow, "c1": each.driver, "time": upper, "diff": diff}
                for each, diff in rows
            ],
            schema=SCHEMA,
        )
        part = Part(
            collection=self._id,
            capability=write_capability(self._id),
            lower=frontier(upper),
            upper=frontier(upper + 1),
            chunks=self._shards.write(self._id, table),
            token=self._token,
        )
        (outcome,) = self._shards.submit([(self._id, Append((part,)))])
        if not isinstance(outcome, Appended):
            raise self._taken_over(outcome)
        self._kept = kept
        self._forget(Timestamp(upper))

    def _forget(self, time: Timestamp) -> None:
        """Let what was kept before be compacted away."""
        hold = system_capability(self._id, "log")
        move = Downgrade(collection=self._id, capability=hold, frontier=frontier(time))
        self._shards.submit([(self._id, move)])

    @property
    def _state(self) -> CollectionState:
        return self._shards.state(self._id)

    def _take_over(self) -> None:
        name = write_capability(self._id)
        held = self._state.capabilities[name]
        move = Downgrade(
            collection=self._id,
            capability=name,
            frontier=held.frontier,
            token=held.token,
            new_token=self._token,
        )
        (outcome,) = self._shards.submit([(self._id, move)])
        if not isinstance(outcome, Downgraded):
            raise self._taken_over(outcome)
        self._is_ours = True

    def _read(self) -> Kept | None:
        upper = self._state.upper.time
        if upper == MINIMUM_TIME:
            return None
        last = Timestamp(upper - 1)
        updates, _ = load_stable(self._shards, self._id, (MINIMUM_TIME, upper), last)
        rows = at(flatten([updates], SCHEMA), last, self._kernel).to_pylist()
        return Kept(rows[0]["c0"], rows[0]["c1"]) if rows else None

    def _taken_over(self, outcome: object) -> TakenOver:
        return TakenOver(
            f"task {self._task}: another session writes its log; this one must end ({outcome})"
        )
