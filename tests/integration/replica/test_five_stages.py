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
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyspark
import pytest

from streams.kafka.embedded import EmbeddedBroker
from streams.replica.driver.dataflow_state import Build
from streams.replica.main import Replica
from streams.testing import maintain
from tests.integration.replica import process
from tests.integration.replica.json_producer import Feed
from tests.integration.replica.support import Bench
from tests.support.processes import command_line, family

pytestmark = pytest.mark.integration

SOURCES = {
    "orders": (("id", "BIGINT"), ("customer", "BIGINT"), ("amount", "DOUBLE")),
    "people": (("id", "BIGINT"), ("name", "VARCHAR")),
    "places": (("id", "BIGINT"), ("land", "VARCHAR")),
}
QUERY = """
    WITH spent AS (
        SELECT p.name, count(*) AS n, sum(o.amount) AS total, min(o.id) AS first
        FROM orders o JOIN people p ON o.customer = p.id GROUP BY p.name),
    placed AS (
        SELECT l.land, s.* FROM spent s JOIN places l ON s.n % 7 = l.id),
    ranked AS (
        SELECT land, name, n, total,
            sum(total) OVER (PARTITION BY land ORDER BY first, name) AS so_far
        FROM placed)
    SELECT land, name, n, total, so_far FROM ranked
    QUALIFY row_number() OVER (PARTITION BY n ORDER BY so_far DESC, name) <= 2
"""


class Deep:
    """Three sources, a feed that moves them while it is told to, and the view over all."""

    def __init__(self, bench: Bench, bootstrap: str) -> None:
        self.bench, self.feed, self.rng = bench, Feed(bootstrap), random.Random(5)
        self.topics = {name: bench.raw_topic() for name in SOURCES}
        self.sent = 0
        self.stopping = threading.Event()
        self.thread: threading.Thread | None = None
        self.write()
        for name, columns in SOURCES.items():
            keys = () if name == "orders" else ("id",)
            bench.source(name, columns, self.topics[name], keys=keys)

    def view(self) -> None:
        """Born with all that is there by now as one snapshot."""
        self.bench.view("deep", QUERY, min(map(self.bench.upper, SOURCES)) - 1)

    def write(self) -> None:
        rng = self.rng
        amounts = [rng.choice([0.1, 0.7, 1e16, -1e16, rng.random()]) for _ in range(20)]
        rows = [
            {"id": self.sent + i, "customer": rng.randrange(30), "amount": amount}
            for i, amount in enumerate(amounts)
        ]
        self.feed.send(self.topics["orders"], rows)
        self.sent += len(rows)
        people = [
            ({"id": i}, None if rng.random() < 0.2 else {"name": f"p{rng.randrange(20)}"})
            for i in rng.sample(range(32), 3)
        ]
        self.feed.put(self.topics["people"], people)
        place = rng.randrange(7)
        self.feed.put(self.topics["places"], [({"id": place}, {"land": f"l{place % 3}"})])

    def begin(self) -> None:
        def keep_writing() -> None:
            while not self.stopping.wait(0.3):
                self.write()

        self.stopping.clear()
        self.thread = threading.Thread(target=keep_writing, daemon=True)
        self.thread.start()

    def end(self) -> None:
        self.stopping.set()
        if self.thread is not None:
            self.thread.join()

    def check(self, changes: int = 10) -> None:
        """Each message counts once, and every update is there that should be, and no other.

        The view is to have changed more than `changes` times by then.
        """
        self.await_changes(changes)
        self.end()
        self.bench.settle(*SOURCES, "deep", timeout_s=300)
        bench, as_of = self.bench, self.bench.descriptions["deep"].as_of
        assert sorted(bench.table("orders")["id"].to_pylist()) == list(range(self.sent))
        upper = min(bench.upper(name) for name in (*SOURCES, "deep"))
        tables = {name: history(bench.table(name), as_of, upper) for name in SOURCES}
        definitions = {
            name: ", ".join(f"{column} {kind}" for column, kind in columns)
            for name, columns in SOURCES.items()
        }
        view = maintain(QUERY, definitions, tables, [as_of + 1, upper])
        actual = bits(history(bench.table("deep"), as_of, upper))
        expected = bits(view.updates)
        assert actual == expected, (actual - expected, expected - actual)

    def await_changes(self, times: int) -> None:
        """Wait until the view has changed so often: fewer times would not prove a thing."""
        deadline = time.monotonic() + 400
        while len(set(self.bench.table("deep")["_time"].to_pylist())) <= times:
            assert time.monotonic() < deadline, f"it has not changed {times} times"
            time.sleep(1)


def history(table: pa.Table, as_of: int, upper: int) -> pa.Table:
    """The updates before upper, of those up to as_of what they come to then."""
    times = pc.max_element_wise(table["_time"], as_of)
    index = table.schema.get_field_index("_time")
    return table.set_column(index, "_time", times).filter(pc.less(times, upper))


def bits(table: pa.Table) -> Counter[tuple[str, ...]]:
    """The consolidated updates: (columns and time, every bit of them) -> diff."""
    diffs = table["_diff"].to_pylist()
    names = [name for name in table.column_names if name != "_diff"]
    rows = zip(*(map(repr, table[name].to_pylist()) for name in names), strict=True)
    counts: Counter[tuple[str, ...]] = Counter()
    for row, diff in zip(rows, diffs, strict=True):
        counts[row] += diff
    return Counter({row: diff for row, diff in counts.items() if diff})


@pytest.fixture
def deep(bench: Bench, broker: EmbeddedBroker) -> Iterator[Deep]:
    deep_view = Deep(bench, broker.bootstrap)
    yield deep_view
    deep_view.stopping.set()


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
