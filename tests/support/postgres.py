"""A PostgreSQL of the tests' own, out of a wheel."""

import itertools
from pathlib import Path
from typing import Any

import psutil
import psycopg

from streams.app.embedded_postgres import EmbeddedPostgres
from tests.support.processes import family, kill_all, suspend

_names = itertools.count()


class Server:
    """A server that runs on a socket; each test has a database."""

    def __init__(self, base: Path | None, **settings: str) -> None:
        self.embedded = EmbeddedPostgres(base, {"fsync": "off", **settings})
        self.embedded.start()

    def config(self) -> dict[str, Any]:
        """How a connector reaches a new database."""
        name = f"test_{next(_names)}"
        with self.connect("postgres") as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return {**self.embedded.config, "database": name}

    def connect(self, database: str) -> "psycopg.Connection[Any]":
        host, user = (str(self.embedded.config[name]) for name in ("host", "user"))
        return psycopg.connect(host=host, dbname=database, user=user, autocommit=True)

    def query(self, database: str, sql: str) -> list[Any]:
        with self.connect(database) as connection:
            return connection.execute(sql.encode()).fetchall()

    def kill(self) -> None:
        """All of its processes, as a power cut would; `start` serves its files again."""
        processes = family(self.embedded.pid)
        for process in processes:  # none sees another end, and does something about it
            suspend(process.pid)
        kill_all(processes)
        psutil.wait_procs(processes)
        self.embedded.stop()

    def start(self) -> None:
        """After a kill."""
        self.embedded.start()

    def close(self) -> None:
        """At once: nothing has to be on disk."""
        self.embedded.close()
