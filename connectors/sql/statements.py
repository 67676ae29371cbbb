"""Generates the SQL statements of a binding. Pure.

Rows to load and to store are put into two tables of the session's first, `load_i` and
`store_i`; each statement then moves all of them. Aliases: `t` is the table, `s` the session's.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from connectors.sql.columns import Kind, Shape, TableColumn
from connectors.sql.dialect import Dialect, Name

EXISTS = TableColumn(name="slackwater exists", kind=Kind.BOOLEAN, nullable=False)
GOES = TableColumn(name="slackwater goes", kind=Kind.BOOLEAN, nullable=False)
DELETED = TableColumn(
    name="_deleted", kind=Kind.BOOLEAN, nullable=False, comment="the row is no longer there"
)
"""The column of a table that keeps deleted rows."""

OF_SESSION = re.compile(r"slackwater_(load|store)_\d+")
"""The names of the session's tables: one of the database's would be hidden behind them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A binding: a table in the database, two of the session's."""

    dialect: Dialect
    index: int
    name: Name
    shape: Shape
    delta: bool
    soft: bool
    """Deleted rows stay, and are marked."""
    adopted: bool = False
    """The table may be one that no task has made."""
    comment: str = ""
    """The declared type of the parameter."""

    @property
    def load(self) -> Name:
        """The session's table of keys that are wanted."""
        return (f"slackwater_load_{self.index}",)

    @property
    def store(self) -> Name:
        """The session's table of rows to write."""
        return (f"slackwater_store_{self.index}",)

    @property
    def stored(self) -> Sequence[TableColumn]:
        """The columns of `store`."""
        return (*self.shape.columns, EXISTS, GOES)

    @property
    def changing(self) -> Sequence[TableColumn]:
        """The columns that an update sets."""
        return self.shape.columns[len(self.shape.keys) :]

    def session_tables(self) -> list[str]:
        """Create both."""
        tables = [(self.load, self.shape.keys), (self.store, self.stored)]
        return [
            f"CREATE {self.dialect.temporary} TABLE {self.dialect.table(name)}"
            f" ({', '.join(self.plain(column) for column in columns)})"
            for name, columns in tables
        ]

    def plain(self, column: TableColumn) -> str:
        """A column of a table of the session's."""
        return f"{self.dialect.quote(column.name)} {self.dialect.types[column.kind]}"

    def loaded(self) -> str:
        """The documents of the keys that are wanted."""
        assert self.shape.document is not None, "it was validated"
        (document,) = self.dialect.columns([self.shape.document], "t")
        alive = f" AND NOT {self.marked('t')}" if self.soft else ""
        return (
            f"SELECT {document} FROM {self.dialect.table(self.name)} AS t"
            f" JOIN {self.dialect.table(self.load)} AS s ON {self.same_key}{alive}"
        )

    @property
    def same_key(self) -> str:
        """The condition that a row of `t` and one of `s` have the same key."""
        pairs = zip(
            self.dialect.columns(self.shape.keys, "t"),
            self.dialect.columns(self.shape.keys, "s"),
            strict=True,
        )
        return " AND ".join(f"{left} = {right}" for left, right in pairs)

    def marked(self, alias: str) -> str:
        """The mark of a deleted row."""
        return self.dialect.columns([DELETED], alias)[0]

    def remove(self) -> str:
        """Delete what goes, where deleted rows do not stay."""
        if self.dialect.row_names:
            return self.removing_by(self.row)
        exists, goes = self.dialect.columns([EXISTS, GOES], "s")
        return (
            f"DELETE FROM {self.dialect.table(self.name)} AS t WHERE EXISTS"
            f" (SELECT 1 FROM {self.dialect.table(self.store)} AS s"
            f" WHERE {self.same_key} AND {exists} AND {goes})"
        )

    @property
    def row(self) -> Sequence[str]:
        """The columns by which rows are deleted: one for the row, else the key."""
        taken = {column.name.casefold() for column in self.shape.columns}
        free = [name for name in self.dialect.row_names if name not in taken]
        if free and not self.adopted:
            return free[:1]
        return self.dialect.columns(self.shape.keys)

    def removing_by(self, row: Sequence[str]) -> str:
        """A delete of the rows that go; the store is read once, each row is looked up."""
        exists, goes = self.dialect.columns([EXISTS, GOES], "s")
        table, store = self.dialect.table(self.name), self.dialect.table(self.store)
        names = ", ".join(f"t.{name}" for name in row)
        return (
            f"DELETE FROM {table} WHERE ({', '.join(row)}) IN (SELECT {names} FROM {store} AS s"
            f" CROSS JOIN {table} AS t WHERE {self.same_key} AND {exists} AND {goes})"
        )

    def update(self) -> str:
        """Update existing rows; where deleted rows are kept, mark them."""
        exists, goes = self.dialect.columns([EXISTS, GOES], "s")
        values = self.assigned()
        if self.soft:
            values = [*values, f"{self.dialect.quote(DELETED.name)} = {goes}"]
            which = f"NOT {self.marked('t')}"
        else:
            which = f"NOT {goes}"
        return self.updating(values, f"{exists} AND {which}")

    def revive(self) -> str:
        """Change deleted rows that are there again, where deleted rows stay."""
        exists, goes = self.dialect.columns([EXISTS, GOES], "s")
        values = [*self.assigned(), f"{self.dialect.quote(DELETED.name)} = FALSE"]
        return self.updating(values, f"NOT {exists} AND NOT {goes} AND {self.marked('t')}")

    def assigned(self) -> list[str]:
        """The columns of an update with their new values."""
        left = self.dialect.columns(self.changing)
        right = self.dialect.columns(self.changing, "s")
        return [f"{name} = {value}" for name, value in zip(left, right, strict=True)]

    def updating(self, values: Sequence[str], which: str) -> str:
        """An update of the rows that are stored and of which a condition holds."""
        key = self.dialect.columns(self.shape.keys)[0]
        values = values or [f"{key} = t.{key}"]
        return (
            f"UPDATE {self.dialect.table(self.name)} AS t SET {', '.join(values)}"
            f" FROM {self.dialect.table(self.store)} AS s WHERE {self.same_key} AND {which}"
        )

    def insert(self) -> str:
        """Insert new rows; all rows where every change is a row."""
        exists, goes = self.dialect.columns([EXISTS, GOES], "s")
        names = [*self.dialect.columns(self.shape.columns)]
        values = [*self.dialect.columns(self.shape.columns, "s")]
        where = "" if self.delta else f" WHERE NOT {exists} AND NOT {goes}"
        order = ""
        if self.dialect.inserts_in_order and not self.delta:
            order = f" ORDER BY {', '.join(self.dialect.columns(self.shape.keys, 's'))}"
        if self.soft:
            names.append(self.dialect.quote(DELETED.name))
            values.append("FALSE")
            there = f"SELECT 1 FROM {self.dialect.table(self.name)} AS t WHERE {self.same_key}"
            where += f" AND NOT EXISTS ({there} AND {self.marked('t')})"
        return (
            f"INSERT INTO {self.dialect.table(self.name)} ({', '.join(names)})"
            f" SELECT {', '.join(values)} FROM {self.dialect.table(self.store)} AS s"
            f"{where}{order}"
        )
