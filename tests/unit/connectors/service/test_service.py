"""The service of materializations, over collections in memory and files of SQLite."""

import json
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from connectors import sqlite
from connectors.backfill.outcome import Outcome, Progress
from connectors.backfill.tasks import Cell, Plan, Rows, read, stalled, write
from connectors.connector import Connector
from connectors.driver import Driver
from connectors.runtime.task import Materialization
from connectors.service.service import Service
from connectors.service.supervisor import TaskEndpoint
from connectors.transport.local import Local
from schemas.materializations import (
    KIND,
    SPEC_COLUMNS,
    SPECS,
    STATE_COLUMNS,
    STATES,
    Spec,
    State,
)
from streams.errors import Determinate
from streams.ids import CollectionId, Timestamp
from streams.storage.client.shards import Shards
from streams.storage.description import Description
from streams.storage.read.reader import load
from streams.storage.small_table import SmallTable, TakenOver
from streams.trace.kernel.kernel import Kernel
from tests.support.collections import Collections
from tests.support.file_connector import FileConnector

COLUMNS = (("key", "BIGINT"), ("total", "BIGINT"))


class Killed(BaseException):
    """The process dies here: nothing of it does anything more."""


@dataclass
class Written:
    """The letters that were written, in their order, as (topic, key)."""

    letters: list[tuple[str, bytes]] = field(default_factory=list)

    def write(self, topic: str, key: bytes, value: bytes) -> None:
        assert json.loads(value)["error"]
        self.letters.append((topic, key))


class World:
    """Collections, the table of specifications, and services one after another."""

    def __init__(self, path: Path) -> None:
        self.path, self.collections = path, Collections()
        for name in ("u1", "u2"):
            self.collections.create(name, COLUMNS, keys=("key",))
        self.specs = self.table(SPECS, SPEC_COLUMNS)
        self.specs.own()
        self.states = self.table(STATES, STATE_COLUMNS)
        self.wanted: dict[str, Spec] = {}
        self.running: list[tuple[threading.Event, threading.Thread, Shards]] = []
        self.ends: list[BaseException] = []
        self.written = Written()
        self.failing: list[Exception] = []
        self.job: Callable[[Plan, Sequence[Cell], Progress], Outcome] = self.filled
        self.filled_at: list[tuple[Timestamp, int]] = []
        """Of each job its time and how many gaps it had."""

    def table(self, name: CollectionId, columns: Any) -> SmallTable:
        return SmallTable(self.collections.client(), name, Description(columns, kind=KIND))

    @contextmanager
    def opened(self, task: Materialization) -> Iterator[TaskEndpoint]:
        ours: dict[str, Connector] = {"sqlite": sqlite.CONNECTOR, "./file": FileConnector()}
        job = None if task.backfill is None else lambda _: self.job
        yield TaskEndpoint(task, Driver(Local(ours[task.connector])), self.written, job)

    def filled(self, plan: Plan, cells: Sequence[Cell], progress: Progress) -> Outcome:
        """Write the gaps of a backfill, as a job of Spark's does."""
        if self.failing:
            raise self.failing.pop(0)
        self.filled_at.append((plan.as_of, len(plan.gaps)))
        kernel, chunks = Kernel(), self.collections.broker.chunks
        placed = defaultdict[int, list[Rows]](list)
        for cell in cells:
            for rows in read(plan, cell, lambda *some: load(chunks, *some), kernel):
                placed[rows.gap].append(rows)
        driver = Driver(Local(sqlite.CONNECTOR))
        stalls, count = dict[int, str](), 0
        for number in range(len(plan.gaps)):
            stalls |= stalled(plan, number, placed[number], kernel)
        for number in range(len(plan.gaps)):
            count += write(plan.without(stalls), number, placed[number], driver, kernel)
            progress(number + 1, count)
        return Outcome(count, stalls)

    def want(self, *specs: Spec) -> None:
        self.wanted |= {spec.id: spec for spec in specs}
        self.specs.write([spec.row() for spec in self.wanted.values()])

    def start(self, crash: Callable[[str], None] = lambda _: None) -> None:
        stopping, shards = threading.Event(), self.collections.client()
        service = Service(
            shards,
            self.opened,
            owner="here",
            now_ms=lambda: int(time.monotonic() * 1000),
            crash=crash,
        )

        def run() -> None:
            try:
                service.run(stopping)
            except TakenOver as end:
                self.ends.append(end)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.running.append((stopping, thread, shards))

    def close(self) -> None:
        for stopping, thread, _ in self.running:
            stopping.set()
            thread.join()
        self.collections.close()

    def state(self, id_: str) -> State:
        if not self.states.find():
            return State(id=id_, state="not written")
        states = map(State.of, self.states.rows())
        return next((state for state in states if state.id == id_), State(id=id_, state="none"))

    def rows(self, table: str, file: str = "shop.db") -> list[Any]:
        if not (self.path / file).exists():
            return []
        connection = sqlite3.connect(self.path / file, timeout=30)
        with suppress(sqlite3.OperationalError):
            return connection.execute(f"SELECT key, total FROM {table} ORDER BY 1").fetchall()
        return []

    def spec(self, id_: str = "m1", wanted: Any = "run", **more: Any) -> Spec:
        bindings = [{"collection": "u1", "resource": {"table": "t1"}}]
        task = {
            "task": more.get("task", "shop"),
            "connector": more.get("connector", "sqlite"),
            "config": {"path": str(self.path / more.get("file", "shop.db"))},
            "bindings": more.get("bindings", bindings),
            "limits": {"every_ms": 0, "idle_ms": 50},
            **more.get("settings", {}),
        }
        return Spec(id=id_, wanted=wanted, task=task, unbound=more.get("unbound", ()))

    def holds(self, collection: str) -> set[str]:
        self.collections.shards.sync(CollectionId(collection))
        state = self.collections.shards.state(CollectionId(collection))
        return {
            capability
            for capability in state.capabilities
            if capability.startswith("materialize.")
        }


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    new_world = World(tmp_path)
    yield new_world
    new_world.close()


def eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


DEAR = """CREATE TRIGGER dear BEFORE INSERT ON t1 WHEN NEW.total > 100
    BEGIN SELECT RAISE(ABORT, 'too dear'); END"""


def test_what_the_endpoint_refuses_goes_to_the_dead_letters(world: World) -> None:
    world.collections.append("u1", 12, [(1, 10, 11, 1)])
    world.start()
    binding = {"collection": "u1", "resource": {"table": "t1"}, "dead_letters": "dead"}
    world.want(world.spec(bindings=[binding]))
    eventually(lambda: world.rows("t1") == [(1, 10)])
    with closing(sqlite3.connect(world.path / "shop.db", timeout=30)) as connection:
        connection.execute(DEAR)
    world.collections.append("u1", 14, [(2, 200, 13, 1), (3, 30, 13, 1)])
    eventually(lambda: world.rows("t1") == [(1, 10), (3, 30)])
    eventually(lambda: [topic for topic, _ in world.written.letters] == ["dead"])
    eventually(lambda: world.state("m1").dead_letters == {"t1": 1})
    eventually(lambda: world.state("m1").left_out == {"t1": 1})
    world.collections.append("u1", 16, [(2, 200, 15, -1), (2, 20, 15, 1)])
    eventually(lambda: world.rows("t1") == [(1, 10), (2, 20), (3, 30)])
    eventually(lambda: world.state("m1").left_out == {})
    assert world.state("m1").dead_letters == {"t1": 1}


BOTH = [
    {"collection": "u1", "resource": {"table": "t1"}},
    {"collection": "u2", "resource": {"table": "t2"}},
]


