"""The differences between SQL dialects, as functions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from connectors.sql.columns import Kind, TableColumn
from schemas.flow_columns import Elements

Name = tuple[str, ...]
"""A table: its name, after that of its schema if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """A column as it is in the database."""

    type: str
    nullable: bool
    key: bool


class Database(Protocol):
    """A connection. Statements outside of a transaction are one each."""

    def execute(self, sql: str, values: Sequence[object] = ()) -> int:
        """Run a statement; how many rows it touched."""

    def select(self, sql: str, values: Sequence[object] = ()) -> Iterator[Sequence[object]]:
        """The rows of a query, some at a time."""

    def fill(
        self, table: Name, columns: Sequence[TableColumn], data: Sequence[Elements]
    ) -> None:
        """Put rows into a table of the session's, a column each of `data`."""

    def columns_of(self, table: Name) -> Mapping[str, Existing]:
        """The columns of a table, by name; none if there is no such table."""

    def transaction(self) -> AbstractContextManager[None]:
        """All statements inside or none; no other session writes at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A SQL dialect."""

    name: str
    types: Mapping[Kind, str]
    """The spellings of types in the database's own catalog."""
    quote: Callable[[str], str]
    mark: str
    """The placeholder of a value in a statement."""
    longest_name: int
    """Bytes."""
    same_name: Callable[[str], str]
    """Two columns of a table cannot have names of which this is the same."""
    own_columns: frozenset[str] = frozenset()
    """Names of columns that every table has, and no other column can."""
    strict_nulls: bool
    """Whether NOT NULL can be dropped; if not, only keys are declared NOT NULL."""
    incomparable: frozenset[Kind] = frozenset()
    """The kinds whose values it cannot compare, so that no key has them."""
    temporary: str
    """The prefix of creating a session table."""
    wider: frozenset[tuple[str, str]] = frozenset()
    """Pairs of types: a column of the first becomes one of the second."""
    widens_keys: bool = True
    """Whether a column of the key does too."""
    comments: bool = False
    clear: str = "DELETE FROM"
    """The statement that empties a session table."""
    row_names: tuple[str, ...] = ()
    """Names of a column that identifies a row, of tables that no one else has made; rows are
    deleted by it where the planner would look at the whole table for each other condition."""
    inserts_in_order: bool = False
    """Whether rows are inserted in the order of their key: a table is a tree, and a page of it
    is then written once, not for each row."""
    lock: str = ""
    """Statements that a session executes after BEGIN, before it reads the fences of others;
    %s is their table."""

    def table(self, name: Name) -> str:
        """A table's name in a statement."""
        return ".".join(map(self.quote, name))

    def columns(self, columns: Sequence[TableColumn], of: str = "") -> list[str]:
        """Columns in a statement, of a table's alias."""
        prefix = f"{of}." if of else ""
        return [prefix + self.quote(column.name) for column in columns]


def double_quoted(name: str) -> str:
    """A name as standard SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'
