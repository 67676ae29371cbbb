"""The jobs of resident tasks, their door and their threads, without Spark."""

import socket
import sys
import threading
import time
from collections.abc import Callable
from unittest.mock import MagicMock

import pytest
from pyspark.errors import PySparkException

from streams.replica.spark import resident_jobs, task_rpc_server
from streams.replica.spark.resident_jobs import ResidentJobs
from streams.replica.spark.session import with_cores
from streams.replica.tasks.authenticated_frames import Door, Frames
from tests.integration.adapter.support import eventually


class Spark:
    """A context whose jobs run their task in the thread that asks, or fail."""

    master = "local[3,4]"

    def __init__(self) -> None:
        self.tasks = 0
        self.fails = 0
        self.cancelled = False
        self.setLocalProperty = MagicMock()
        self.setJobGroup = MagicMock()

    def parallelize(self, _: object, parts: int) -> "Spark":
        assert parts == 1
        return self

    def foreachPartition(self, task: Callable[[object], None]) -> None:  # noqa: N802
        self.tasks += 1
        if self.fails:
            self.fails -= 1
            raise PySparkException("killed\nat scala")
        task(iter(()))

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        self.cancelled = group == resident_jobs.GROUP


class Bench:
    """Jobs, and what became of their connections."""

    def __init__(self, count: int = 1) -> None:
        self.spark, self.open = Spark(), list[Frames]()
        self.lost = threading.Event()
        self.cores = 3
        self.jobs = ResidentJobs(self.spark, count, "state", self.serve, lambda _: self.cores)

    def serve(self, frames: Frames) -> None:
        self.open.append(frames)
        while frames.is_open() and not self.lost.is_set():
            time.sleep(0.01)
        self.open.remove(frames)


@pytest.fixture
def threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def test_each_job_has_a_task_that_is_served_until_the_stop(
    threads: set[threading.Thread],
) -> None:
    bench = Bench(count=2)
    bench.jobs.start()
    eventually(lambda: len(bench.open) == 2, 10)
    assert bench.spark.setLocalProperty.call_args.args == ("spark.scheduler.pool", "resident")
    began = time.monotonic()
    bench.jobs.stop()
    assert time.monotonic() - began < 5
    assert bench.open == []
    assert not bench.spark.cancelled
    assert set(threading.enumerate()) <= threads


def test_a_job_that_ends_or_fails_is_begun_again_after_a_pause() -> None:
    bench = Bench()
    bench.spark.fails = 2
    began = time.monotonic()
    bench.jobs.start()
    eventually(lambda: len(bench.open) == 1, 10)
    assert bench.spark.tasks == 3
    assert time.monotonic() - began > 3 * resident_jobs.FIRST_PAUSE_S
    bench.lost.set()
    eventually(lambda: bench.spark.tasks == 4, 10)
    bench.jobs.stop()


def test_tasks_leave_a_core_for_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On executors with one core all else would wait for a task that never ends."""
    monkeypatch.setattr(resident_jobs, "CORES_EVERY_S", 0.05)
    bench = Bench()
    bench.cores = 1
    bench.jobs.start()
    time.sleep(0.2)
    assert bench.spark.tasks == 0
    bench.cores = 2
    eventually(lambda: len(bench.open) == 1, 10)
    bench.cores = 1
    eventually(lambda: not bench.open, 10)
    time.sleep(0.3)
    assert bench.spark.tasks == 1
    bench.cores = 2
    eventually(lambda: len(bench.open) == 1, 10)
    bench.jobs.stop()
    assert bench.open == []


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", sys.maxsize), ("local[2,4]", sys.maxsize), ("spark://s:7077", 6)],
)
def test_only_a_cluster_is_asked_for_its_cores(master: str, cores: int) -> None:
    """On one machine the session has a core more, whatever `spark.default.parallelism` says."""
    context = MagicMock(master=master, defaultParallelism=1)
    context._jsc.sc().schedulerBackend().totalCoreCount.return_value = 6
    assert resident_jobs.cores_of(context) == cores


def test_a_scheduler_that_does_not_tell_its_cores_has_what_spark_takes_for_them() -> None:
    context = MagicMock(master="other://s:1", defaultParallelism=3)
    context._jsc.sc().schedulerBackend.side_effect = PySparkException("no such method")
    assert resident_jobs.cores_of(context) == 3


def test_no_job_is_begun_once_it_is_to_stop() -> None:
    """Threads that serve end before the jobs are told to: the tasks must not be run again."""
    bench = Bench()
    bench.jobs.start()
    eventually(lambda: len(bench.open) == 1, 10)
    bench.jobs.begin_no_more()
    bench.lost.set()
    eventually(lambda: not bench.open, 10)
    time.sleep(2 * resident_jobs.FIRST_PAUSE_S)
    assert bench.spark.tasks == 1
    bench.jobs.stop()


def test_a_stranger_is_not_served_and_only_so_many_wait() -> None:
    bench = Bench(count=0)
    bench.jobs.start()
    host, port = bench.jobs._door._address
    with pytest.raises(PermissionError):
        Door(host, port, b"other").connect()
    silent = [socket.create_connection((host, port)) for _ in range(9)]
    try:
        silent[-1].settimeout(5)
        assert silent[-1].recv(100) == b"", "closed at once"
        silent[0].settimeout(5)
        assert len(silent[0].recv(100)) == 36, "asked who it is"
    finally:
        for connection in silent:
            connection.close()
    assert bench.open == []
    bench.jobs.stop()


def test_a_job_that_does_not_end_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident_jobs, "JOIN_S", 0.4)
    bench = Bench()
    monkeypatch.setattr(bench.spark, "foreachPartition", lambda _: time.sleep(1))
    bench.jobs.start()
    bench.jobs.stop()
    assert bench.spark.cancelled


@pytest.mark.parametrize(
    ("master", "settings", "expected"),
    [
        ("local[3,4]", {"spark.driver.host": "h"}, ("127.0.0.1", "127.0.0.1")),
        ("local-cluster[2,1,1024]", {}, ("127.0.0.1", "127.0.0.1")),
        ("spark://s:7077", {"spark.driver.host": "h"}, ("h", "h")),
        (
            "k8s://s",
            {"spark.driver.host": "h", "spark.driver.bindAddress": "0.0.0.0"},
            ("0.0.0.0", "h"),
        ),
    ],
)
def test_the_driver_listens_where_spark_does(
    master: str, settings: dict[str, str], expected: tuple[str, str]
) -> None:
    context = MagicMock(master=master)
    context.getConf.return_value = settings
    assert task_rpc_server.addresses(context) == expected


@pytest.mark.parametrize(
    ("master", "more", "expected"),
    [
        ("local[2,4]", 1, "local[3,4]"),
        ("local[2]", 2, "local[4]"),
        ("local", 1, "local[2]"),
        ("local[2,4]", 0, "local[2,4]"),
        ("local-cluster[2,1,1024]", 1, "local-cluster[2,1,1024]"),
        ("spark://spark:7077", 1, "spark://spark:7077"),
    ],
)
def test_a_session_has_a_core_more_for_each(master: str, more: int, expected: str) -> None:
    assert with_cores(master, more) == expected


def test_a_session_of_all_cores_has_more_than_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    assert with_cores("local[*,4]", 1) == "local[7,4]"