def test_it_runs_rests_changes_and_ends(world: World) -> None:
    world.collections.append("u1", 12, [(1, 10, 11, 1)])
    world.collections.append("u2", 12, [(7, 70, 11, 1)])
    world.start()
    world.want(world.spec())
    eventually(lambda: world.rows("t1") == [(1, 10)])
    eventually(lambda: world.state("m1").state == "running")
    assert world.holds("u1") == {"materialize.catalog.m1.u1"}

    world.want(world.spec(wanted="pause"))
    eventually(lambda: world.state("m1").state == "paused")
    world.collections.append("u1", 14, [(2, 20, 13, 1)])
    world.collections.append("u2", 14)
    time.sleep(0.3)
    assert world.rows("t1") == [(1, 10)]
    assert world.holds("u1") == {"materialize.catalog.m1.u1"}, "it can go on from there"

    world.want(world.spec(bindings=BOTH))
    eventually(lambda: world.rows("t1") == [(1, 10), (2, 20)])
    eventually(lambda: world.rows("t2") == [(7, 70)])

    world.want(world.spec(bindings=BOTH[1:], unbound=(CollectionId("u1"),)))
    eventually(lambda: world.holds("u1") == set())
    world.collections.append("u2", 16, [(8, 80, 15, 1)])
    eventually(lambda: world.rows("t2") == [(7, 70), (8, 80)])
    assert world.rows("t1") == [(1, 10), (2, 20)]

    world.want(world.spec(wanted="drop", bindings=BOTH[1:], unbound=(CollectionId("u1"),)))
    eventually(lambda: world.state("m1").state == "dropped")
    assert world.holds("u2") == set()
    assert world.rows("t2") == [(7, 70), (8, 80)], "the tables stay"

    world.wanted.clear()
    world.want()
    eventually(lambda: world.state("m1").state == "none")


def test_a_changed_endpoint_is_written_whole_and_one_that_was_wrong_goes_on(
    world: World,
) -> None:
    world.collections.append("u1", 12, [(1, 10, 11, 1)])
    world.start()
    world.want(world.spec())
    eventually(lambda: world.rows("t1") == [(1, 10)])
    world.want(world.spec(file="nowhere/shop.db"))
    eventually(lambda: world.state("m1").state == "stalled")
    world.collections.append("u1", 14, [(2, 20, 13, 1)])
    world.want(world.spec(file="other.db"))
    eventually(lambda: world.rows("t1", "other.db") == [(1, 10), (2, 20)])
    assert world.rows("t1") == [(1, 10)], "the first endpoint is left as it was"
    world.want(world.spec())
    eventually(lambda: world.state("m1").state == "failed")
    assert "raise the binding's backfill" in world.state("m1").message
    binding = {"collection": "u1", "resource": {"table": "t1", "backfill": 1}}
    world.want(world.spec(bindings=[binding]))
    eventually(lambda: world.rows("t1") == [(1, 10), (2, 20)])


def test_a_raised_backfill_has_the_table_written_anew(world: World) -> None:
    world.collections.append("u1", 12, [(1, 10, 11, 1), (2, 20, 11, 1)])
    world.start()
    binding: dict[str, Any] = {"collection": "u1", "select": ["total"]}
    world.want(world.spec(bindings=[{**binding, "resource": {"table": "t1"}}]))
    eventually(lambda: world.rows("t1") == [(1, 10), (2, 20)])
    with closing(sqlite3.connect(world.path / "shop.db", timeout=30)) as connection:
        connection.execute("UPDATE t1 SET total = -1")
        connection.commit()
    binding["resource"] = {"table": "t1", "backfill": 1}
    world.want(world.spec(bindings=[binding]))
    eventually(lambda: world.rows("t1") == [(1, 10), (2, 20)])
    world.collections.append("u1", 14, [(2, 20, 13, -1)])
    eventually(lambda: world.rows("t1") == [(1, 10)])


SPARK = {"backfill": {"by": "spark", "ranges": 3}}


def test_a_job_writes_the_first_contents_and_the_service_goes_on(world: World) -> None:
    world.collections.append("u1", 12, [(n, n, 11, 1) for n in range(20)])
    world.collections.append("u2", 12, [(7, 70, 11, 1)])
    world.failing = [Determinate("an executor is lost")]
    world.start()
    world.want(world.spec(settings=SPARK))
    eventually(lambda: world.state("m1").state == "running")
    assert world.rows("t1") == [(n, n) for n in range(20)]
    assert world.filled_at == [(11, 3)]
    assert (world.state("m1").rows, world.state("m1").time) == (20, 11)
    assert world.holds("u1") == {"materialize.catalog.m1.u1"}, "the follow has the same holds"

    world.collections.append("u1", 14, [(1, 1, 13, -1), (1, 100, 13, 1)])
    world.collections.append("u2", 14)
    eventually(lambda: (1, 100) in world.rows("t1"))
    world.want(world.spec(bindings=BOTH, settings=SPARK))
    eventually(lambda: world.rows("t2") == [(7, 70)])
    assert len(world.filled_at) == 2, "what is new is written by another job"
    world.want(world.spec(bindings=BOTH))
    world.collections.append("u1", 16, [(2, 2, 15, -1)])
    world.collections.append("u2", 16)
    eventually(lambda: (2, 2) not in world.rows("t1"))
    assert len(world.filled_at) == 2


