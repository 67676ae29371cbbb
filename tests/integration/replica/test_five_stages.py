"""`kill -9` of drivers, executors, workers while a view of five stages is stepped or hydrated.

Join, group, join, window, top-k: five exchanges in each micro-batch, and state behind each.
Whatever dies in between, the updates are afterwards, bit for bit, those of a run in which
nothing died: `streams.testing.maintain` over the same updates of the sources.

`make test-long` has a driver and a worker that die, every point, the JVMs of executors, and a
hydration. What an executor's death is to the driver, a task that is tried again, the worker's
is as well.
"""

import json
import pickle
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import pyspark
import pytest

from streams.replica.driver.dataflow_state import Build
from streams.replica.main import Replica
from tests.integration.replica import process
from tests.integration.replica.deep_view import Deep
from tests.support.processes import command_line, family

pytestmark = pytest.mark.integration


def until_killed(running: "subprocess.Popen[bytes]", state: Path, point: str, nth: int) -> None:
    try:
        running.wait(400)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the replica did not reach {point} {nth} times")
    finally:
        process.kill(running)
    assert running.returncode == -signal.SIGKILL, f"it ended by itself before {point}"
    assert reached(state, point) >= nth, f"it was killed at something else than {point}"


def reached(state: Path, point: str) -> int:
    file = state / f"crash-{point}"
    return file.stat().st_size if file.exists() else 0


@pytest.mark.timeout(600)
def test_a_driver_and_a_worker_die_in_the_middle_of_micro_batches(
    deep: Deep, run: Callable[..., Replica], tmp_path: Path
) -> None:
    state, bench = tmp_path / "r1", deep.bench
    deep.view()
    deep.begin()
    until_killed(process.start(bench, state, {"after-chunks": 3}), state, "after-chunks", 3)
    alone = {"after-state@worker": 7}
    run("r1", state, points=alone)
    until_outlived(None, state, alone)
    deep.check(changes=3)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_drivers_and_workers_die_in_the_middle_of_micro_batches(
    deep: Deep, tmp_path: Path
) -> None:
    state, bench = tmp_path / "r1", deep.bench
    deep.view()
    deep.begin()
    for point, nth in [
        ("after-state", 23),
        ("before-chunks", 9),
        ("after-chunks", 7),
        ("after-append", 7),
    ]:
        until_killed(process.start(bench, state, {point: nth}), state, point, nth)
    alone = {"after-state@worker": 17, "before-chunks@worker": 7}
    running = process.start(bench, state, alone)
    try:
        until_outlived(running, state, alone)
        deep.check()
    finally:
        process.kill(running)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_executors_die_in_the_middle_of_micro_batches(deep: Deep, tmp_path: Path) -> None:
    """A cluster of two executors; the JVMs of two die, one with state that nobody knows of."""
    state, bench = tmp_path / "r1", deep.bench
    environment = {"SPARK_HOME": str(a_spark_home(tmp_path))}
    deep.view()
    deep.begin()
    points = {"after-state@executor": 23, "before-chunks@executor": 17}
    running = process.start(
        bench, state, points, master="local-cluster[2,1,1024]", environment=environment
    )
    try:
        until_outlived(running, state, points)
        logs = list((tmp_path / "spark" / "work").glob("app-*/*/stderr"))
        assert len(logs) == 2 + len(points), "each executor that died was replaced"
        deep.check()
    finally:
        process.kill(running)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_frozen_executor_is_lost_and_the_others_go_on(deep: Deep, tmp_path: Path) -> None:
    """A cluster of two executors, one of which is stopped, as on a host that is cut off."""
    state, bench = tmp_path / "r1", deep.bench
    environment = {"SPARK_HOME": str(a_spark_home(tmp_path))}
    deep.view()
    deep.begin()
    points = {"after-state@executor": 1 << 30}  # counted, and never reached
    running = process.start(
        bench, state, points, master="local-cluster[2,1,1024]", environment=environment
    )
    try:
        until_counted(running, state, 20)
        frozen = min(executors(running.pid), key=lambda child: child.pid)
        frozen.suspend()
        until_counted(running, state, reached(state, "after-state@executor") + 40)
        deep.check()
    finally:
        process.kill(running)


def executors(driver: int) -> list[psutil.Process]:
    """The JVMs of a cluster's executors."""
    return [pid for pid in family(driver) if "ExecutorBackend" in " ".join(command_line(pid))]


def until_counted(running: "subprocess.Popen[bytes]", state: Path, count: int) -> None:
    """Wait until executors have computed so many tasks."""
    deadline = time.monotonic() + 400
    while reached(state, "after-state@executor") < count:
        assert running.poll() is None, "the driver died"
        assert time.monotonic() < deadline, "the replica stands still"
        time.sleep(0.5)


def a_spark_home(directory: Path) -> Path:
    """The installed Spark, in a directory in which its workers may write."""
    home = directory / "spark"
    home.mkdir()
    for name in ("bin", "jars", "python"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home


def until_outlived(
    running: "subprocess.Popen[bytes] | None", state: Path, points: Mapping[str, int]
) -> None:
    """Wait until what the points kill is dead and the driver has gone on for a while."""
    deadline = time.monotonic() + 400
    while any(reached(state, point) < nth + 9 for point, nth in points.items()):
        assert running is None or running.poll() is None, "the driver died too"
        assert time.monotonic() < deadline, f"the replica stands still before {points}"
        time.sleep(0.5)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_hydration_in_slices_outlives_kills(deep: Deep, tmp_path: Path) -> None:
    """Killed before a slice is staged, and after; what was done stays done."""
    state, bench = tmp_path / "r1", deep.bench
    running = process.start(bench, state, {})
    try:
        for _ in range(12):
            deep.write()
            deep.bench.settle("places", timeout_s=300)
    finally:
        process.kill(running)
    deep.view()
    small = {"slice_bytes": 1}
    done = []
    for point, nth in [("after-chunks", 3), ("after-append", 3)]:
        started = process.start(bench, state, {point: nth}, budgets=small)
        until_killed(started, state, point, nth)
        done.append(progress(state))
    assert 2 <= done[0].done < done[1].done < len(done[0].slices), "nothing is done twice"
    assert done[0].incarnation == done[1].incarnation
    assert done[1].staged > done[0].staged > 0
    running = process.start(bench, state, {"before-chunks@worker": 2}, budgets=small)
    try:
        deep.begin()
        deep.bench.settle("deep", timeout_s=300)
        assert reached(state, "before-chunks@worker") >= 2
        deep.check()
        assert records(state) == {done[0].incarnation}
    finally:
        process.kill(running)


def records(state: Path) -> set[str]:
    """The incarnations of the view's state, as its checkpoint records have them."""
    files = (state / "checkpoints" / "deep").glob("[0-9]*")
    return {json.loads(file.read_bytes())["incarnation"] for file in files}


def progress(state: Path) -> Build:
    stored = (state / "checkpoints" / "deep" / "build").read_bytes()
    build = pickle.loads(stored.partition(b"\n")[2])  # behind its header
    assert isinstance(build, Build)
    return build
