"""The initial contents of a task by a Spark job: `--backfill spark`, BACKFILL BY SPARK."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial

from connectors.backfill.backfill import Job
from connectors.backfill.outcome import Outcome, Progress
from connectors.backfill.tasks import Cell, Plan, TaskServices
from connectors.config import variables
from connectors.runtime.runner import Stopping
from connectors.runtime.task import Materialization
from streams.app.connector.lookup import driver_of
from streams.app.materialize import spark_process
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.settings import ClientSettings
from streams.storage.read.reader import load


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


def jobs_of(
    task: Materialization, kafka: ClientSettings, master: str
) -> Callable[[Stopping], Job] | None:
    """What makes the job of a task's backfill, if it has one.

    `master` is Spark's where the task says none; empty: what Spark's own configuration says.
    Spark is started by a call of the job, and ends with it.
    """
    if task.backfill is None:
        return None
    names = {name for name in variables(task.config) if name in os.environ}
    reached = Reached(kafka, task.connector, {name: os.environ[name] for name in names})
    where = task.backfill.master or master

    def job_until(stopping: Stopping) -> Job:
        def job(plan: Plan, cells: Sequence[Cell], progress: Progress) -> Outcome:
            work = spark_process.Work(where, reached, plan, cells)
            return spark_process.run(work, stopping, progress)

        return job

    return job_until
