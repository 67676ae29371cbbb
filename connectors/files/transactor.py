"""A session of a task over files: stages rows, commits with one small file, then moves them.

The commit is the file of the range: it says which transaction is in the tables, and through
which checkpoint. Files that were staged for it move to the tables afterwards; if the session
ends before they have, the next one moves them. A file's name is its transaction's, so moving it
again is moving it once.
"""

import base64
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import dataset

from connectors.files.store import TaskRange, TaskStore
from connectors.files.values import CONVERTS
from connectors.protocol import messages
from connectors.protocol.messages import Flush, Flushed, Load, Loaded, Open
from connectors.sql.columns import Shape
from connectors.sql.fence import Fenced, FencedRange, TakenOver, take_over
from connectors.sql.values import arrays_of
from schemas.blobs import Blobs
from schemas.flow_columns import Elements
from streams.errors import Determinate

LARGEST = 64 << 20
"""Rows of so many bytes of a binding are written before the commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A binding: where its files are, and by which fields they are divided."""

    path: str
    shape: Shape
    partition_by: Sequence[str]


class FilesTransactor:
    """One session of a task."""

    def __init__(
        self, store: TaskStore, directories: Sequence[Directory], message: Open
    ) -> None:
        self.files, self.directories = store, directories
        self.task = message.materialization.materialization
        self.row, taken = open_range(store, message)
        self.checkpoint = self.next = taken.checkpoint
        self.subranges = self.parts = taken.subranges
        """`parts` have files of their own until the first commit."""
        self.pending: list[list[pa.Table]] = [[] for _ in directories]
        self.written = 0

    def acknowledge(self) -> None:
        """No-op: a commit is final."""

    def load(self, message: Load) -> None:
        """Never: bindings are of delta updates."""
        raise AssertionError(f"the session refuses loads, as of binding {message.binding}")

    def flush(self, message: Flush) -> Iterator[Loaded | Flushed]:
        """No-op: nothing is loaded."""
        self.next = message.checkpoint
        yield Flushed()

    def store(self, message: messages.Store) -> None:
        """Take rows, and write them if they are many."""
        directory = self.directories[message.binding]
        shape = directory.shape
        data = [
            *message.keys.columns(len(shape.keys)),
            *message.values.columns(len(shape.values)),
        ]
        if shape.document is not None:
            data.append(Elements.of_array(Blobs.of(message.documents).array))
        arrays = arrays_of(shape.columns, data, CONVERTS)
        pending = self.pending[message.binding]
        pending.append(pa.table(arrays, names=[column.name for column in shape.columns]))
        if sum(table.nbytes for table in pending) >= LARGEST:
            self._write(message.binding)

    def commit(self) -> None:
        """Stage remaining rows, commit, publish. Errors: Fenced, Determinate, Indeterminate."""
        for binding, pending in enumerate(self.pending):
            if pending:
                self._write(binding)
        row = self.row
        if self.files.range(row.key_begin, row.key_end) != row:
            raise Fenced(self.task, row.key_begin, row.key_end)
        checkpoint = base64.b64encode(self.next).decode()
        self.row = TaskRange(
            key_begin=row.key_begin,
            key_end=row.key_end,
            fence=row.fence,
            opened=row.opened,
            nonce=row.nonce,
            transaction=row.transaction + 1,
            checkpoint=checkpoint,
        )
        self.files.put(self.row)
        self.files.settle(self.row)
        for part in self.parts:
            self.files.remove(part.key_begin, part.key_end)
        self.parts, self.written = (), 0

    def _write(self, binding: int) -> None:
        """Stage the pending rows of a binding, in the directories that they will be in."""
        directory, number = self.directories[binding], self.row.transaction + 1
        table = pa.concat_tables(self.pending[binding])
        name = f"{self.row.nonce}-{number:012}-{self.written}-{{i}}.parquet"
        try:
            dataset.write_dataset(
                table,
                f"{self.files.staged(self.row.nonce, number)}/{directory.path}",
                basename_template=name,
                format="parquet",
                partitioning=list(directory.partition_by) or None,
                partitioning_flavor="hive" if directory.partition_by else None,
                existing_data_behavior="overwrite_or_ignore",
                max_partitions=max(1, table.num_rows),
                filesystem=self.files.filesystem,
            )
        except OSError as error:
            raise Determinate(f"cannot write files of {directory.path}: {error}") from error
        self.pending[binding] = []
        self.written += 1


def open_range(store: TaskStore, message: Open) -> tuple[TaskRange, TakenOver]:
    """Settle and fence the sessions before, and take the range. Errors: DividedRange."""
    begin, end = message.key_begin, message.key_end
    rows = store.ranges()
    taken = take_over(
        [row.held for row in rows], begin, end, may_be_apart=message.extensions.subranges
    )
    overlapping = [row for row in rows if row.held.overlaps(begin, end)]
    for row in overlapping:
        store.fence(row)
    for row in overlapping:
        store.settle(store.range(row.key_begin, row.key_end) or row)
    for part in taken.parts:
        store.put(range_of(part))
    own = range_of(taken.row)
    store.put(own)
    written = {part.range for part in (*taken.parts, taken.row)}
    for key_range in taken.deletes:
        if key_range not in written:
            store.remove(*key_range)
    return own, taken


def range_of(part: FencedRange) -> TaskRange:
    """A range that nothing was written of since it was opened."""
    return TaskRange(
        key_begin=part.key_begin,
        key_end=part.key_end,
        fence=part.fence,
        opened=part.opened,
        nonce=secrets.token_hex(8),
        transaction=0,
        checkpoint=base64.b64encode(part.checkpoint).decode(),
    )
