"""Resident tasks: jobs of Spark that run as long as the replica, each with one task.

A task connects to the driver (`streams.replica.tasks.resident`) and runs what it is asked for
over this connection. Spark runs it, on one of its executors, and runs it again when its process
dies; a job that failed altogether is begun again, after growing pauses. Each connection has a
thread in the driver. When the driver closes it, the task ends, and with it the job.

Each task keeps a core. On this machine the session has as many more
(`streams.replica.spark.session`); on a cluster they are taken from the application's.
"""

import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from streams.replica.tasks import resident
from streams.replica.tasks.authenticated_frames import HANDSHAKE_S, Door, Frames

log = logging.getLogger(__name__)

GROUP = "resident"
"""The pool and the job group of resident tasks."""

LOOPBACK = "127.0.0.1"
TOKEN_BYTES = 32
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 30.0
SHORT_JOB_S = 10.0
"""A job that ends sooner has failed; one whose task is killed now and then has not."""

MOST_STRANGERS = 8
"""Connections that may be about to prove who they are."""

JOIN_S = 10.0


@dataclass(slots=True)
class ResidentJobs:
    """Keeps `count` resident tasks; `serve` is called in a thread with each connection.

    A connection is closed when `serve` returns.
    """

    context: SparkContext
    count: int
    state: str
    serve: Callable[[Frames], None]
    stopping: threading.Event = field(default_factory=threading.Event)
    _address: tuple[str, int] = ("", 0)
    _threads: list[threading.Thread] = field(default_factory=list)
    _connections: set[Frames] = field(default_factory=set)
    _strangers: threading.Semaphore = field(
        default_factory=partial(threading.Semaphore, MOST_STRANGERS)
    )

    def start(self) -> None:
        """Listen, and begin the jobs; does not wait for their tasks."""
        listened, reached = addresses(self.context)
        listener = socket.create_server((listened, 0))
        self._address = listener.getsockname()[:2]
        door = Door(reached, self._address[1], secrets.token_bytes(TOKEN_BYTES))
        self._run(partial(self._listen, listener, door), "resident-door")
        for number in range(self.count):
            self._run(partial(self._keep, number, door), f"resident-job-{number}")

    def begin_no_more(self) -> None:
        """Begin no further job: a task ends when the thread that serves with it does."""
        self.stopping.set()

    def stop(self) -> None:
        """End the tasks, the jobs and all threads."""
        self.begin_no_more()
        _wake(self._address)
        for frames in tuple(self._connections):
            frames.end()
        until = time.monotonic() + JOIN_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()) / 2)
        if any(thread.is_alive() for thread in self._threads):
            self.context.cancelJobGroup(GROUP)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _listen(self, listener: socket.socket, door: Door) -> None:
        with listener:
            while True:
                connected, _ = listener.accept()
                if self.stopping.is_set():
                    connected.close()
                    return
                if not self._strangers.acquire(blocking=False):
                    connected.close()
                    continue
                self._threads = [thread for thread in self._threads if thread.is_alive()]
                self._run(partial(self._welcome, Frames(connected), door), "resident")

    def _welcome(self, frames: Frames, door: Door) -> None:
        """Let a task in, and serve with it."""
        with frames:
            try:
                frames.admit(door.token)
            except OSError as refused:
                log.warning("a connection was refused", extra={"cause": str(refused)})
                return
            finally:
                self._strangers.release()
            self._connections.add(frames)
            try:
                if not self.stopping.is_set():
                    self.serve(frames)
            finally:
                self._connections.discard(frames)

    def _keep(self, number: int, door: Door) -> None:
        """Run a job, and the next one when it has ended, until the stop."""
        self.context.setLocalProperty("spark.scheduler.pool", GROUP)
        self.context.setJobGroup(GROUP, f"resident task {number}", interruptOnCancel=True)
        pause_s = FIRST_PAUSE_S
        while not self.stopping.is_set():
            began = time.monotonic()
            try:
                self._job(door)
            except (PySparkException, Py4JError) as error:
                if self.stopping.is_set():
                    return
                cause = str(error).strip().splitlines()[:1]
                log.warning("the job of a resident task failed", extra={"cause": cause})
            is_short = time.monotonic() - began < SHORT_JOB_S
            if is_short and not self.stopping.is_set():
                log.warning("a resident task ended soon", extra={"task": number})
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S) if is_short else FIRST_PAUSE_S
            self.stopping.wait(pause_s)

    def _job(self, door: Door) -> None:
        """Run a job until its task ends."""
        task = partial(resident.serve, door, self.state)
        self.context.parallelize((0,), 1).foreachPartition(task)


def addresses(context: SparkContext) -> tuple[str, str]:
    """Return where the driver listens, and where its executors reach it: as for Spark's own."""
    if context.master.startswith("local"):
        return LOOPBACK, LOOPBACK
    settings = context.getConf()
    reached = settings.get("spark.driver.host") or socket.gethostname()
    return settings.get("spark.driver.bindAddress") or reached, reached


def _wake(address: tuple[str, int]) -> None:
    """End the wait of the thread that listens."""
    with suppress(OSError):
        socket.create_connection(address, HANDSHAKE_S).close()
