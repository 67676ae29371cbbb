"""`slackwater materialize run --backfill spark`: first contents of a task by a Spark job."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module as module  # of what loads Spark, for who wants it

from connectors.backfill.backfill import Backfill, Job
from connectors.backfill.tasks import Cell, Plan, TaskServices
from connectors.config import variables
from connectors.driver import Driver
from connectors.runtime.runner import Status
from connectors.runtime.task import Materialization
from streams.app.compaction_setup import cancelling
from streams.app.connector.lookup import driver_of
from streams.app.signals import Stop
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.settings import ClientSettings
from streams.storage.client.shards import Shards
from streams.storage.read.reader import load

NAME = "slackwater materialize"
RANGES = 8
"""Into how many key ranges a task is divided, where nobody says it."""


@dataclass(frozen=True, slots=True, repr=False)
class Reached:
    """Opens brokers and connector in a task of Spark's. It may hold secrets: no repr."""

    kafka: ClientSettings
    connector: str
    environment: Mapping[str, str]
    """The secrets that the configuration refers to as env:NAME, which executors may lack."""

    @contextmanager
    def __call__(self) -> Iterator[TaskServices]:
        """Errors: InvalidUsage."""
        with driver_of(self.connector, {**os.environ, **self.environment}) as driver:
            yield TaskServices(partial(load, broker(self.kafka).chunks), driver)


@cache
def broker(kafka: ClientSettings) -> KafkaBroker:
    """The connections of this worker process."""
    return KafkaBroker(kafka)


def backfilled(  # noqa: PLR0913  dependencies, passed by name
    task: Materialization,
    driver: Driver,
    shards: Shards,
    *,
    kafka: ClientSettings,
    master: str,
    ranges: int | None,
    stopping: Stop,
    report: Callable[[Status], None],
) -> Status:
    """Write what is missing; only where something is, Spark is started, and ends with it.

    `master`: empty for what Spark's own configuration says. Errors: as `Backfill.run`.
    """
    names = {name for name in variables(task.config) if name in os.environ}
    reached = Reached(kafka, task.connector, {name: os.environ[name] for name in names})
    with ExitStack() as stack:

        @cache
        def started() -> Job:
            return stack.enter_context(on_spark(master, reached, stopping))

        def job(plan: Plan, cells: Sequence[Cell]) -> int:
            return started()(plan, cells)

        return Backfill(
            task,
            driver,
            shards,
            ranges=ranges or max(task.shards, RANGES),
            job=job,
            stopping=stopping,
            report=report,
        ).run()


@contextmanager
def on_spark(master: str, reached: Reached, stopping: Stop) -> Iterator[Job]:
    """The job, in a session of its own; it ends when the process is asked to end."""
    job = module("connectors.backfill.job")
    with (
        module("streams.compaction.job").session(master, NAME) as session,
        cancelling(stopping, session.sparkContext.cancelAllJobs),
    ):
        yield partial(job.run, session, reached)
