"""What databases in a file share: a connection of this process, transactions of our own."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar, Generic, Protocol, TypeVar

from connectors.sql.dialect import Existing, Name

log = logging.getLogger(__name__)

BATCH = 1024
"""Rows of a query that are fetched together."""


class Cursor(Protocol):
    """The result of a query."""

    def fetchmany(self, size: int, /) -> Sequence[Sequence[object]]:
        """The next rows; none at the end."""


class Connection(Protocol):
    """What Python's own interface of databases has of one."""

    def execute(self, sql: str, values: Sequence[object] = (), /) -> Cursor:
        """Run a statement."""


Held = TypeVar("Held", bound=Connection)


class FileDatabase(Generic[Held]):
    """A connection; a statement outside of a transaction is one of its own.

    Errors of the database are of type `error`. `catalog` selects name, type, nullable and key
    of the columns of a table.
    """

    error: ClassVar[type[Exception]]
    catalog: ClassVar[str]
    begin: ClassVar[str]

    def __init__(self, connection: Held) -> None:
        self.connection = connection

    @staticmethod
    def translated(sql: str) -> AbstractContextManager[None]:
        """Errors inside, which a statement has caused, are raised as ours."""
        raise NotImplementedError

    def select(self, sql: str, values: Sequence[object] = ()) -> Iterator[Sequence[object]]:
        """Errors: Determinate."""
        with self.translated(sql):
            cursor = self.connection.execute(sql, values)
            while rows := cursor.fetchmany(BATCH):
                yield from rows

    def columns_of(self, table: Name) -> Mapping[str, Existing]:
        """From the database's own catalog."""
        return {
            str(name): Existing(type=str(type_), nullable=bool(nullable), key=bool(key))
            for name, type_, nullable, key in self.select(self.catalog, [table[-1]])
        }

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All statements inside or none. Errors: Determinate, whatever is raised inside."""
        with self.began(self.begin):
            yield

    @contextmanager
    def began(self, begin: str) -> Iterator[None]:
        """A transaction that begins so."""
        with self.translated(begin):
            self.connection.execute(begin)
        try:
            yield
        except BaseException:
            self._roll_back()
            raise
        with self.translated("COMMIT"):
            self.connection.execute("COMMIT")

    def _roll_back(self) -> None:
        """What is being raised is the cause, and not that nothing is left to roll back.

        A full disk and a fatal error have ended the transaction already.
        """
        try:
            self.connection.execute("ROLLBACK")
        except self.error as error:
            log.info("nothing rolled back", extra={"error": str(error)})
