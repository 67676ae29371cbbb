"""Services of storage as processes, in a namespace of their own on a real broker."""

import json
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from streams.app.processes import spawn
from streams.app.service_config import Service
from streams.forks import Process
from tests.stranger.client import Client
from tests.stranger.reader import Reader
from tests.support.forks import fork_server_address

TABLE = json.dumps(
    {
        "columns": [{"name": "name", "type": "VARCHAR"}, {"name": "size", "type": "INTEGER"}],
        "keys": [],
        "kind": "table",
        "required": ["name"],
    }
)
SCHEMA = pa.schema(
    [("name", pa.utf8()), ("size", pa.int32()), ("time", pa.int64()), ("diff", pa.int64())]
)


def rows(*cells: tuple[object, ...]) -> pa.Table:
    columns = list(zip(*cells, strict=True)) or [()] * 4
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


class Place:
    """A namespace on the broker, and services of it."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap, self.directory = bootstrap, directory
        self.namespace = f"cmd{uuid.uuid4().hex[:8]}"

    @contextmanager
    def service(self, **points: int) -> Iterator[Process]:
        """A running service, which dies at the points."""
        config = self.directory / "storage.json"
        Service(
            bootstrap=self.bootstrap,
            directory=str(self.directory),
            namespace=self.namespace,
            points=points,
        ).write(config)
        command = [sys.executable, "-m", "streams.app.main", "storage", "--config", str(config)]
        log = self.directory / "storage.log"
        process = spawn(command, log, fork_server=fork_server_address())
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            assert process.stdin is not None, "it is supervised by it"
            process.stdin.close()

    @contextmanager
    def client(self) -> Iterator[Client]:
        client = Client(self.bootstrap, self.namespace)
        try:
            yield client
        finally:
            client.close()

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        reader = Reader(self.bootstrap, self.namespace)
        try:
            yield reader
        finally:
            reader.close()
