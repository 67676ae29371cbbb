"""The SQLite connector: columns, constraints, what Apply does, and what is in the tables."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from connectors import sqlite
from connectors.protocol.spec_builder import Collection, FieldSpec
from connectors.transport.errors import ConnectorFailed
from schemas import materialize_pb2 as wire
from streams.errors import Determinate
from tests.support.endpoints import Endpoint, failing, write
from tests.support.materialization_tasks import NAMES


@pytest.fixture
def endpoint(memory_path: Path) -> Endpoint:
    path = str(memory_path / "test.db")

    def query(sql: str) -> list[Any]:
        connection = sqlite3.connect(path)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    return Endpoint(connector=sqlite.CONNECTOR, config={"path": path}, query=query)


def test_spec_says_what_it_takes(endpoint: Endpoint) -> None:
    """Seed, "Spec" and "Endpoint specification": schemas, documentation, what is required."""
    response = endpoint.driver.spec(wire.SpecRequest())
    schema = json.loads(response.endpoint_spec_schema_json)
    assert schema["required"] == ["path"]
    assert schema["properties"]["path"]["title"] == "Path"
    assert schema["properties"]["path"]["description"].endswith(".")
    assert "additionalProperties" not in schema
    resource = json.loads(response.resource_spec_schema_json)
    assert resource["properties"]["table"]["x-collection-name"] is True
    assert resource["properties"]["delta_updates"]["x-delta-updates"] is True
    assert [property_["order"] for property_ in resource["properties"].values()] == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert response.extensions.delete
    assert response.documentation_url


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"path": "x", "pth": 1}, "pth: Extra inputs are not permitted"),
        ({}, "path: Field required"),
        ({"path": "/nowhere/at/all.db"}, "unable to open database file"),
    ],
)
def test_a_configuration_that_is_wrong_is_refused(
    endpoint: Endpoint, config: Any, error: str
) -> None:
    """Seed, "Validate": that you can connect, and that the configuration is valid."""
    endpoint.config = config
    with pytest.raises(ConnectorFailed, match=error):
        endpoint.validate(NAMES)
    endpoint.config = {"path": ":memory:"}
    with pytest.raises(
        ConnectorFailed, match="binding 0: resource configuration: tabel: Extra"
    ):
        endpoint.validate(NAMES, tabel="x")


def test_every_field_has_a_constraint(endpoint: Endpoint) -> None:
    """Seed, "Validate": field constraints for each projection."""
    every = Collection(
        name="every",
        keys=("id",),
        columns=(
            FieldSpec(name="id", types=("integer",)),
            FieldSpec(name="text", types=("string", "null"), required=False),
            FieldSpec(name="list", types=("array",)),
            FieldSpec(name="mixed", types=("string", "boolean")),
            FieldSpec(name="never", types=("null",)),
            FieldSpec(name="slackwater exists"),
        ),
    )
    assert endpoint.kinds(every) == {
        "id": "LOCATION_REQUIRED",
        "text": "LOCATION_RECOMMENDED",
        "list": "FIELD_OPTIONAL",
        "mixed": "FIELD_OPTIONAL",
        "never": "FIELD_FORBIDDEN",
        "slackwater exists": "FIELD_FORBIDDEN",
        "flow_document": "LOCATION_REQUIRED",
    }
    assert endpoint.kinds(every, delta_updates=True)["flow_document"] == "LOCATION_RECOMMENDED"


def test_a_key_that_can_be_null_and_names_that_are_one_are_refused(endpoint: Endpoint) -> None:
    wrong = Collection(
        name="wrong",
        keys=("id",),
        columns=(
            FieldSpec(name="id", types=("integer", "null")),
            FieldSpec(name="Name"),
            FieldSpec(name="name"),
        ),
    )
    constraints = endpoint.validate(wrong)
    assert failing(constraints) == ["Name", "id", "name"]
    assert constraints["id"][1].startswith("a part of the key is never null")
    assert (
        constraints["name"][1] == "SQLite cannot tell the column from Name; rename one of them"
    )
    with pytest.raises(ConnectorFailed, match="table t: id: a part of the key is never null"):
        endpoint.apply(endpoint.task(wrong))


def test_apply_says_what_it_does_and_does_it_once(endpoint: Endpoint) -> None:
    """Seed, "Apply": tables are set up; a dry run only says what it would do."""
    spec = endpoint.task(NAMES)
    statements = endpoint.apply(spec, dry_run=True)
    assert endpoint.query("SELECT * FROM sqlite_schema") == []
    assert endpoint.apply(spec) == statements
    assert statements.splitlines()[2:] == [
        'CREATE TABLE "t" (',
        '  "id" INTEGER NOT NULL,',
        '  "name" TEXT,',
        '  "flow_document" TEXT,',
        '  PRIMARY KEY ("id")',
        ");",
        "-- record task test, version 1",
    ]
    assert endpoint.apply(spec) == "", "empty: nothing to do"
    assert endpoint.apply(spec, version="2") == "-- record task test, version 2"


@pytest.mark.parametrize(
    ("columns", "keys", "error"),
    [
        (
            ("integer", "integer"),
            ("id",),
            "the column is TEXT, expected INTEGER; name",
        ),
        (("string", "string"), ("id",), "the column is INTEGER, expected TEXT; name another"),
        (("integer", "string"), ("id", "name"), "the column is not part of the table's key"),
        (("integer", "string"), ("name",), "the column is part of the table's key"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_the_way_out(
    endpoint: Endpoint, columns: Any, keys: Any, error: str
) -> None:
    """Seed, "Validate": the request fails if the database cannot update the schema."""
    endpoint.apply(endpoint.task(NAMES))
    id_, name = columns
    other = Collection(
        name=NAMES.name,
        keys=keys,
        columns=(FieldSpec(name="id", types=(id_,)), FieldSpec(name="name", types=(name,))),
    )
    assert any(error in reason for _, reason in endpoint.validate(other).values())
    with pytest.raises(ConnectorFailed, match="table t: "):
        endpoint.apply(endpoint.task(other))


TYPES = [
    (FieldSpec(name="v", types=("boolean",)), True, "BOOLEAN", 1),
    (FieldSpec(name="v", types=("integer",)), -(2**63), "INTEGER", -(2**63)),
    (FieldSpec(name="v", types=("number",)), 1, "REAL", 1.0),
    (FieldSpec(name="v", types=("integer", "number")), 2.5, "REAL", 2.5),
    (FieldSpec(name="v"), "ä\x00b", "TEXT", "ä\x00b"),
    (
        FieldSpec(name="v", format="date-time"),
        "2026-01-01T00:00:00Z",
        "TEXT",
        "2026-01-01T00:00:00Z",
    ),
    (
        FieldSpec(name="v", types=("string", "integer"), format="integer"),
        10**18,
        "TEXT",
        f"{10**18}",
    ),
    (FieldSpec(name="v", format="number"), "1e400", "TEXT", "1e400"),
    (FieldSpec(name="v", base64=True), "AP8=", "BLOB", b"\x00\xff"),
    (
        FieldSpec(name="v", types=("object",)),
        {"b": 1, "a": [None]},
        "TEXT",
        '{"a":[null],"b":1}',
    ),
    (FieldSpec(name="v", types=("string", "boolean")), "x", "TEXT", '"x"'),
    (FieldSpec(name="v", types=("string", "array")), [1], "TEXT", "[1]"),
]


@pytest.mark.parametrize(("column", "value", "type_", "stored"), TYPES, ids=range(len(TYPES)))
def test_a_value_is_kept_as_its_column_has_it(
    endpoint: Endpoint, column: FieldSpec, value: Any, type_: str, stored: Any
) -> None:
    """Seed, "Store": values of the fields in the order of the binding."""
    collection = Collection(
        name="c", keys=("id",), columns=(FieldSpec(name="id", types=("integer",)), column)
    )
    spec = endpoint.task(collection)
    endpoint.apply(spec)
    assert endpoint.query("SELECT type FROM pragma_table_info('t') WHERE name = 'v'") == [
        (type_,)
    ]
    write(endpoint, spec, [{"id": 1, "v": value}, {"id": 2, "v": None}])
    assert endpoint.query("SELECT v FROM t ORDER BY id") == [(stored,), (None,)]


@pytest.mark.parametrize(
    ("column", "value", "error"),
    [
        (
            FieldSpec(name="v", types=("integer",)),
            2**63,
            "column v: expected an integer of at",
        ),
        (
            FieldSpec(name="v", types=("number",)),
            "x",
            "column v: expected a number, actual 'x'",
        ),
        (FieldSpec(name="v", base64=True), "!", "column v: "),
    ],
    ids=["too large", "no number", "no base64"],
)
def test_a_value_that_does_not_fit_is_named(
    endpoint: Endpoint, column: FieldSpec, value: Any, error: str
) -> None:
    collection = Collection(
        name="c", keys=("id",), columns=(FieldSpec(name="id", types=("integer",)), column)
    )
    spec = endpoint.task(collection)
    endpoint.apply(spec)
    with pytest.raises(ConnectorFailed, match=error):
        write(endpoint, spec, [{"id": 1, "v": value}])
    assert endpoint.query("SELECT * FROM t") == []


def test_a_full_disk_is_told_as_it_is(tmp_path: Path) -> None:
    """SQLite rolls the transaction back by itself then: there is none left to roll back."""
    with sqlite.connect(sqlite.Config(path=str(tmp_path / "full.db"))) as database:
        database.execute("CREATE TABLE t (x BLOB)")
        database.execute("PRAGMA max_page_count = 3")
        with pytest.raises(Determinate, match="disk is full"), database.transaction():
            database.execute("INSERT INTO t VALUES (zeroblob(40000))")
        database.execute("PRAGMA max_page_count = 100")
        with database.transaction():
            assert database.execute("INSERT INTO t VALUES (zeroblob(40000))") == 1
