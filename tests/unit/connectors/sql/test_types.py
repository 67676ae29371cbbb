"""Column types of PostgreSQL and DuckDB: values as they are, evolution, comments, names."""

import datetime as dt
import json
import threading
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import psycopg
import pytest

from connectors import duckdb as duckdb_connector
from connectors import postgres as postgres_connector
from connectors import testing
from connectors.config import secret
from connectors.connector import Refused
from connectors.protocol import arena_codec, messages
from connectors.protocol.spec_builder import Collection, FieldSpec
from connectors.runtime.runner import can_pass
from connectors.sql import columns as sql_columns
from connectors.sql.columns import Kind
from connectors.sql.ddl import create_meta
from connectors.sql.file_database import FileDatabase
from connectors.transport.errors import ConnectorFailed, causes
from schemas.flow_columns import Elements
from schemas.materialize_pb2 import SpecRequest
from streams.errors import Determinate, InvalidUsage
from tests.support.endpoints import Endpoint, failing, write
from tests.support.materialization_tasks import NAMES
from tests.support.postgres import Server

ID = FieldSpec(name="id", types=("integer",))
NUMBER = FieldSpec(name="v", types=("string", "integer"), format="integer")
STAMP = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
UID = "6f1e1a52-0000-4000-8000-000000000001"
LARGE = 123456789012345678901234567890

POSTGRES = [
    (FieldSpec(name="v", types=("boolean",)), True, "boolean", True),
    (FieldSpec(name="v", types=("integer",)), -(2**63), "bigint", -(2**63)),
    (FieldSpec(name="v", types=("number",)), 1, "double precision", 1.0),
    (FieldSpec(name="v"), "tab\t\\N\n\"ä'", "text", "tab\t\\N\n\"ä'"),
    (NUMBER, f"{LARGE}", "numeric", Decimal(LARGE)),
    (NUMBER, 7, "numeric", Decimal(7)),
    (FieldSpec(name="v", format="number"), "1.50", "numeric", Decimal("1.50")),
    (FieldSpec(name="v", format="date"), "2026-01-02", "date", dt.date(2026, 1, 2)),
    (
        FieldSpec(name="v", format="date-time"),
        "2026-01-02T04:04:05+01:00",
        "timestamp with time zone",
        STAMP,
    ),
    (
        FieldSpec(name="v", format="time"),
        "03:04:05Z",
        "time with time zone",
        dt.time(3, 4, 5, tzinfo=dt.UTC),
    ),
    (
        FieldSpec(name="v", format="duration"),
        "P1DT2H",
        "interval",
        dt.timedelta(days=1, hours=2),
    ),
    (FieldSpec(name="v", format="uuid"), UID, "uuid", UUID(UID)),
    (FieldSpec(name="v", base64=True), "AP8=", "bytea", b"\x00\xff"),
    (FieldSpec(name="v", types=("array",)), [1, None], "json", [1, None]),
    (FieldSpec(name="v", types=("string", "boolean")), "x", "json", "x"),
]

DUCKDB = [
    (FieldSpec(name="v", types=("boolean",)), True, "BOOLEAN", True),
    (FieldSpec(name="v", types=("integer",)), -(2**63), "BIGINT", -(2**63)),
    (FieldSpec(name="v", types=("number",)), 1, "DOUBLE", 1.0),
    (FieldSpec(name="v"), "a\x00ä", "VARCHAR", "a\x00ä"),
    (NUMBER, 7, "VARCHAR", "7"),
    (FieldSpec(name="v", format="date"), "2026-01-02", "DATE", dt.date(2026, 1, 2)),
    (
        FieldSpec(name="v", format="uuid"),
        UID,
        "UUID",
        UUID(UID),
    ),
    (FieldSpec(name="v", base64=True), "AP8=", "BLOB", b"\x00\xff"),
    (FieldSpec(name="v", types=("object",)), {"b": 1}, "JSON", '{"b":1}'),
]


