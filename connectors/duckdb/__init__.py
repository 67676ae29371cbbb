"""A connector of DuckDB: a file is a database, which one process has open at a time.

Types are DuckDB's own, except for exact numbers of any scale, which are text.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

import duckdb
import pyarrow as pa
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
    Kind.TEXT: "VARCHAR",
    Kind.INTEGER: "BIGINT",
    Kind.NUMBER: "DOUBLE",
    Kind.NUMERIC: "VARCHAR",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.TIME: "TIME WITH TIME ZONE",
    Kind.TIMESTAMP: "TIMESTAMP WITH TIME ZONE",
    Kind.INTERVAL: "VARCHAR",
    Kind.UUID: "UUID",
    Kind.BYTES: "BLOB",
    Kind.JSON: "JSON",
}
CONVERTS: Mapping[Kind, values.Convert] = dict.fromkeys(
    TYPES, values.text
) | {  # the rest is cast from text
    Kind.INTEGER: values.whole,
    Kind.NUMBER: values.number,
    Kind.BOOLEAN: values.boolean,
    Kind.BYTES: values.binary,
    Kind.JSON: values.json_text,
    Kind.TIME: values.offset_time,
    Kind.TIMESTAMP: values.instant,
}
WIDER = frozenset({("BIGINT", "DOUBLE"), ("BIGINT", "VARCHAR"), ("UUID", "VARCHAR")})


class Config(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """Endpoint configuration."""

    model_config = STRICT | {"title": "DuckDB"}

    path: str = Field(
        title="Path",
        description="The file of the database; it is made if it is not there.",
        min_length=1,
        json_schema_extra=form(0),
    )


DIALECT = Dialect(
    name="DuckDB",
    types=TYPES,
    quote=double_quoted,
    mark="?",
    longest_name=1024,
    same_name=str.casefold,
    strict_nulls=True,
    temporary="TEMPORARY",
    wider=WIDER,
    widens_keys=False,
    comments=True,
)

COLUMNS = """
SELECT c.column_name, c.data_type, c.is_nullable, EXISTS (
  SELECT 1 FROM duckdb_constraints() AS k
  WHERE k.table_oid = c.table_oid AND k.database_oid = c.database_oid
    AND k.constraint_type = 'PRIMARY KEY'
    AND list_contains(k.constraint_column_names, c.column_name))
FROM duckdb_columns() AS c
WHERE c.database_name = current_database() AND c.schema_name = current_schema()
  AND lower(c.table_name) = lower(?)
ORDER BY c.column_index
"""


@contextmanager
def translated(sql: str) -> Iterator[None]:
    """DuckDB's errors as ours."""
    try:
        yield
    except (
        duckdb.ConstraintException,
        duckdb.ConversionException,
        duckdb.InvalidInputException,
        OverflowError,
        pa.ArrowInvalid,
    ) as error:
        raise Refused(f"DuckDB refuses {sql}: {error}") from error
    except (duckdb.ProgrammingError, duckdb.NotSupportedError) as error:  # no such table, say
        raise InvalidUsage(f"DuckDB cannot do {sql}: {error}") from error
    except duckdb.Error as error:
        raise Determinate(f"DuckDB cannot do {sql}: {error}") from error


def execute(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[object]) -> int:
    """Run a statement; how many rows it touched."""
    rows = connection.execute(sql, list(values)).fetchall()
    return int(rows[0][0]) if rows and isinstance(rows[0][0], int) else 0


def fill(
    database: FileDatabase[duckdb.DuckDBPyConnection],
    table: Name,
    columns: Sequence[TableColumn],
    data: Sequence[Elements],
) -> None:
    """By Arrow. Errors: Refused for a value that DuckDB does not take."""
    sql = f"INSERT INTO {DIALECT.table(table)} SELECT * FROM slackwater_rows"
    arrays = values.arrays_of(columns, data, CONVERTS)
    with translated(sql):
        rows = pa.table(arrays, names=[column.name for column in columns])
        database.connection.register("slackwater_rows", rows)
        database.connection.execute(sql)
        database.connection.unregister("slackwater_rows")


# of two sessions that change the same row, the second fails
ENGINE = Engine(
    error=duckdb.Error,
    translated=translated,
    catalog=COLUMNS,
    begin="BEGIN",
    execute=execute,
    fill=fill,
)


@contextmanager
def connect(config: Config) -> Iterator[Database]:
    """A connection. Errors: Determinate if the file cannot be opened."""
    with translated(f"open {config.path}"):
        connection = duckdb.connect(config.path)
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
