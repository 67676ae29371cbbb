"""The views in PostgreSQL: one materialization of all of them, in a thread of the demo's."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from connectors import postgres
from connectors.driver import Driver
from connectors.runtime.follower import CollectionFollower
from connectors.runtime.task import BindingConfig, Materialization, TransactionLimits
from connectors.runtime.task_setup import prepare
from connectors.sql.dialect import Database
from connectors.transport.local import Local
from streams.app.materialize.background import BackgroundTask
from streams.demo.totals import CHECK, COMMITS, NAMES, TOTALS, Commit, commit
from streams.demo.views import VIEWS
from streams.errors import InvalidUsage
from streams.ids import CollectionId, Timestamp
from streams.storage.client.shards import Shards

TASK = "flights"
IDLE_MS = 1_000

LATEST = f"""SELECT number, (SELECT count(*) FROM demo_commits WHERE NOT is_right), {NAMES},
  {", ".join(f"(SELECT count(*) FROM {view.name})" for view in VIEWS)}
  FROM demo_commits ORDER BY number DESC LIMIT 1"""
"""One statement, and so of one moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """The facts about the tables that the page shows."""

    commits: int = 0
    wrong: int = 0
    """Commits at which the totals were not in step."""
    written: int = 0
    """Rows that this materialization has written."""
    behind_ms: int = 0
    """The lag of the tables behind the views."""
    totals: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    """For each table."""

    @property
    def text(self) -> str:
        """A line."""
        if not self.commits:
            return "PostgreSQL: no commit yet"
        totals = {name: f"{count:,}" for name, count in self.totals.items()}
        verdict = f"WRONG at {self.wrong:,} commits" if self.wrong else "right at every commit"
        return (
            f"PostgreSQL: {self.commits:,} commits, {self.written:,} rows written,"
            f" {self.behind_ms / 1000:.1f} s behind the views; {totals['flown']} flown"
            f" = {totals['scheduled']} scheduled - {totals['cancelled']} cancelled: {verdict}"
        )


def task(config: Mapping[str, object], ids: Mapping[str, CollectionId]) -> Materialization:
    """All views, each in a table of its name."""
    bindings = [
        BindingConfig(
            collection=ids[view.name], key=list(view.key), resource={"table": view.name}
        )
        for view in VIEWS
    ]
    return Materialization.model_validate(
        {
            "task": TASK,
            "connector": "postgres",
            "config": dict(config),
            "bindings": bindings,
            "limits": TransactionLimits(idle_ms=IDLE_MS),
        }
    )


class InPostgres:
    """The materialization, and what PostgreSQL says of its tables."""

    def __init__(
        self, shards: Shards, database: Database, materialization: Materialization
    ) -> None:
        self._database = database
        driver = Driver(Local(postgres.connector({})))
        ids = [CollectionId(binding.collection) for binding in materialization.bindings]
        prepare(
            driver,
            materialization,
            CollectionFollower(shards, materialization.task, ids).open(),
        )
        for statement in CHECK:  # with tables and no session, so that no commit is missed
            database.execute(statement)
        self._beside = BackgroundTask(materialization, driver, shards)

    def start(self) -> None:
        """Begin to write."""
        self._beside.start()

    def check(self) -> None:
        """Errors: whatever has ended the materialization."""
        self._beside.check()

    def stop(self) -> None:
        """Write no more."""
        self._beside.stop()

    @property
    def time(self) -> Timestamp:
        """The contents of the tables. Errors: InvalidUsage before the first commit."""
        if self._beside.status.time is None:
            raise InvalidUsage("expected a commit, actual none")
        return self._beside.status.time

    def finish(self, until: Timestamp, check: Callable[[], None], timeout_s: float) -> None:
        """Wait until the tables hold a time, then write no more.

        Errors: as both checks; Determinate if it takes too long.
        """
        self._beside.reach(until, timeout_s, check)
        self.stop()
        self.check()

    def seen(self) -> TableFacts:
        """The tables as they are now."""
        status = self._beside.status
        latest = list(self._database.select(LATEST))
        if not latest:
            return TableFacts()
        commits, wrong, *counts = (int(str(value)) for value in latest[0])
        behind_ms = 0
        if status.time is not None and status.upper is not None:
            behind_ms = max(status.upper - 1 - status.time, 0)
        return TableFacts(
            commits=commits,
            wrong=wrong,
            written=status.rows,
            behind_ms=behind_ms,
            totals=dict(zip(TOTALS, counts, strict=False)),
            rows=dict(zip((view.name for view in VIEWS), counts[len(TOTALS) :], strict=True)),
        )

    def commits(self) -> list[Commit]:
        """The state that each commit left, in order."""
        return [commit(row) for row in self._database.select(COMMITS)]

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Sequence[object]]:
        """The rows of a table."""
        names = ", ".join(f'"{name}"' for name in columns)
        return self._database.select(f'SELECT {names} FROM "{table}"')


@contextmanager
def in_postgres(
    shards: Shards, config: Mapping[str, object], ids: Mapping[str, CollectionId]
) -> Iterator[InPostgres]:
    """The tables of all views, empty, and checked from the first commit on."""
    with postgres.connect({}, postgres.Config.model_validate(config)) as database:
        postgres_ = InPostgres(shards, database, task(config, ids))
        try:
            yield postgres_
        finally:
            postgres_.stop()
