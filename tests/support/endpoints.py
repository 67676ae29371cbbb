"""Databases of the connectors' tests: one task in them, and what is in its tables."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from connectors import duckdb as duckdb_connector
from connectors import postgres as postgres_connector
from connectors import sqlite as sqlite_connector
from connectors import testing
from connectors.driver import Driver
from connectors.protocol import messages
from connectors.protocol.messages import Tuples
from connectors.protocol.spec_builder import Bind, Collection, materialization
from connectors.transport.local import Local
from schemas import materialize_pb2 as wire
from schemas.flow_pb2 import MaterializationSpec
from schemas.flow_tuple import element


@dataclass(kw_only=True)
class Endpoint:
    """A database that a connector of ours can reach."""

    connector: Any
    config: dict[str, Any]
    query: Callable[[str], list[Any]]

    @property
    def driver(self) -> Driver:
        return Driver(Local(self.connector))

    def task(
        self, collection: Collection, table: str = "t", name: str = "test", **options: Any
    ) -> MaterializationSpec:
        """A task of one table; `fields` selects, other options are the resource's."""
        fields = options.pop("fields", None)
        bind = Bind(
            collection=collection,
            resource={"table": table, **options},
            path=(table,),
            delta=options.get("delta_updates", False),
            fields=fields,
        )
        return materialization(name, self.config, [bind])

    def apply(
        self, spec: MaterializationSpec, version: str = "1", dry_run: bool = False
    ) -> str:
        request = wire.ApplyRequest(materialization=spec, version=version, dry_run=dry_run)
        return self.driver.apply(request).action_description

    def validate(self, collection: Collection, table: str = "t", **options: Any) -> Any:
        """The constraints of each field: (type, reason)."""
        spec = self.task(collection, table, **options)
        request = wire.ValidateRequest(
            materialization="test",
            endpoint_spec_json=spec.endpoint_spec_json,
            bindings=[
                wire.ValidateRequest.Binding(
                    resource_spec_json=binding.resource_spec_json, collection=binding.collection
                )
                for binding in spec.bindings
            ],
        )
        (binding,) = self.driver.validate(request).bindings
        return {
            name: (wire.Constraint.Type.Name(constraint.type), constraint.reason)
            for name, constraint in binding.constraints.items()
        }

    def kinds(self, collection: Collection, **options: Any) -> dict[str, str]:
        return {name: kind for name, (kind, _) in self.validate(collection, **options).items()}


def on_sqlite(path: Path, _: Any) -> Endpoint:
    file = str(path / "test.db")

    def query(sql: str) -> list[Any]:
        connection = sqlite3.connect(file, isolation_level=None)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    return Endpoint(connector=sqlite_connector.CONNECTOR, config={"path": file}, query=query)


def on_duckdb(path: Path, _: Any) -> Endpoint:
    file = str(path / "test.duckdb")

    def query(sql: str) -> list[Any]:
        with duckdb.connect(file) as connection:
            return connection.execute(sql).fetchall()

    return Endpoint(connector=duckdb_connector.CONNECTOR, config={"path": file}, query=query)


def on_postgres(_: Path, request: Any) -> Endpoint:
    server = request.getfixturevalue("postgres")
    config = server.config()

    def query(sql: str) -> list[Any]:
        with server.connect(config["database"]) as connection:
            cursor = connection.execute(sql.encode())
            return list(cursor.fetchall()) if cursor.description else []

    return Endpoint(connector=postgres_connector.connector({}), config=config, query=query)


def failing(constraints: dict[str, Any]) -> Sequence[str]:
    bad = {"UNSATISFIABLE", "FIELD_FORBIDDEN"}
    return sorted(name for name, (kind, _) in constraints.items() if kind in bad)


Documents = list[dict[str, Any]]


def write(
    endpoint: Endpoint, spec: Any, documents: list[dict[str, Any]], **options: Any
) -> None:
    """One transaction that stores documents."""
    (binding,) = spec.bindings
    keys, values = binding.field_selection.keys, binding.field_selection.values
    message = messages.Store(
        binding=0,
        keys=Tuples.of(
            [[element(document.get(name)) for name in keys] for document in documents]
        ),
        values=Tuples.of(
            [[element(document.get(name)) for name in values] for document in documents]
        ),
        documents=[json.dumps(document).encode() for document in documents],
        exists=options.get("exists", [False] * len(documents)),
        deletes=options.get("deletes", []),
    )
    opened = messages.Open(
        materialization=spec, version="1", extensions=endpoint.connector.extensions
    )
    with endpoint.driver.open(opened) as stream:
        stream.flush(testing.checkpoint(options.get("checkpoint", 1)))
        stream.send(message)
        stream.commit()
        stream.finish()
