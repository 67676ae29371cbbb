"""A connector of PostgreSQL: rows come by COPY into the session's tables, and go on from there.

Types are PostgreSQL's own. JSON is `json`, which keeps its text. A password need not stand in a
configuration: `env:NAME` and `file:PATH` say where it is.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import psycopg
from psycopg.errors import DuplicateTable
from psycopg.types.string import TextLoader
from pydantic import BaseModel, Field

from connectors.config import STRICT, form, secret
from connectors.connector import Refused
from connectors.postgres import date_format
from connectors.postgres.copy_format import copy_text
from connectors.sql import values
from connectors.sql.columns import Kind, TableColumn
from connectors.sql.connector import Resource, SqlConnector
from connectors.sql.dialect import Database, Dialect, Existing, Name, double_quoted
from schemas.flow_columns import Elements
from streams.errors import Determinate, Indeterminate, InvalidUsage

log = logging.getLogger(__name__)

TYPES: Mapping[Kind, str] = {
    Kind.TEXT: "text",
    Kind.INTEGER: "bigint",
    Kind.NUMBER: "double precision",
    Kind.NUMERIC: "numeric",
    Kind.BOOLEAN: "boolean",
    Kind.DATE: "date",
    Kind.TIME: "time with time zone",
    Kind.TIMESTAMP: "timestamp with time zone",
    Kind.INTERVAL: "interval",
    Kind.UUID: "uuid",
    Kind.BYTES: "bytea",
    Kind.JSON: "json",
}
CONVERTS: Mapping[Kind, values.Convert] = dict.fromkeys(TYPES, values.text) | {
    Kind.INTEGER: values.whole,
    Kind.NUMBER: values.number,
    Kind.BOOLEAN: values.boolean,
    Kind.DATE: date_format.date,
    Kind.TIMESTAMP: date_format.instant,
    Kind.BYTES: values.binary,
    Kind.JSON: values.json_text,
}
WIDER = frozenset(
    {
        ("bigint", "double precision"),
        ("bigint", "numeric"),
        ("bigint", "text"),
        ("numeric", "text"),
        ("date", "text"),
        ("uuid", "text"),
    }
)
BATCH = 1024
CATALOG = "pg_catalog"
"""Two tasks that are new in a database make our tables there at the same time: the second finds
a table that was not there, or a row of the catalog."""
OPTIONS = (
    "-c TimeZone=UTC -c DateStyle=ISO -c client_min_messages=warning"
    " -c idle_in_transaction_session_timeout=60s -c lock_timeout=60s"
)
"""A session that is frozen inside of a commit holds locks that its successor needs, and a lock
of somebody else is waited for again, by a session that says so."""
NETWORK = (
    "connect_timeout=10 keepalives_idle=30 keepalives_interval=10 keepalives_count=3"
    " tcp_user_timeout=60000"
)
"""A server that is gone without a word is noticed within a minute."""


class Config(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """Endpoint configuration."""

    model_config = STRICT | {"title": "PostgreSQL"}

    host: str = Field(
        title="Host",
        description="Name or address of the server, or the directory of its socket.",
        min_length=1,
        json_schema_extra=form(0),
    )
    port: int = Field(
        default=5432,
        title="Port",
        description="The port that the server listens on.",
        ge=1,
        le=65535,
        json_schema_extra=form(1),
    )
    database: str = Field(
        title="Database",
        description="The database that the tables are in.",
        min_length=1,
        json_schema_extra=form(2),
    )
    user: str = Field(
        title="User",
        description="The role that the connector connects as.",
        min_length=1,
        json_schema_extra=form(3),
    )
    password: str = Field(
        default="",
        title="Password",
        description="The role's password, or env:NAME or file:PATH, where it is found.",
        json_schema_extra=form(4, secret=True),
    )
    sslmode: str = Field(
        default="prefer",
        title="SSL mode",
        description="Whether the connection is encrypted, as libpq names it.",
        pattern="^(disable|allow|prefer|require|verify-ca|verify-full)$",
        json_schema_extra=form(5),
    )


class PostgresResource(Resource):  # type: ignore[explicit-any] # JSON is recursive
    """A table, in a schema if one is named."""

    schema_name: str = Field(
        default="",
        title="Schema",
        description="The schema of the table; empty: the first of the search path.",
        json_schema_extra=form(5, mark="x-schema-name"),
    )

    @property
    def name(self) -> Name:
        """The table."""
        return (self.schema_name, self.table) if self.schema_name else (self.table,)


DIALECT = Dialect(
    name="PostgreSQL",
    types=TYPES,
    quote=double_quoted,
    mark="%s",
    longest_name=63,
    same_name=str,
    own_columns=frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"}),
    strict_nulls=True,
    incomparable=frozenset({Kind.JSON}),
    temporary="TEMPORARY",
    wider=WIDER,
    comments=True,
    clear="TRUNCATE",  # deleted rows would stay: nothing vacuums a session's tables
    lock="LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE",
)

COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull, EXISTS (
  SELECT 1 FROM pg_index WHERE indrelid = attrelid AND indisprimary AND attnum = ANY (indkey))
FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
"""