@pytest.fixture
def on_postgres(postgres: Server) -> Endpoint:
    config = postgres.config()
    return Endpoint(
        connector=postgres_connector.connector({}),
        config=config,
        query=lambda sql: postgres.query(config["database"], sql),
    )


@pytest.fixture
def on_duckdb(memory_path: Path) -> Endpoint:
    file = str(memory_path / "test.duckdb")

    def query(sql: str) -> list[Any]:
        with duckdb.connect(file) as connection:
            return connection.execute(sql).fetchall()

    return Endpoint(connector=duckdb_connector.CONNECTOR, config={"path": file}, query=query)


def one(column: FieldSpec, name: str = "v") -> Collection:
    return Collection(name=f"c{name}", keys=("id",), columns=(ID, column))


def test_postgres_keeps_values_as_they_are(on_postgres: Endpoint) -> None:
    """Seed, "Store": each type that a projection can have, in one table each."""
    for index, (column, value, type_, stored) in enumerate(POSTGRES):
        table, task = f"t{index}", f"task{index}"
        spec = on_postgres.task(one(replace(column, required=False)), table, name=task)
        on_postgres.apply(spec)
        write(on_postgres, spec, [{"id": 1, "v": value}, {"id": 2, "v": None}])
        rows = on_postgres.query(f"SELECT v, pg_typeof(v)::text FROM {table} ORDER BY id")
        assert rows == [(stored, type_), (None, type_)], column


def test_duckdb_keeps_values_as_they_are(on_duckdb: Endpoint) -> None:
    for index, (column, value, type_, stored) in enumerate(DUCKDB):
        table, task = f"t{index}", f"task{index}"
        spec = on_duckdb.task(one(column), table, name=task)
        on_duckdb.apply(spec)
        write(on_duckdb, spec, [{"id": 1, "v": value}])
        types = "SELECT data_type FROM information_schema.columns"
        names = f"table_name = '{table}' AND column_name = 'v'"
        assert on_duckdb.query(f"SELECT v FROM {table}") == [(stored,)], column
        assert on_duckdb.query(f"{types} WHERE {names}") == [(type_,)]


def test_duckdb_takes_times(on_duckdb: Endpoint) -> None:
    fields = (
        FieldSpec(name="stamp", format="date-time"),
        FieldSpec(name="of_day", format="time"),
    )
    spec = on_duckdb.task(Collection(name="c", keys=("id",), columns=(ID, *fields)))
    on_duckdb.apply(spec)
    assert on_duckdb.apply(spec) == ""
    stamps = ["2026-01-02T04:04:05+01:00", "2026-01-02T03:04:05Z"]
    times = ["03:04:05Z", "04:04:05+01"]
    pairs = enumerate(zip(stamps, times, strict=True))
    write(on_duckdb, spec, [{"id": i, "stamp": at, "of_day": of} for i, (at, of) in pairs])
    rows = on_duckdb.query("SELECT epoch_ms(stamp), of_day::VARCHAR FROM t ORDER BY id")
    stamp = int(STAMP.timestamp() * 1000)
    assert rows == [(stamp, "03:04:05+00"), (stamp, "04:04:05+01")]


TEXTS = ["\\N", "\\.", "", "\r\n", "\\t\t", "a\\\nb", "\\\\", " ", "\x7f\x1b", "ä😀", None]
NUMBERS = [-0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e15, 1e16, 123456789.125, 1 / 3, -2.5]
WHOLE = [0, -(2**63), 2**63 - 1, 1, -1, None, 10**18, 255, 256]
COPIED = [
    (Kind.TEXT, TEXTS, TEXTS),
    (Kind.NUMBER, [*NUMBERS, None], [*NUMBERS, None]),
    (Kind.INTEGER, WHOLE, WHOLE),
    (Kind.BOOLEAN, [True, False, None], [True, False, None]),
    (Kind.BYTES, ["AP8=", "", "XFxO", None], [b"\x00\xff", b"", b"\\\\N", None]),
]


