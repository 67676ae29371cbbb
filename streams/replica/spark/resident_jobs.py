"""Resident tasks: jobs of Spark that run as long as the replica, each with one task.

A task connects to the driver (`streams.replica.tasks.resident`) and runs what it is asked for
over this connection. Spark runs it, on one of its executors, and runs it again when its process
dies; a job that failed altogether is begun again, after growing pauses. When the driver
closes the connection, the task ends, and with it the job.

Each task keeps a core. On this machine the session has as many more
(`streams.replica.spark.session`). On a cluster they are taken from the application's, so there
the tasks wait until executors have a core beside them, and end when they no longer have one:
what needs a job would wait for ever.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from streams.replica.spark.session import is_one_process
from streams.replica.spark.task_rpc_server import TaskRpcServer, addresses
from streams.replica.tasks import resident
from streams.replica.tasks.authenticated_frames import Door, Frames

log = logging.getLogger(__name__)

GROUP = "resident"
"""The pool and the job group of resident tasks."""

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 30.0
SHORT_JOB_S = 10.0
"""A job that ends sooner has failed; one whose task is killed now and then has not."""

JOIN_S = 10.0

CORES_EVERY_S = 5.0
"""How often it is looked at how many cores executors have."""


@dataclass(slots=True)
class ResidentJobs:
    """Keeps `count` resident tasks of a place; `serve` is called with each connection."""

    context: SparkContext
    count: int
    place: str = field(repr=False)
    serve: Callable[[Frames], None]
    cores: Callable[[SparkContext], int]
    """How many cores executors have, with those that resident tasks keep."""
    _door: TaskRpcServer = field(init=False)
    _jobs: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._door = TaskRpcServer(GROUP, self.serve)

    def start(self) -> None:
        """Listen, and begin the jobs; does not wait for their tasks."""
        door = self._door.start(*addresses(self.context))
        for number in range(self.count):
            work = partial(self._keep, number, door)
            thread = threading.Thread(target=work, name=f"resident-job-{number}", daemon=True)
            self._jobs.append(thread)
            thread.start()
        if self.count:
            watch = threading.Thread(target=self._watch, name="resident-cores", daemon=True)
            self._jobs.append(watch)
            watch.start()

    def _has_room(self) -> bool:
        """Whether executors have a core for jobs beside the resident tasks."""
        return self.cores(self.context) > self.count

    def _watch(self) -> None:
        """End the tasks whenever they would keep all cores."""
        while not self._door.stopping.wait(CORES_EVERY_S):
            if not self._has_room():
                self._door.end_connections()

    def begin_no_more(self) -> None:
        """Begin no further job: a task ends when the thread that serves with it does."""
        self._door.stopping.set()

    def stop(self) -> None:
        """End the tasks, the jobs and all threads."""
        self._door.stop()
        until = time.monotonic() + JOIN_S
        if not self._join(time.monotonic() + JOIN_S / 2):
            self.context.cancelJobGroup(GROUP)
        self._join(until)

    def _join(self, until: float) -> bool:
        """Wait for all threads until a time; whether all have ended."""
        for thread in self._jobs:
            thread.join(max(0.0, until - time.monotonic()))
        has_left = self._door.join(until)
        return has_left and not any(thread.is_alive() for thread in self._jobs)

    def _keep(self, number: int, door: Door) -> None:
        """Run a job, and the next one when it has ended, until the stop."""
        self.context.setLocalProperty("spark.scheduler.pool", GROUP)
        self.context.setJobGroup(GROUP, f"resident task {number}", interruptOnCancel=True)
        stopping, pause_s = self._door.stopping, FIRST_PAUSE_S
        while not stopping.is_set():
            if not self._has_room():
                log.info("a resident task waits for executors with more cores")
                while not self._has_room() and not stopping.wait(CORES_EVERY_S):
                    pass
                continue
            began = time.monotonic()
            try:
                self._job(door)
            except (PySparkException, Py4JError) as error:
                if stopping.is_set():
                    return
                cause = str(error).strip().splitlines()[:1]
                log.warning("the job of a resident task failed", extra={"cause": cause})
            is_short = time.monotonic() - began < SHORT_JOB_S
            if is_short and not stopping.is_set():
                log.warning("a resident task ended soon", extra={"task": number})
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S) if is_short else FIRST_PAUSE_S
            stopping.wait(pause_s)

    def _job(self, door: Door) -> None:
        """Run a job until its task ends."""
        task = partial(resident.serve, door, self.place)
        self.context.parallelize((0,), 1).foreachPartition(task)


def cores_of(context: SparkContext) -> int:
    """Return how many cores the executors that are registered have; of this machine, enough.

    Spark has no public name for that. With another scheduler than that of clusters it is what
    Spark takes for the number of cores.
    """
    if is_one_process(context.master):
        return sys.maxsize  # its session has a core more for each resident task
    try:
        return int(context._jsc.sc().schedulerBackend().totalCoreCount())  # noqa: SLF001
    except Exception:  # whatever another scheduler or version of Spark has in its place
        log.debug("the cores of executors are not told", exc_info=True)
    return int(context.defaultParallelism)