def test_a_violated_key_stops_its_binding_alone_in_a_job_too(world: World) -> None:
    world.collections.append("u1", 12, [(1, 10, 11, 1), (1, 11, 11, 1)])
    world.collections.append("u2", 12, [(7, 70, 11, 1)])
    world.start()
    world.want(world.spec(bindings=BOTH, settings=SPARK))
    eventually(lambda: world.rows("t2") == [(7, 70)])
    eventually(lambda: world.state("m1").state == "running")
    eventually(lambda: "t1" in world.state("m1").stalls)
    assert world.state("m1").stalls["t1"] == "key (key = 1) is not unique: 2 rows have it at 11"
    assert world.rows("t1") == []
    world.collections.append("u1", 14, [(1, 11, 13, -1)])
    world.collections.append("u2", 14, [(8, 80, 13, 1)])
    eventually(lambda: world.rows("t1") == [(1, 10)])
    assert world.rows("t2") == [(7, 70), (8, 80)]


def test_the_progress_of_a_job_is_in_the_state(world: World) -> None:
    stopped = threading.Event()

    def half(plan: Plan, cells: Sequence[Cell], progress: Progress) -> Outcome:
        progress(1, 1_200)
        assert stopped.wait(60)
        return world.filled(plan, cells, progress)

    world.job = half
    world.collections.append("u1", 12, [(n, n, 11, 1) for n in range(20)])
    world.start()
    world.want(world.spec(settings=SPARK))
    eventually(lambda: world.state("m1").rows == 1_200)
    state = world.state("m1")
    assert state.backfill == {"done": 1, "total": 3, "unit": "key ranges"}
    assert (state.state, state.commits) == ("backfilling", 1)
    stopped.set()
    eventually(lambda: world.state("m1").state == "running")
    assert (world.state("m1").rows, world.state("m1").backfill) == (20, None)


def test_a_backfill_is_given_up_for_another_specification(world: World) -> None:
    stopped = threading.Event()

    def never(plan: Plan, cells: Sequence[Cell], progress: Progress) -> Outcome:
        assert stopped.wait(60)
        raise Determinate("the job was stopped")

    world.job = never
    world.collections.append("u1", 12, [(1, 10, 11, 1)])
    world.start()
    world.want(world.spec(settings=SPARK))
    eventually(lambda: world.state("m1").message == "3 key ranges at 11")
    assert world.state("m1").state == "backfilling"
    world.want(world.spec(wanted="pause", settings=SPARK))
    stopped.set()
    eventually(lambda: world.state("m1").state == "paused")
    assert world.rows("t1") == []


def test_one_that_fails_stops_nobody_else_and_says_why(world: World) -> None:
    world.collections.append("u1", 12, [(1, 10, 11, 1)])
    (world.path / "taken.db").write_text("this is no database, and never was one")
    world.start()
    world.want(
        world.spec("m1", file="nowhere/shop.db"),
        world.spec("m2", connector="no such connector"),
        world.spec("m3", bindings=[{"collection": "u9", "resource": {"table": "t"}}]),
        world.spec("m4", file="taken.db"),
        world.spec("m5"),
    )
    eventually(lambda: world.rows("t1") == [(1, 10)])
    for id_, state, why in [
        ("m1", "stalled", "unable to open database file"),
        ("m2", "failed", "no such connector"),
        ("m3", "failed", "collection u9 does not exist"),
        ("m4", "failed", "file is not a database"),
        ("m5", "running", ""),
    ]:
        eventually(lambda id_=id_, state=state: world.state(id_).state == state)  # type: ignore[misc]  # bound now
        assert why in world.state(id_).message
    assert world.state("m1").errors > 0, "sessions that another one follows"
    eventually(lambda: world.state("m2").errors > 1)
    assert world.state("m5").errors == 0
    world.want(world.spec("m1", wanted="drop", file="nowhere/shop.db"))
    eventually(lambda: world.state("m1").state == "dropped")
    world.want(world.spec("m4", wanted="pause", file="taken.db"))
    eventually(lambda: world.state("m4").state == "paused")
    (world.path / "taken.db").unlink()
    world.want(world.spec("m4", file="taken.db"))
    eventually(lambda: world.rows("t1", "taken.db") == [(1, 10)])