@pytest.mark.parametrize(("kind", "value", "stored"), COPIED, ids=lambda case: str(case)[:12])
def test_what_is_copied_is_what_was_given(
    on_postgres: Endpoint, kind: Kind, value: Any, stored: Any
) -> None:
    """Beside a column of text and one of whole numbers, in one COPY."""
    config = postgres_connector.Config(**on_postgres.config)
    columns = [
        sql_columns.TableColumn(name=name, kind=kind_, nullable=True)
        for name, kind_ in (("n", Kind.INTEGER), ("v", kind), ("t", Kind.TEXT))
    ]
    data = [range(len(value)), value, ["\t"] * len(value)]
    with postgres_connector.connect({}, config) as database:
        types = [postgres_connector.TYPES[column.kind] for column in columns]
        database.execute(f"CREATE TABLE t (n {types[0]}, v {types[1]}, t {types[2]})")
        database.fill(("t",), columns, [Elements.of(list(values)) for values in data])
        rows = [row[1] for row in database.select("SELECT n, v, t FROM t ORDER BY n")]
    assert repr(rows) == repr(stored)


@pytest.mark.parametrize("value", ["a\x00b", "x" * 10], ids=["NUL", "no date"])
def test_what_postgres_does_not_take_is_refused_by_name(
    on_postgres: Endpoint, value: str
) -> None:
    column = FieldSpec(name="v", format="" if "\x00" in value else "date")
    spec = on_postgres.task(one(column))
    on_postgres.apply(spec)
    with pytest.raises(ConnectorFailed, match="PostgreSQL refuses COPY"):
        write(on_postgres, spec, [{"id": 1, "v": value}])
    assert on_postgres.query("SELECT * FROM t") == []


@pytest.mark.parametrize("name", ["on_postgres", "on_duckdb"])
def test_columns_widen_and_lose_their_obligation(name: str, request: Any) -> None:
    """Seed, "Validate": what changes have occurred, and which of them the database can do."""
    endpoint: Endpoint = request.getfixturevalue(name)
    endpoint.apply(endpoint.task(one(FieldSpec(name="v", types=("integer",)))))
    write(
        endpoint,
        endpoint.task(one(FieldSpec(name="v", types=("integer",)))),
        [{"id": 1, "v": 3}],
    )
    wider = endpoint.task(one(FieldSpec(name="v", types=("number",), required=False)))
    statements = endpoint.apply(wider).splitlines()
    assert [line.split('"t" ')[1] for line in statements[:2]] == [
        f'ALTER COLUMN "v" SET DATA TYPE {statements[0].split("TYPE ")[1]}',
        'ALTER COLUMN "v" DROP NOT NULL;',
    ]
    write(endpoint, wider, [{"id": 2, "v": 1.5}, {"id": 3}])
    assert endpoint.query("SELECT v FROM t ORDER BY id") == [(3.0,), (1.5,), (None,)]
    narrower = one(FieldSpec(name="v", types=("boolean",)))
    assert failing(endpoint.validate(narrower)) == ["v"]
    dropped = Collection(
        name="cv", keys=("id",), columns=(ID, FieldSpec(name="w", required=False))
    )
    assert "ADD COLUMN" in endpoint.apply(endpoint.task(dropped))


def test_a_column_that_nobody_writes_loses_its_obligation(on_postgres: Endpoint) -> None:
    on_postgres.apply(on_postgres.task(one(FieldSpec(name="v"))))
    spec = on_postgres.task(one(FieldSpec(name="v")), fields=())
    assert on_postgres.apply(spec).splitlines()[0] == (
        'ALTER TABLE "t" ALTER COLUMN "v" DROP NOT NULL;'
    )
    write(on_postgres, spec, [{"id": 1}])
    assert on_postgres.query("SELECT id, v FROM t") == [(1, None)]


