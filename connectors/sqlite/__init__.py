"""A connector of SQLite: a file is a database, and each task writes it in turn.

SQLite has few types: times, UUIDs, exact numbers and JSON are text, booleans are 0 and 1.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from pydantic import BaseModel, Field

from connectors.config import STRICT, form
from connectors.connector import Refused
from connectors.sql import values
from connectors.sql.columns import Kind, TableColumn
from connectors.sql.connector import Resource, SqlConnector
from connectors.sql.dialect import Database, Dialect, Name, double_quoted
from connectors.sql.file_database import Engine, FileDatabase, path_for_inspection
from schemas.flow_columns import Elements
from streams.errors import Determinate, InvalidUsage

TYPES: Mapping[Kind, str] = {
    Kind.TEXT: "TEXT",
    Kind.INTEGER: "INTEGER",
    Kind.NUMBER: "REAL",
    Kind.NUMERIC: "TEXT",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "TEXT",
    Kind.TIME: "TEXT",
    Kind.TIMESTAMP: "TEXT",
    Kind.INTERVAL: "TEXT",
    Kind.UUID: "TEXT",
    Kind.BYTES: "BLOB",
    Kind.JSON: "TEXT",
}
CONVERTS: Mapping[Kind, values.Convert] = dict.fromkeys(TYPES, values.text) | {
    Kind.INTEGER: values.whole,
    Kind.NUMBER: values.number,
    Kind.BOOLEAN: values.boolean,
    Kind.BYTES: values.binary,
    Kind.JSON: values.json_text,
}


class Config(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """Endpoint configuration."""

    model_config = STRICT | {"title": "SQLite"}

    path: str = Field(
        title="Path",
        description="The file of the database; it is made if it is not there.",
        min_length=1,
        json_schema_extra=form(0),
    )
    patience_s: float = Field(
        default=30.0,
        title="Patience",
        description="Seconds to wait while another process writes the file.",
        ge=0,
        json_schema_extra=form(1),
    )


DIALECT = Dialect(
    name="SQLite",
    types=TYPES,
    quote=double_quoted,
    mark="?",
    longest_name=1024,
    same_name=str.casefold,
    strict_nulls=False,
    temporary="TEMP",
    row_names=("rowid", "_rowid_", "oid"),
    inserts_in_order=True,
)

FINAL = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
"""Errors that stay, as that there is no such table."""


@contextmanager
def translated(sql: str) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.DataError, OverflowError) as error:
        raise Refused(f"SQLite refuses {sql}: {error}") from error
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) in FINAL:
            raise InvalidUsage(f"SQLite cannot do {sql}: {error}") from error
        raise Determinate(f"SQLite cannot do {sql}: {error}") from error


def execute(connection: sqlite3.Connection, sql: str, values: Sequence[object]) -> int:
    """Run a statement; how many rows it touched."""
    return connection.execute(sql, values).rowcount


def fill(
    database: FileDatabase[sqlite3.Connection],
    table: Name,
    columns: Sequence[TableColumn],
    data: Sequence[Elements],
) -> None:
    """Errors: Refused for a value that is not of its column's kind."""
    marks = ", ".join("?" * len(columns))
    sql = f"INSERT INTO {DIALECT.table(table)} VALUES ({marks})"
    rows = values.rows_of(values.arrays_of(columns, data, CONVERTS))
    with translated(sql), database.began("BEGIN"):
        database.connection.executemany(sql, rows)


# there is one writer at a time: IMMEDIATE waits for it
ENGINE = Engine(
    error=sqlite3.Error,
    translated=translated,
    catalog='SELECT name, type, NOT "notnull", pk FROM pragma_table_info(?)',
    begin="BEGIN IMMEDIATE",
    execute=execute,
    fill=fill,
)


@contextmanager
def connect(config: Config) -> Iterator[Database]:
    """A connection. Errors: Determinate if the file cannot be opened."""
    with translated(f"open {config.path}"):
        connection = sqlite3.connect(
            config.path, timeout=config.patience_s, isolation_level=None
        )
    with closing(connection):
        yield FileDatabase(connection, ENGINE)


CONNECTOR = SqlConnector(
    dialect=DIALECT,
    config=Config,
    resource=Resource,
    connect=connect,
    for_inspection=lambda config: config.model_copy(
        update={"path": path_for_inspection(config.path)}
    ),
    documentation="connectors/docs/DATABASES.md",
)


def connector(_: Mapping[str, str]) -> SqlConnector[Config, Resource]:
    """The connector; no environment variable matters to it."""
    return CONNECTOR
