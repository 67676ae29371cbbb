"""A session of a task in a SQL database: fence, load, store, commit.

A transaction of the protocol is one transaction of the database: all rows of all tables, the
checkpoint, and the proof that no other session took the range over. Loads are read when they
are flushed, which is after the commit before. Each statement says how many rows it touched; any
other number than the driver's flags say is an error, and nothing is committed.
"""

import base64
import secrets
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from connectors.protocol.messages import Flush, Flushed, Load, Loaded, Open, Store
from connectors.protocol.violations import Rule, driver_holds
from connectors.sql.ddl import CHECKPOINTS, TASKS
from connectors.sql.dialect import Database, Dialect
from connectors.sql.fence import Fenced, FencedRange, TakenOver, take_over
from connectors.sql.statements import Table
from schemas.blobs import Blobs
from schemas.consumer_pb2 import Checkpoint
from schemas.flow_columns import Elements
from schemas.flow_pb2 import MaterializationSpec
from streams.errors import InvalidUsage

Flags = NDArray[np.bool_]

DOCUMENTS = 1024
"""At most so many in a message of loaded ones."""


class WrongCount(InvalidUsage):
    """The table is not what the driver takes it for: a statement touched other rows."""


class SqlTransactor:
    """One session of a task."""

    def __init__(
        self, dialect: Dialect, database: Database, tables: Sequence[Table], message: Open
    ) -> None:
        self.dialect, self.database, self.tables = dialect, database, tables
        self.task = message.materialization.materialization
        self.range = (message.key_begin, message.key_end)
        self.nonce = secrets.token_hex(16)
        self.loads: set[int] = set()
        self.rows = [Counts() for _ in tables]
        with database.transaction():
            check_applied(dialect, database, message)
            taken = self._take_over(may_be_apart=message.extensions.subranges)
        for table in tables:
            for statement in table.session_tables():
                database.execute(statement)
        self.fence = taken.row.fence
        self.checkpoint = self.next = taken.checkpoint
        self.subranges = self.parts = taken.subranges
        """`parts` have rows of their own until the first commit."""

    def acknowledge(self) -> None:
        """No-op: a commit is final."""

    def load(self, message: Load) -> None:
        """Put the keys into the session's table."""
        table = self.tables[message.binding]
        keys = message.keys.columns(len(table.shape.keys))
        self.database.fill(table.load, table.shape.keys, keys)
        self.loads.add(message.binding)

    def flush(self, message: Flush) -> Iterator[Loaded | Flushed]:
        """Join the keys with the tables."""
        for binding in sorted(self.loads):
            table = self.tables[binding]
            documents: list[bytes] = []
            for (document,) in self.database.select(table.loaded()):
                documents.append(encoded(document))
                if len(documents) == DOCUMENTS:
                    yield Loaded(binding, documents)
                    documents = []
            if documents:
                yield Loaded(binding, documents)
            self._clear(table.load)
        self.loads = set()
        self.next = message.checkpoint
        yield Flushed()

    def store(self, message: Store) -> None:
        """Put the rows into the session's table."""
        table, shape = self.tables[message.binding], self.tables[message.binding].shape
        exists = np.array(message.exists, bool)
        goes = np.array(message.deletes or np.zeros(len(exists)), bool)
        documents = [Blobs.of(message.documents).array] if shape.document is not None else []
        data = [
            *message.keys.columns(len(shape.keys)),
            *message.values.columns(len(shape.values)),
            *map(Elements.of_array, [*documents, pa.array(exists), pa.array(goes)]),
        ]
        self.database.fill(table.store, table.stored, data)
        self.rows[message.binding].add(exists, goes)

    def commit(self) -> None:
        """All rows of all tables, and the checkpoint. Errors: Fenced, WrongCount."""
        stored = [index for index, rows in enumerate(self.rows) if rows.stored]
        with self.database.transaction():
            self._guard()  # first: a fenced task learns of the fence, not of rows
            self._delete([(part.key_begin, part.key_end) for part in self.parts])
            for index in stored:
                self._write(self.tables[index], self.rows[index])
        for index in stored:
            self._clear(self.tables[index].store)
            self.rows[index] = Counts()
        self.parts = ()

    def _write(self, table: Table, rows: "Counts") -> None:
        if table.delta:
            self._expect(table, "insert", table.insert(), rows.stored)
            return
        if not table.soft and rows.gone:
            self._expect(table, "delete", table.remove(), rows.gone)
        changed = rows.changed + (rows.gone if table.soft else 0)
        if changed:
            self._expect(table, "update", table.update(), changed)
        if rows.new:
            inserted = self.database.execute(table.insert())
            if table.soft:
                inserted += self.database.execute(table.revive())
            expect(table, "insert", inserted, rows.new)

    def _expect(self, table: Table, verb: str, statement: str, count: int) -> None:
        expect(table, verb, self.database.execute(statement), count)

    def _clear(self, name: tuple[str, ...]) -> None:
        self.database.execute(f"{self.dialect.clear} {self.dialect.table(name)}")

    def _guard(self) -> None:
        """Move the checkpoint, if the range is still this session's. Errors: Fenced."""
        values = [*texts(self.next), self.task, *self.range, self.fence, self.nonce]
        table, mark = self.dialect.table(CHECKPOINTS), self.dialect.mark
        touched = self.database.execute(
            f"UPDATE {table} SET checkpoint = {mark}, read_through = {mark} WHERE task = {mark}"
            f" AND key_begin = {mark} AND key_end = {mark} AND fence = {mark}"
            f" AND nonce = {mark}",
            values,
        )
        if touched != 1:
            raise Fenced(self.task, *self.range)

    def _delete(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Rows of the table of checkpoints."""
        table, mark = self.dialect.table(CHECKPOINTS), self.dialect.mark
        for key_range in ranges:
            self.database.execute(
                f"DELETE FROM {table} WHERE task = {mark}"
                f" AND key_begin = {mark} AND key_end = {mark}",
                [self.task, *key_range],
            )

    def _take_over(self, *, may_be_apart: bool) -> TakenOver:
        """Fence every session of an overlapping range, and take this one."""
        table, mark = self.dialect.table(CHECKPOINTS), self.dialect.mark
        begin, end = self.range
        if self.dialect.lock:
            self.database.execute(self.dialect.lock % table)
        rows = self.database.select(
            "SELECT key_begin, key_end, fence, opened, checkpoint"
            f" FROM {table} WHERE task = {mark}",
            [self.task],
        )
        taken = take_over(list(map(held, rows)), begin, end, may_be_apart=may_be_apart)
        self.database.execute(
            f"UPDATE {table} SET fence = fence + 1"
            f" WHERE task = {mark} AND key_begin <= {mark} AND key_end >= {mark}",
            [self.task, end, begin],
        )
        self._delete(taken.deletes)
        for row in taken.parts:
            self._insert(row, secrets.token_hex(16))
        self._insert(taken.row, self.nonce)
        return taken

    def _insert(self, row: FencedRange, nonce: str) -> None:
        """A row of the table of checkpoints."""
        table, mark = self.dialect.table(CHECKPOINTS), self.dialect.mark
        self.database.execute(
            f"INSERT INTO {table} (task, key_begin, key_end, fence, opened, nonce, checkpoint,"
            f" read_through) VALUES ({', '.join([mark] * 8)})",
            [self.task, *row.range, row.fence, row.opened, nonce, *texts(row.checkpoint)],
        )


class Counts:
    """The number of rows stored per binding, and the pending operations."""

    def __init__(self) -> None:
        self.stored = self.changed = self.gone = self.new = 0

    def add(self, exists: Flags, goes: Flags) -> None:
        """Rows that were never there and go are none of the three."""
        self.stored += len(exists)
        self.changed += int((exists & ~goes).sum())
        self.gone += int((exists & goes).sum())
        self.new += int((~exists & ~goes).sum())


def expect(table: Table, verb: str, actual: int, count: int) -> None:
    """Errors: WrongCount."""
    if actual != count:
        raise WrongCount(
            f"table {'.'.join(table.name)}: expected to {verb} {count} rows, actual {actual};"
            " another client has changed the table, or the driver's `exists` is wrong"
        )


def held(row: Sequence[object]) -> FencedRange:
    """A row of the table of checkpoints."""
    begin, end, fence, opened = (int(str(value)) for value in row[:4])
    checkpoint = base64.b64decode(str(row[4]))
    return FencedRange(
        key_begin=begin, key_end=end, fence=fence, opened=opened, checkpoint=checkpoint
    )


def texts(checkpoint: bytes) -> tuple[str, str]:
    """A checkpoint as it is kept, and as people read it: how far each source was read.

    Equal checkpoints have equal texts, so that SQL can compare those of key ranges.
    """
    try:
        readable = MessageToJson(Checkpoint.FromString(checkpoint), indent=None, sort_keys=True)
    except DecodeError:
        readable = "{}"  # a driver's own; a connector needs not know it
    return base64.b64encode(checkpoint).decode(), readable


def encoded(document: object) -> bytes:
    """A document as the database returns it."""
    return document if isinstance(document, bytes) else str(document).encode()


def check_applied(dialect: Dialect, database: Database, message: Open) -> None:
    """The task was applied, as it is and in this version. Errors: Violation by the driver."""
    check_version(
        tasks(dialect, database).get(message.materialization.materialization), message
    )


def check_version(applied: tuple[str, str] | None, message: Open) -> None:
    """Like `check_applied`, with the recorded version and specification, if any."""
    task = message.materialization.materialization
    driver_holds(Rule.VERSION, applied is not None, f"Open: task {task} was not applied")
    version, spec = applied or ("", "")
    driver_holds(
        Rule.VERSION,
        version == message.version,
        f"Open: expected version {version}, which was applied, actual {message.version}",
    )
    driver_holds(
        Rule.SPEC,
        spec == spec_text(message.materialization),
        f"Open: task {task} is not as it was applied in version {version}",
    )


def tasks(dialect: Dialect, database: Database) -> dict[str, tuple[str, str]]:
    """The recorded version and specification of each applied task."""
    if not database.columns_of(TASKS):
        return {}
    rows = database.select(f"SELECT task, version, spec FROM {dialect.table(TASKS)}")
    return {str(task): (str(version), str(spec)) for task, version, spec in rows}


def spec_text(spec: MaterializationSpec) -> str:
    """The specification of a task, as an endpoint keeps it.

    The endpoint's configuration is left out, which may have secrets in it; a client that opens
    a session has reached the endpoint already.
    """
    kept = MaterializationSpec()
    kept.CopyFrom(spec)
    kept.ClearField("endpoint_spec_json")
    return base64.b64encode(kept.SerializeToString(deterministic=True)).decode()
