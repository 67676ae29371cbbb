"""The databases into which faults are tried, each run in one of its own."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connectors import duckdb, postgres, sqlite
from connectors.protocol.messages import Extensions
from connectors.sql.columns import Kind
from connectors.sql.connector import SqlConnector
from connectors.sql.dialect import Database
from connectors.transport.local import Local
from streams.app.embedded_postgres import EmbeddedPostgres, is_installed

NAMES = ("sqlite", "postgres", "duckdb")
EVERYTHING = Extensions(acknowledge=True, delete=True, subranges=True)
"""Every message that there is."""
REFUSED = 3
"""Multiples of it are amounts that a table with a check refuses."""


@dataclass(frozen=True, slots=True)
class Place:  # type: ignore[explicit-any] # a connector has a configuration of its own
    """A database, and the connector that writes it."""

    name: str
    connector: SqlConnector[Any, Any]  # type: ignore[explicit-any]
    config: Mapping[str, object]
    at_once: str = ""
    """What makes all statements of a reader's transaction see one moment."""
    has_many: bool = True
    """Whether several processes may have it open at a time."""

    @property
    def transport(self) -> Local:
        """The connector in this process."""
        return Local(dataclasses.replace(self.connector, extensions=EVERYTHING))

    @contextmanager
    def opened(self) -> Iterator[Database]:
        """A reader's connection."""
        config = self.connector.config.model_validate(self.config)
        with self.connector.connect(config) as database:
            if self.at_once:
                database.execute(self.at_once)
            yield database

    def make_choosy(self) -> None:
        """Make the table of balances, which takes some amounts and refuses others."""
        types = self.connector.dialect.types
        with self.opened() as database:
            database.execute(
                f"CREATE TABLE balances (account {types[Kind.TEXT]} NOT NULL,"
                f" amount {types[Kind.INTEGER]}, PRIMARY KEY (account),"
                f" CHECK (amount % {REFUSED} <> 0))"
            )


def on_sqlite(file: Path) -> Place:
    """A file."""
    return Place("sqlite", sqlite.CONNECTOR, {"path": str(file)})


def on_duckdb(file: Path) -> Place:
    """A file."""
    return Place("duckdb", duckdb.CONNECTOR, {"path": str(file)}, has_many=False)


def on_postgres(config: Mapping[str, object], name: str) -> Place:
    """A new database of the server. Errors: Determinate."""
    connector = postgres.connector({})
    with connector.connect(connector.config.model_validate(config)) as server:
        server.execute(f'CREATE DATABASE "{name}"')
    at_once = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ"
    return Place("postgres", connector, {**config, "database": name}, at_once)


def installed() -> tuple[str, ...]:
    """The databases that are here."""
    return tuple(name for name in NAMES if name != "postgres" or is_installed())


Places = Callable[[int], Place]
"""A new place for the run of a number."""


@contextmanager
def places(names: tuple[str, ...], directory: Path) -> Iterator[Places]:
    """Places in the databases, in turn. Errors: Determinate if a server does not start."""
    with ExitStack() as stack:
        config: Mapping[str, object] = {}
        if "postgres" in names:
            config = stack.enter_context(EmbeddedPostgres(settings={"fsync": "off"})).config

        def place(number: int) -> Place:
            match names[number % len(names)]:
                case "postgres":
                    return on_postgres(config, f"torture{number}")
                case "duckdb":
                    return on_duckdb(directory / f"{number}.duckdb")
                case _:
                    return on_sqlite(directory / f"{number}.db")

        yield place