class Postgres:
    """A connection; a statement outside of a transaction is one of its own."""

    def __init__(self, connection: "psycopg.Connection[tuple[object, ...]]") -> None:
        self.connection = connection

    def execute(self, sql: str, values: Sequence[object] = ()) -> int:
        """Errors: Refused for a value or row, InvalidUsage for a statement; Determinate."""
        with translated(sql):
            return self.connection.execute(sql.encode(), values or None).rowcount

    def select(self, sql: str, values: Sequence[object] = ()) -> Iterator[Sequence[object]]:
        """Errors: Determinate."""
        with translated(sql):
            cursor = self.connection.execute(sql.encode(), values or None)
            while rows := cursor.fetchmany(BATCH):
                yield from rows

    def fill(
        self, table: Name, columns: Sequence[TableColumn], data: Sequence[Elements]
    ) -> None:
        """By COPY. Errors: Refused for a value that PostgreSQL does not take."""
        sql = f"COPY {DIALECT.table(table)} FROM STDIN"
        text = copy_text(values.arrays_of(columns, data, CONVERTS))
        with (
            translated(sql),
            self.connection.cursor() as cursor,
            cursor.copy(sql.encode()) as copy,
        ):
            copy.write(text)

    def columns_of(self, table: Name) -> Mapping[str, Existing]:
        """From PostgreSQL's own catalog."""
        rows = self.select(COLUMNS, [DIALECT.table(table)])
        return {
            str(name): Existing(type=str(type_), nullable=bool(nullable), key=bool(key))
            for name, type_, nullable, key in rows
        }

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Errors: Refused for a deferred constraint; Indeterminate without an answer."""
        with translated("BEGIN"):
            self.connection.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._roll_back()
            raise
        try:
            with translated("COMMIT"):
                self.connection.execute("COMMIT")
        except Determinate as error:
            raise Indeterminate(f"PostgreSQL did not answer to COMMIT: {error}") from error

    def _roll_back(self) -> None:
        """The raised error is the cause, not that a server which is gone rolls back itself."""
        try:
            self.connection.execute("ROLLBACK")
        except psycopg.Error as error:
            log.info("nothing rolled back", extra={"error": str(error)})


@contextmanager
def translated(sql: str) -> Iterator[None]:
    """PostgreSQL's errors as ours."""
    try:
        yield
    except (psycopg.IntegrityError, psycopg.DataError) as error:
        if error.diag.schema_name == CATALOG:
            raise Determinate(f"PostgreSQL cannot do {sql} now: {error}") from error
        raise Refused(f"PostgreSQL refuses {sql}: {error}") from error
    except DuplicateTable as error:
        raise Determinate(f"PostgreSQL cannot do {sql} now: {error}") from error
    except (psycopg.ProgrammingError, psycopg.NotSupportedError) as error:  # no such table, say
        raise InvalidUsage(f"PostgreSQL cannot do {sql}: {error}") from error
    except psycopg.Error as error:
        raise Determinate(f"PostgreSQL cannot do {sql}: {error}") from error


@contextmanager
def connect(environment: Mapping[str, str], config: Config) -> Iterator[Database]:
    """A connection. Errors: Determinate if the server cannot be reached."""
    with translated(f"connect to {config.host}"):
        connection = psycopg.connect(
            NETWORK,
            host=config.host,
            port=config.port,
            dbname=config.database,
            user=config.user,
            password=secret(environment, config.password) or None,
            sslmode=config.sslmode,
            application_name="slackwater",
            options=OPTIONS,
            autocommit=True,
        )
    connection.adapters.register_loader("json", TextLoader)
    try:
        yield Postgres(connection)
    finally:
        connection.close()


def connector(environment: Mapping[str, str]) -> SqlConnector[Config, PostgresResource]:
    """The connector; `environment` is where `env:NAME` is looked up."""
    return SqlConnector(
        dialect=DIALECT,
        config=Config,
        resource=PostgresResource,
        connect=partial(connect, environment),
        documentation="connectors/docs/DATABASES.md",
    )
