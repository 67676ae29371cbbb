"""The bank's views as PostgreSQL tables, and a process that reads them continuously."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from connectors import postgres
from connectors.driver import Driver
from connectors.runtime.task import Materialization
from connectors.transport.local import Local
from streams.app.embedded_postgres import EmbeddedPostgres
from streams.app.materialize.background import BackgroundTask
from streams.bench.consistency.bank import VIEWS
from streams.bench.consistency.reader import Reader
from streams.bench.consistency.subscription_check import Tally
from streams.ids import Timestamp
from streams.storage.client.shards import Shards

KEYS = {"credits": "account", "debits": "account", "balance": "account", "total": "total"}
"""Columns that identify a row; of the other tables it is `id`."""
PATIENCE_S = 300.0


class Tables:
    """The materialization and the reader, once `begin` was called. A context manager's."""

    def __init__(
        self,
        config: Mapping[str, object],
        shards: Shards,
        named: Callable[[Materialization], Materialization],
    ) -> None:
        self._config, self._shards, self._named = config, shards, named
        self._beside: BackgroundTask | None = None
        self._reader: Reader | None = None
        self.read: Mapping[str, Tally] = {}
        """The reader's observations."""
        self.commits = 0

    def begin(self, at_least: int) -> None:
        """Write from now on, and read as soon as there is something. The views are made."""
        driver = Driver(Local(postgres.connector({})))
        self._beside = BackgroundTask(self._named(task(self._config)), driver, self._shards)
        self._beside.start()
        self._beside.reach(Timestamp(at_least), PATIENCE_S)
        self._reader = Reader(self._config)

    def end(self, until: int) -> None:
        """Wait until the tables hold a time; then write no more, and read no more."""
        assert self._beside is not None
        assert self._reader is not None, "it was begun"
        self._beside.reach(Timestamp(until), PATIENCE_S)
        self.read, self._reader = self._reader.end(), None
        self.commits = self._beside.status.commits

    def close(self) -> None:
        """End what was begun."""
        if self._reader is not None:
            self._reader.kill()
        if self._beside is not None:
            self._beside.stop()


@contextmanager
def tables(
    shards: Shards, named: Callable[[Materialization], Materialization]
) -> Iterator[Tables]:
    """Tables in a PostgreSQL of their own; `named` puts ids in place of names."""
    with EmbeddedPostgres() as server:
        opened = Tables(server.config, shards, named)
        try:
            yield opened
        finally:
            opened.close()


def task(config: Mapping[str, object]) -> Materialization:
    """All views and the confirmations, each in a table of its name."""
    return Materialization.model_validate(
        {
            "task": "bank",
            "connector": "postgres",
            "config": dict(config),
            "bindings": [
                {"collection": name, "key": [KEYS.get(name, "id")], "resource": {"table": name}}
                for name in (*VIEWS, "confirmations")
            ],
        }
    )
