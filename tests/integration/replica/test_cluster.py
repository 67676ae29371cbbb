"""A replica on a cluster whose hosts share a store and Kafka, and no directory.

Each host has a mount namespace of its own, where root may make one: what the driver or another
host keeps in a directory is not there. Whatever is lost, the updates are those of a run in
which nothing was (`tests.integration.replica.deep_view`).
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from streams.bench.standalone import Host, Standalone, standalone
from tests.integration.replica import process
from tests.integration.replica.deep_view import Deep
from tests.support.processes import command_line, eventually, family

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]


@contextmanager
def replica(
    deep: Deep, cluster: Standalone, state: Path
) -> "Iterator[subprocess.Popen[bytes]]":
    """A replica on the cluster, whose driver has a directory that no host sees."""
    store = f"file://{cluster.directory}/store"
    environment = {"PYSPARK_PYTHON": sys.executable}
    running = process.start(
        deep.bench, state, {}, master=cluster.url, environment=environment, store=store
    )
    try:
        yield running
    finally:
        process.kill(running)


def run_files(host: Host) -> list[Path]:
    return list(host.directory.glob("work/app-*/*/slackwater-runs/r1/*/*/*"))


def changes(deep: Deep) -> int:
    return len(set(deep.bench.table("deep")["_time"].to_pylist()))


def goes_on(deep: Deep, times: int = 3) -> None:
    """Wait until the view has changed some times more."""
    deep.await_changes(changes(deep) + times)


@pytest.mark.long
def test_a_view_is_exact_whatever_a_cluster_loses(deep: Deep, tmp_path: Path) -> None:
    drivers = [tmp_path / "driver0", tmp_path / "driver1"]
    for directory in drivers:
        directory.mkdir()
    deep.view()
    deep.begin()
    with standalone(tmp_path / "cluster", 2, drivers) as cluster:
        with replica(deep, cluster, drivers[0] / "r1") as running:
            goes_on(deep)
            assert all(map(run_files, cluster.hosts)), "each host has state"
            executor = min(executors(cluster.hosts[0]), key=lambda child: child.pid)
            executor.send_signal(signal.SIGKILL)
            goes_on(deep)
            for path in run_files(cluster.hosts[1]):
                path.unlink(missing_ok=True)
            goes_on(deep)
            cluster.hosts[0].kill()
            cluster.add_host()
            goes_on(deep)
            eventually(lambda: bool(run_files(cluster.hosts[2])), 300)
            goes_on(deep)
            assert running.poll() is None
        assert list((tmp_path / "cluster/store/r1").glob("*/checkpoints/deep/[0-9]*"))
        with replica(deep, cluster, drivers[1] / "r1") as running:
            goes_on(deep)
            deep.bench.buckets = 8
            deep.bench.begin()
            eventually(lambda: running.poll() is not None)
        with replica(deep, cluster, drivers[1] / "r1"):
            goes_on(deep)
            deep.check()
        log = (drivers[1] / "r1.err").read_text()
        assert "state rescaled" in log
        assert "state dropped" not in log


def executors(host: Host) -> list[psutil.Process]:
    return [
        child
        for child in family(host.process.pid)
        if "ExecutorBackend" in " ".join(command_line(child))
    ]