def test_columns_have_the_descriptions_of_their_fields(on_postgres: Endpoint) -> None:
    column = FieldSpec(name="v", description="what it's for")
    on_postgres.apply(on_postgres.task(one(column)))
    sql = "SELECT col_description('t'::regclass, 2)"
    assert on_postgres.query(sql) == [("what it's for",)]


def test_names_past_63_bytes_are_refused(on_postgres: Endpoint) -> None:
    name = "ä" * 32
    reason = on_postgres.validate(one(FieldSpec(name=name)))[name][1]
    assert reason.startswith("PostgreSQL takes names of 1 to 63 bytes, this one has 64")


def test_names_that_differ_by_case_are_two_columns(on_postgres: Endpoint) -> None:
    both = Collection(
        name="c", keys=("Id",), columns=(FieldSpec(name="Id"), FieldSpec(name="id"))
    )
    spec = on_postgres.task(both)
    on_postgres.apply(spec)
    write(on_postgres, spec, [{"Id": "x", "id": "y"}])
    assert on_postgres.query('SELECT "Id", id FROM t') == [("x", "y")]


def test_a_table_is_in_its_schema(on_postgres: Endpoint, postgres: Server) -> None:
    with postgres.connect(on_postgres.config["database"]) as connection:
        connection.execute(b'CREATE SCHEMA "my schema"')
    task = on_postgres.task(NAMES, "t", schema_name="my schema")
    task.bindings[0].resource_path[:] = ["my schema", "t"]
    on_postgres.apply(task)
    write(on_postgres, task, [{"id": 1, "name": "a"}])
    assert on_postgres.query('SELECT name FROM "my schema".t') == [("a",)]


def test_a_password_is_secret_and_is_looked_up(memory_path: Path) -> None:
    """Seed, "Endpoint specification": hostname, credentials."""
    response = postgres_connector.connector({}).spec(SpecRequest())
    properties = json.loads(response.endpoint_spec_schema_json)["properties"]
    assert [name for name, property_ in properties.items() if property_.get("secret")] == [
        "password"
    ]
    (memory_path / "word").write_text("x\n")
    assert secret({"A": "b"}, "env:A") == "b"
    assert secret({}, f"file:{memory_path}/word") == "x"
    assert secret({}, "plain") == "plain"
    with pytest.raises(InvalidUsage, match="environment variable A"):
        secret({}, "env:A")
    (memory_path / "bytes").write_bytes(b"\xffword")
    for place in ("/nowhere", f"{memory_path}/bytes", f"{memory_path}", "a\0b"):
        with pytest.raises(InvalidUsage, match=r"expected a secret (as UTF-8 text )?in"):
            secret({}, f"file:{place}")


def test_a_server_that_is_not_there_is_named() -> None:
    config = postgres_connector.Config(host="127.0.0.1", port=1, database="d", user="u")
    with (
        pytest.raises(Determinate, match=r"cannot do connect to 127.0.0.1"),
        postgres_connector.connect({}, config),
    ):
        pass


def test_tasks_that_are_new_together_take_turns(on_postgres: Endpoint) -> None:
    """Both make the tables of ours; the second is tried again, and finds them."""
    config = postgres_connector.Config(**on_postgres.config)
    failures: list[ConnectorFailed] = []

    def apply() -> None:
        try:
            on_postgres.apply(on_postgres.task(NAMES, "u", name="second"))
        except ConnectorFailed as failure:
            failures.append(failure)

    second = threading.Thread(target=apply)
    with postgres_connector.connect({}, config) as database, database.transaction():
        for statement in create_meta(postgres_connector.DIALECT):
            database.execute(statement)
        second.start()
        while on_postgres.query("SELECT 1 FROM pg_locks WHERE NOT granted") == []:
            pass
    second.join()
    assert [can_pass(failure) for failure in failures] == [True]
    on_postgres.apply(on_postgres.task(NAMES, "u", name="second"))