def test_what_was_put_right_runs_again(world: World) -> None:
    """Drift ends a run; another one follows, and finds the row that somebody put back."""
    world.collections.append("u1", 12, [(1, 10, 11, 1)])
    world.start()
    world.want(world.spec())
    eventually(lambda: world.rows("t1") == [(1, 10)])
    connection = sqlite3.connect(world.path / "shop.db", timeout=30, isolation_level=None)
    connection.execute("DELETE FROM t1")
    world.collections.append("u1", 14, [(1, 10, 13, -1), (1, 11, 13, 1)])
    eventually(lambda: world.state("m1").state == "failed")
    connection.execute(
        'INSERT INTO t1 (key, total, flow_document) VALUES (1, 10, \'{"key":1,"total":10}\')'
    )
    eventually(lambda: world.rows("t1") == [(1, 11)])
    eventually(lambda: world.state("m1").message == "")


def test_the_newer_of_two_services_goes_on(world: World) -> None:
    world.collections.append("u1", 12, [(1, 10, 11, 1)])
    world.want(world.spec())
    world.start()
    eventually(lambda: world.state("m1").state == "running")
    world.start()
    eventually(lambda: len(world.ends) == 1)
    world.collections.append("u1", 14, [(2, 20, 13, 1)])
    eventually(lambda: world.rows("t1") == [(1, 10), (2, 20)])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("point", ["before-commit", "in-commit", "after-commit"])
def test_another_service_goes_on_exactly_where_one_died(world: World, point: str) -> None:
    """The keeper's thread ends like a killed process's: nothing of it runs any more."""
    died = threading.Event()

    def crash(at: str) -> None:
        if at == point and world.rows("t1"):
            died.set()
            raise Killed

    world.want(world.spec())
    world.collections.append("u1", 12, [(1, 10, 11, 1)])
    world.start(crash)
    eventually(lambda: world.rows("t1") == [(1, 10)])
    world.collections.append("u1", 14, [(1, 10, 13, -1), (1, 11, 13, 1), (2, 2, 13, 1)])
    assert died.wait(60)
    world.start()
    world.collections.append("u1", 16, [(1, 11, 15, -1), (3, 3, 15, 1)])
    eventually(lambda: world.rows("t1") == [(2, 2), (3, 3)])


def test_the_log_of_a_dropped_task_goes_with_it(world: World) -> None:
    world.collections.append("u1", 12, [(1, 10, 11, 1)])
    world.start()
    foreign = {"connector": "./file", "file": "tables.json"}
    world.want(world.spec(**foreign))
    topics = world.collections.broker.topics
    eventually(lambda: "sw.materialize.catalog.m1.log" in topics.names())
    world.want(world.spec(wanted="drop", **foreign))
    eventually(lambda: world.state("m1").state == "dropped")
    assert "sw.materialize.catalog.m1.log" not in topics.names()


@pytest.mark.parametrize(
    "hostile",
    [
        ("m2", "run", "{}"),
        ("m2", "run", '{"task": {"bindings": 7}, "unbound": []}'),
        ("m2", "run", '{"task": [["task", "b"]], "unbound": "u2"}'),
        ("m2", "fly", '{"task": {}, "unbound": []}'),
    ],
)
def test_a_specification_that_is_wrong_costs_no_other_and_heals(
    world: World, hostile: tuple[str, str, str]
) -> None:
    world.collections.append("u1", 12, [(1, 10, 11, 1)])
    world.collections.append("u2", 12, [(7, 70, 11, 1)])
    world.start()
    world.specs.write([world.spec().row(), hostile, ("", "run", "{")])
    eventually(lambda: world.state("m2").state == "failed")
    assert "m2" in world.state("m2").message or "bindings" in world.state("m2").message
    eventually(lambda: world.rows("t1") == [(1, 10)])
    eventually(lambda: world.state("m1").state == "running")
    healed = world.spec("m2", task="b", file="b.db", bindings=BOTH[1:])
    world.want(world.spec(), healed)
    eventually(lambda: world.rows("t2", "b.db") == [(7, 70)])
    eventually(lambda: world.state("m2").state == "running")
