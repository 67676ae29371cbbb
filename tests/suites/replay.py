"""A DuckDB that has carried out a script, and the tables of a query there.

Statements of another dialect are changed where a pattern can: a table over a file that is not
here gets the columns that it declares, and rows made up.
"""

import re
from contextlib import suppress
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa

from tests.suites.scripts import Statement
from tests.support.plan_tables import carriers, connect

ROWS = 40
"""Rows of a table that a view is maintained over."""

_MADE_UP = 60
_NAMES = """
    SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main' UNION
    SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal
    ORDER BY ALL
"""
_CHANGES = (
    (r"\b(TINY|SMALL|BIG)INT UNSIGNED\b", r"U\1INT"),
    (r"\bINT(EGER)? UNSIGNED\b", "UINTEGER"),
    (r"\bCREATE EXTERNAL TABLE\b", "CREATE TABLE"),
    (r"\b(make_array|array)\(", "list_value("),
    (r"\barray\[", "["),
)
_CAST = "arrow_cast"
"""A cast of another engine: DuckDB leaves the value as it is when it makes tables."""

_FLAGS = re.IGNORECASE | re.DOTALL
_OVER_FILE = re.compile(
    r"\)\s*(STORED AS|PARTITIONED BY|WITH ORDER|WITH\s*\(|OPTIONS)\b.*", _FLAGS
)
_WITH_ROWS = re.compile(r"(.*?\bTABLE\b[^(]*\(.*?\))\s*AS\s*((?:VALUES|SELECT)\b.*)", _FLAGS)
_CREATED = re.compile(
    r'CREATE\s+(?:OR REPLACE\s+)?TABLE\s+(?:IF NOT EXISTS\s+)?([\w."]+)', re.IGNORECASE
)
_FILLED = {
    "BOOLEAN": "hash(i, {}) % 2 = 0",
    "VARCHAR": "chr(97 + (hash(i, {}) % 9)::INT) || chr(97 + (hash({}, i) % 3)::INT)",
    "DATE": "DATE '2024-02-26' + (hash(i, {}) % 9)::INT",
    "TIMESTAMP": "TIMESTAMP '2024-02-26' + to_minutes((hash(i, {}) % 9000)::INT)",
    "U": "(hash(i, {}) % 50)::INT",
    "": "(hash(i, {}) % 50)::INT - 9",
}
"""Values of row `i` and column `{}`, by what the type begins with."""


@dataclass(frozen=True)
class Held:
    """A table: its columns with their types, and its rows in Arrow, unions as their structs."""

    name: str
    columns: tuple[tuple[str, str], ...]
    rows: pa.Table


@dataclass
class Replay:
    """Carries out one script; `version` counts the statements that were."""

    connection: duckdb.DuckDBPyConnection = field(default_factory=connect)
    version: int = 0

    def __post_init__(self) -> None:
        self.connection.execute("SET arrow_lossless_conversion = true")
        self.connection.execute(f"CREATE MACRO {_CAST}(x, kind) AS x")

    def own(self, text: str) -> str:
        """The text with DuckDB's names for what has another name elsewhere."""
        for pattern, by in _CHANGES:
            text = re.sub(pattern, by, text, flags=re.IGNORECASE)
        return text

    def carry_out(self, statement: Statement) -> None:
        """What DuckDB does not take is left out, and settings, which views do not have."""
        text = self.own(statement.text)
        if re.match(r"\s*SET\b", text, re.IGNORECASE):
            return
        file = _OVER_FILE.search(text)
        if file is not None:
            text = text[: file.start() + 1]
        with suppress(duckdb.Error, UnicodeDecodeError):
            self._execute(text)
            self.version += 1
            created = _CREATED.match(text)
            if created is None:
                return
            if file is not None:
                self._fill(created[1])
            elif "VALUES" in text.upper():
                self._rename(created[1])

    def _execute(self, text: str) -> None:
        """A statement; CREATE TABLE with types of columns and rows is two of DuckDB's."""
        created, rows = _CREATED.match(text), _WITH_ROWS.fullmatch(text)
        if created is None or rows is None or " AS " in rows[1].upper():
            self.connection.execute(text)
            return
        self.connection.execute(rows[1])
        self.connection.execute(f"INSERT INTO {created[1]} {rows[2]}")

    def _rename(self, name: str) -> None:
        """Give columns of VALUES the names that other databases give them."""
        for place, (column, *_) in enumerate(self._described(name)):
            if column == f"col{place}":
                text = f"ALTER TABLE {name} RENAME {column} TO column{place + 1}"
                self.connection.execute(text)

    def _fill(self, name: str) -> None:
        """Make up rows."""
        kinds = [kind for _, kind, *_ in self._described(name)]
        cells = ", ".join(_cell(kind, place) for place, kind in enumerate(kinds))
        text = f"INSERT INTO {name} SELECT {cells} FROM range({_MADE_UP}) r(i)"
        self.connection.execute(text)

    def _described(self, name: str) -> list[tuple[str, ...]]:
        return self.connection.execute(f"DESCRIBE {name}").fetchall()

    def answers(self, query: str) -> bool:
        """Whether DuckDB answers the query over its own tables."""
        try:
            self.connection.execute(query).fetchmany(100_000)
        except (duckdb.Error, UnicodeDecodeError, ValueError, OverflowError):
            return False
        return _CAST not in query

    def tables(self, query: str) -> list[Held]:
        """The tables and views whose names stand in a query."""
        names = self.connection.execute(_NAMES).fetchall()
        words = {word.lower() for word in re.findall(r"\w+", query)}
        return [self._held(name) for (name,) in names if name.lower() in words]

    def _held(self, name: str) -> Held:
        columns = tuple((row[0], row[1]) for row in self._described(f'"{name}"'))
        text = f'SELECT {carriers(columns)} FROM "{name}" LIMIT {ROWS}'
        return Held(name, columns, self.connection.sql(text).to_arrow_table())


def _cell(kind: str, place: int) -> str:
    value = next(text for name, text in _FILLED.items() if kind.startswith(name))
    value = f"try_cast({value.replace('{}', str(place))} AS {kind})"
    return f"CASE WHEN hash({place}, i, 7) % 11 <> 0 THEN {value} END"
