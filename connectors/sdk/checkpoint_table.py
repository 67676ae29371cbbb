"""A checkpoint table for endpoints without SQL: one JSON value, written with the documents.

It has what the tables of our databases have: each task as it was applied, and its key ranges
with fence, nonce and checkpoint. An endpoint that can replace one value atomically, as a file
or an object of a store, keeps it there, and commits by replacing it.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from connectors.config import STRICT
from connectors.protocol.messages import Open, Subrange
from connectors.sql.fence import Fenced, FencedRange, TakenOver, take_over
from connectors.sql.transactor import check_version, spec_text, texts
from schemas.materialize_pb2 import ApplyRequest, ApplyResponse


class StoredRange(BaseModel):  # type: ignore[explicit-any] # of pydantic
    """A key range that a session opened."""

    model_config = STRICT

    key_begin: int
    key_end: int
    fence: int
    opened: int
    nonce: str
    """The session's; two sessions never have the same."""
    checkpoint: str
    """In base64."""
    read_through: str
    """The same as people read it: how far each collection was read."""

    @property
    def held(self) -> FencedRange:
        """The range as a row of the fence."""
        return FencedRange.of_text(
            (self.key_begin, self.key_end), self.fence, self.opened, self.checkpoint
        )


class StoredTask(BaseModel):  # type: ignore[explicit-any] # of pydantic
    """A task as it was applied."""

    model_config = STRICT

    version: str
    spec: str
    """The specification, in base64."""
    ranges: list[StoredRange] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRange:
    """The key range of a session, as `CheckpointTable.open` returns it."""

    task: str
    row: StoredRange
    checkpoint: bytes
    """`Transactor.checkpoint`."""
    subranges: tuple[Subrange, ...]
    """`Transactor.subranges`."""


class CheckpointTable(BaseModel):  # type: ignore[explicit-any] # of pydantic
    """All tasks of an endpoint, by name. Methods change it in place; the caller keeps it.

    No other process may change the stored value between reading it and writing it back.
    """

    model_config = STRICT

    tasks: dict[str, StoredTask] = {}

    def apply(self, request: ApplyRequest) -> ApplyResponse:
        """Record a task; the answer says so, or nothing if it is recorded already."""
        name, text = request.materialization.materialization, spec_text(request.materialization)
        before = self.tasks.get(name)
        if before is not None and (before.version, before.spec) == (request.version, text):
            return ApplyResponse()
        ranges = [] if before is None else before.ranges
        self.tasks[name] = StoredTask(version=request.version, spec=text, ranges=ranges)
        action = f"record task {name}, version {request.version}"
        return ApplyResponse(action_description=action)

    def open(self, message: Open) -> OpenedRange:
        """Fence the sessions of overlapping ranges, and take the range.

        Errors: Violation by the driver if the task was not applied so; DividedRange.
        """
        name, begin, end = (
            message.materialization.materialization,
            *(message.key_begin, message.key_end),
        )
        task = self.tasks.get(name)
        check_version(None if task is None else (task.version, task.spec), message)
        assert task is not None, "its version was checked"
        rows = [row.held for row in task.ranges]
        taken = take_over(rows, begin, end, may_be_apart=message.extensions.subranges)
        own = stored(taken.row)
        task.ranges = [*fenced(task.ranges, taken, (begin, end)), own]
        return OpenedRange(
            task=name, row=own, checkpoint=taken.checkpoint, subranges=taken.subranges
        )

    def commit(self, opened: OpenedRange, checkpoint: bytes) -> None:
        """Record what the session has read. Errors: Fenced if the range is not its own now."""
        own, task = opened.row, self.tasks.get(opened.task)
        parts = [(part.key_begin, part.key_end) for part in opened.subranges]
        row = next((row for row in task.ranges if is_same(row, own)), None) if task else None
        if task is None or row is None:
            raise Fenced(opened.task, own.key_begin, own.key_end)
        task.ranges = [other for other in task.ranges if other.held.range not in parts]
        row.checkpoint, row.read_through = texts(checkpoint)


def is_same(row: StoredRange, own: StoredRange) -> bool:
    """Whether a row is that of a session, and is not fenced."""
    return (row.nonce, row.fence) == (own.nonce, own.fence)


def fenced(
    rows: Sequence[StoredRange], taken: TakenOver, key_range: tuple[int, int]
) -> list[StoredRange]:
    """The rows beside a new session's own."""
    raised = [
        row.model_copy(update={"fence": row.fence + row.held.overlaps(*key_range)})
        for row in rows
        if row.held.range not in taken.deletes
    ]
    return [*raised, *map(stored, taken.parts)]


def stored(part: FencedRange) -> StoredRange:
    """A range as it is kept, with a nonce of its own."""
    checkpoint, read_through = texts(part.checkpoint)
    return StoredRange(
        key_begin=part.key_begin,
        key_end=part.key_end,
        fence=part.fence,
        opened=part.opened,
        nonce=secrets.token_hex(16),
        checkpoint=checkpoint,
        read_through=read_through,
    )
