"""Shared code of databases in a file: a connection of this process, explicit transactions."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from connectors.sql.columns import TableColumn
from connectors.sql.dialect import Existing, Name
from schemas.flow_columns import Elements

log = logging.getLogger(__name__)

BATCH = 1024
"""Rows of a query that are fetched together."""


def path_for_inspection(path: str) -> str:
    """Return the path to open without creating a database: memory if there is no file yet."""
    file = Path(path)
    return path if file.exists() or not file.parent.is_dir() else ":memory:"


class Cursor(Protocol):
    """The result of a query."""

    def fetchmany(self, size: int, /) -> Sequence[Sequence[object]]:
        """The next rows; none at the end."""


class Connection(Protocol):
    """The DB-API interface of a connection."""

    def execute(self, sql: str, values: Sequence[object] = (), /) -> Cursor:
        """Run a statement."""


Held = TypeVar("Held", bound=Connection)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine(Generic[Held]):
    """The differences between databases in files."""

    error: type[Exception]
    """The exception classes of the database."""
    translated: Callable[[str], AbstractContextManager[None]]
    """Errors inside, which a statement has caused, are raised as ours."""
    catalog: str
    """A query for name, type, nullable and key of the columns of a table."""
    begin: str
    """Begins a transaction that excludes other writers."""
    execute: Callable[[Held, str, Sequence[object]], int]
    """Runs a statement; how many rows it touched."""
    fill: Callable[
        ["FileDatabase[Held]", Name, Sequence[TableColumn], Sequence[Elements]], None
    ]
    """Puts rows into a table of the session's."""


@dataclass(frozen=True, slots=True)
class FileDatabase(Generic[Held]):
    """A connection; a statement outside of a transaction is one of its own."""

    connection: Held
    engine: Engine[Held]

    def execute(self, sql: str, values: Sequence[object] = ()) -> int:
        """Errors: Refused for a value or row, InvalidUsage for a statement; Determinate."""
        with self.engine.translated(sql):
            return self.engine.execute(self.connection, sql, values)

    def fill(
        self, table: Name, columns: Sequence[TableColumn], data: Sequence[Elements]
    ) -> None:
        """Errors: Refused for a value that the database does not take."""
        self.engine.fill(self, table, columns, data)

    def select(self, sql: str, values: Sequence[object] = ()) -> Iterator[Sequence[object]]:
        """Errors: Determinate."""
        with self.engine.translated(sql):
            cursor = self.connection.execute(sql, values)
            while rows := cursor.fetchmany(BATCH):
                yield from rows

    def columns_of(self, table: Name) -> Mapping[str, Existing]:
        """From the database's own catalog."""
        return {
            str(name): Existing(type=str(type_), nullable=bool(nullable), key=bool(key))
            for name, type_, nullable, key in self.select(self.engine.catalog, [table[-1]])
        }

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Execute all statements inside, or none. Errors: Determinate for any error inside."""
        with self.began(self.engine.begin):
            yield

    @contextmanager
    def began(self, begin: str) -> Iterator[None]:
        """A transaction that begins so."""
        with self.engine.translated(begin):
            self.connection.execute(begin)
        try:
            yield
        except BaseException:
            self._roll_back()
            raise
        with self.engine.translated("COMMIT"):
            self.connection.execute("COMMIT")

    def _roll_back(self) -> None:
        """The raised error is the cause, not a failure of the rollback.

        A full disk and a fatal error have ended the transaction already.
        """
        try:
            self.connection.execute("ROLLBACK")
        except self.engine.error as error:
            log.info("nothing rolled back", extra={"error": str(error)})