def test_what_a_deferred_constraint_refuses_is_refused(on_postgres: Endpoint) -> None:
    """It is known at the commit alone, and of a document all the same."""
    spec = on_postgres.task(NAMES)
    on_postgres.apply(spec)
    config = postgres_connector.Config(**on_postgres.config)
    with postgres_connector.connect({}, config) as database:
        database.execute("ALTER TABLE t ADD UNIQUE (name) DEFERRABLE INITIALLY DEFERRED")
    write(on_postgres, spec, [{"id": 1, "name": "a"}])
    with pytest.raises(ConnectorFailed, match=r"PostgreSQL refuses COMMIT: .*unique") as caught:
        write(on_postgres, spec, [{"id": 2, "name": "a"}])
    assert any(isinstance(cause, Refused) for cause in causes(caught.value))
    assert on_postgres.query("SELECT id FROM t") == [(1,)]


class Leaving:
    """A connection whose server ends between a statement and the ROLLBACK."""

    broken = False

    def execute(self, sql: Any, values: Any = ()) -> Any:
        text = str(sql)
        if "BEGIN" not in text:
            raise psycopg.OperationalError(f"the server is gone at {text}")


def test_a_server_that_leaves_before_a_rollback_is_told_as_it_is() -> None:
    leaving: Any = Leaving()
    database = postgres_connector.Postgres(leaving)
    with pytest.raises(Determinate, match="gone at b'INSERT'"), database.transaction():
        database.execute("INSERT")


def test_sessions_that_open_together_take_turns(on_postgres: Endpoint) -> None:
    """A session that opens waits for commits under way, and begins behind none of them."""
    spec = on_postgres.task(testing.ACCOUNTS)
    on_postgres.apply(spec)
    subject = testing.Subject(
        driver=on_postgres.driver, endpoint=on_postgres.config, resource=lambda _: {}
    )
    with subject.session(spec) as older:
        testing.commit(older, 1)
        config = postgres_connector.Config(**on_postgres.config)
        with postgres_connector.connect({}, config) as database:
            with database.transaction():
                table = "slackwater_checkpoints"
                database.execute(f"UPDATE {table} SET read_through = read_through")
                opening = on_postgres.driver.transport.transactions()
                waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
                request = messages.Open(materialization=spec, version="1")
                for part in arena_codec.encode_request(request):
                    opening.send(part.SerializeToString())
                while on_postgres.query(waiting) == [(0,)]:
                    pass
            opened = arena_codec.parse_response(opening.receive() or b"")
        assert isinstance(opened, messages.Opened)
        assert opened.checkpoint == testing.checkpoint(1)
        opening.close()
        with pytest.raises(ConnectorFailed, match="another session took the key range"):
            testing.commit(older, 2)


def test_a_session_that_freezes_in_a_commit_is_ended(on_postgres: Endpoint) -> None:
    """Its locks would keep the session that took its range over waiting for ever."""
    config = postgres_connector.Config(**on_postgres.config)
    with postgres_connector.connect({}, config) as database:
        shown = database.select("SHOW idle_in_transaction_session_timeout")
        assert [list(row) for row in shown] == [["1min"]]


def test_a_fatal_error_of_duckdb_is_told_and_not_that_nothing_is_left(
    memory_path: Path,
) -> None:
    """After it every statement fails, ROLLBACK too."""
    config = duckdb_connector.Config(path=str(memory_path / "test.duckdb"))
    with duckdb_connector.connect(config) as opened:
        assert isinstance(opened, FileDatabase)
        dying: Any = Dying(opened.connection)
        database = FileDatabase(dying, duckdb_connector.ENGINE)
        with pytest.raises(Determinate, match="the disk is gone"), database.transaction():
            database.execute("INSERT INTO t VALUES (1)")


class Dying:
    """A connection that takes BEGIN, and nothing after it."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def execute(self, sql: str, values: Any = ()) -> Any:
        if sql == "BEGIN":
            return self.connection.execute(sql)
        message = "the disk is gone" if sql.startswith("INSERT") else "database is invalidated"
        raise duckdb.FatalException(message)
