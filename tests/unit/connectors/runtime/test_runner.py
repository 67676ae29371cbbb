"""A task over collections in memory and a database: what is in its tables, and when."""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors import sqlite as sqlite_connector
from connectors.answer_timeouts import PATIENT, Patience
from connectors.driver import Driver
from connectors.runtime.follower import CollectionFollower, hold_of
from connectors.runtime.lane import EndpointDrifted
from connectors.runtime.runner import CannotCatchUp, Runner, Status
from connectors.runtime.task import Materialization
from connectors.transport.errors import ConnectorFailed
from connectors.transport.local import Local
from streams.errors import Determinate, InvalidUsage
from streams.ids import CollectionId
from streams.progress import END
from streams.storage.client.shards import write_capability
from streams.storage.log.events import Drop
from tests.support.collections import Collections

REVENUE = (("country", "VARCHAR"), ("total", "BIGINT"))
ORDERS = (("id", "BIGINT"), ("item", "VARCHAR"), ("price", "DECIMAL(9, 2)"))


class Crash(BaseException):
    """The process dies here."""


class World:
    def __init__(self, path: Path) -> None:
        self.collections = Collections()
        self.collections.create("u1", REVENUE, keys=("country",))
        self.collections.create("u2", ORDERS)
        self.file = str(path / "shop.db")
        self.connector: Any = sqlite_connector.CONNECTOR
        self.named = "sqlite"
        self.config: dict[str, Any] = {"path": self.file}
        self.bindings: list[dict[str, Any]] = [
            {"collection": "u1", "resource": {"table": "revenue"}},
            {
                "collection": "u2",
                "resource": {"table": "orders_log", "delta_updates": True},
            },
        ]
        self.limits: dict[str, Any] = {"every_ms": 0, "idle_ms": 0}

    @property
    def task(self) -> Materialization:
        return Materialization.model_validate(
            {
                "task": "shop",
                "connector": self.named,
                "config": self.config,
                "bindings": self.bindings,
                "limits": self.limits,
            }
        )

    def runner(
        self,
        crash: Callable[[str], None] = lambda _: None,
        driver: Driver | None = None,
        stopping: threading.Event | None = None,
        now_ms: Callable[[], int] = lambda: 1000,
        report: Callable[[Status], None] = lambda _: None,
    ) -> Runner:
        return Runner(
            self.task,
            driver or Driver(Local(self.connector)),
            self.collections.client(),
            now_ms=now_ms,
            stopping=stopping or threading.Event(),
            crash=crash,
            report=report,
        )

    def catch_up(self, crash: Callable[[str], None] = lambda _: None) -> Status:
        return self.runner(crash).run(until_caught_up=True)

    def query(self, sql: str) -> list[Any]:
        connection = sqlite3.connect(self.file, isolation_level=None)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    @property
    def read_through(self) -> dict[str, int]:
        ((text,),) = self.query("SELECT read_through FROM slackwater_checkpoints")
        sources = json.loads(text)["sources"]
        return {name: int(source["readThrough"]) for name, source in sources.items()}

    def hold(self, id_: str) -> int:
        self.collections.shards.sync(CollectionId(id_))
        state = self.collections.shards.state(CollectionId(id_))
        time: int = state.capabilities[hold_of("shop", CollectionId(id_))].frontier.time
        return time


MEMORY, DISK = "in memory", "on disk"
BOTH = pytest.mark.parametrize("world", [MEMORY, DISK], indirect=True)
"""What waits is in memory, or all of it is more than that holds."""


@pytest.fixture(params=[MEMORY])
def world(memory_path: Path, request: Any) -> Iterator[World]:
    new_world = World(memory_path)
    if request.param == DISK:
        new_world.limits |= {"bytes": 1, "spill": str(memory_path)}
    yield new_world
    new_world.collections.close()


def fill(world: World) -> None:
    world.collections.append("u1", 21, [("de", 10, 11, 1), ("ch", 20, 12, 1)])
    world.collections.append("u2", 21, [(1, "pen", 150, 12, 1)])


@BOTH
def test_tables_hold_both_collections_at_one_time(world: World) -> None:
    fill(world)
    assert world.catch_up().state == "done"
    assert world.query("SELECT country, total FROM revenue ORDER BY 1") == [
        ("ch", 20),
        ("de", 10),
    ]
    log = world.query(
        "SELECT id, item, price, slackwater_time, slackwater_diff FROM orders_log"
    )
    assert log == [(1, "pen", "150.00", 12, 1)]
    assert world.read_through == {"u1;revenue": 21, "u2;orders_log": 21}
    changes = [("de", 10, 22, -1), ("de", 11, 22, 1), ("ch", 20, 23, -1), ("fr", 1, 23, 1)]
    world.collections.append("u1", 31, changes)
    world.collections.append("u2", 26, [(1, "pen", 150, 25, -1)])
    status = world.catch_up()
    assert status.time == 25, "the collections have this time in common"
    assert world.query("SELECT country, total FROM revenue ORDER BY 1") == [
        ("de", 11),
        ("fr", 1),
    ]
    assert (world.hold("u1"), world.hold("u2")) == (25, 25)


def test_a_task_that_is_dropped_holds_nothing(world: World) -> None:
    fill(world)
    world.catch_up()
    collections = [CollectionId("u1"), CollectionId("u2")]
    assert CollectionFollower(world.collections.client(), "shop", collections).drop() == (
        "u1",
        "u2",
    )
    assert CollectionFollower(world.collections.client(), "shop", collections).drop() == ()
    world.collections.shards.sync(CollectionId("u1"))
    capabilities = world.collections.shards.state(CollectionId("u1")).capabilities
    assert hold_of("shop", CollectionId("u1")) not in capabilities


def test_documents_say_what_columns_do(world: World) -> None:
    fill(world)
    world.bindings = [{"collection": "u2", "key": ["id"], "resource": {"table": "orders"}}]
    world.catch_up()
    ((document,),) = world.query("SELECT flow_document FROM orders")
    assert json.loads(document) == {"id": 1, "item": "pen", "price": "150.00"}


@pytest.mark.parametrize(
    ("world", "place"),
    [
        (MEMORY, "before-commit"),
        (MEMORY, "in-commit"),
        (MEMORY, "after-commit"),
        (DISK, "in-commit"),
    ],
    indirect=["world"],
)
def test_who_dies_at_a_commit_loses_and_repeats_nothing(world: World, place: str) -> None:
    fill(world)
    world.limits |= {"rows": 1}
    for time in range(21, 24):
        world.collections.append("u1", time + 1, [(f"c{time}", time, time, 1)])
        world.collections.append("u2", time + 1, [(time, "x", 1, time, 1)])
    left = 0

    def crash(at: str) -> None:
        nonlocal left
        left -= at == place
        if left < 0:
            raise Crash

    for number in range(10):
        left = number % 2
        try:
            world.catch_up(crash)
        except Crash:
            continue
        break
    world.catch_up()
    assert world.query("SELECT country FROM revenue ORDER BY 1") == [
        ("c21",),
        ("c22",),
        ("c23",),
        ("ch",),
        ("de",),
    ]
    assert world.query("SELECT id, slackwater_time FROM orders_log ORDER BY 1") == [
        (1, 12),
        (21, 21),
        (22, 22),
        (23, 23),
    ]


@BOTH
def test_a_violated_key_stops_its_binding_alone(world: World) -> None:
    fill(world)
    world.collections.append("u1", 31, [("de", 99, 25, 1)])
    world.collections.append("u2", 31, [(2, "ink", 250, 26, 1)])
    with pytest.raises(
        CannotCatchUp, match=r"revenue: key \(country = de\) is not unique: 2 rows"
    ):
        world.catch_up()
    assert world.query("SELECT count(*) FROM orders_log") == [(2,)]
    # in memory it moves as far as it can, on disk all the way or not at all
    at = 21 if "spill" in world.limits else 25
    assert world.read_through == {"u1;revenue": at, "u2;orders_log": 31}
    world.collections.append("u1", 41, [("de", 99, 35, -1), ("de", 10, 35, -1)])
    world.collections.append("u2", 41)
    world.catch_up()
    assert world.query("SELECT country FROM revenue") == [("ch",)]


@BOTH
def test_first_contents_tell_how_far_they_are(world: World) -> None:
    rows = [(f"c{number}", number, 11, 1) for number in range(300)]
    world.collections.append("u1", 21, rows)
    world.collections.append("u2", 21, [(1, "pen", 150, 12, 1)])
    statuses: list[Status] = []
    world.runner(report=statuses.append).run(until_caught_up=True)
    backfills = [status.backfill for status in statuses if status.backfill is not None]
    assert {backfill.total for backfill in backfills} == {301}
    counts = [backfill.done for backfill in backfills]
    assert (counts[0], counts[-1]) == (0, 301)
    assert counts == sorted(counts)
    assert len(counts) > (20 if "spill" in world.limits else 2)
    assert statuses[-1].backfill is None

    statuses.clear()
    world.collections.append("u1", 31, [("c1", 1, 25, -1)])
    world.collections.append("u2", 31)
    world.runner(report=statuses.append).run(until_caught_up=True)
    assert all(status.backfill is None for status in statuses), "it has its contents"


def test_a_table_that_somebody_changed_is_found(world: World) -> None:
    fill(world)
    world.catch_up()
    world.query('UPDATE revenue SET flow_document = \'{"country": "de"}\'')
    world.collections.append("u1", 31, [("de", 10, 25, -1)])
    world.collections.append("u2", 31)
    expected = r'revenue: expected \{"country": "de", "total": 10\}, actual \{"country": "de"\}'
    with pytest.raises(EndpointDrifted, match=expected):
        world.catch_up()


FOREIGN, OURS = "./sqlite", "sqlite"


@pytest.mark.parametrize(
    ("named", "verify", "is_found"),
    [
        (OURS, None, False),
        (OURS, "always", True),
        (FOREIGN, None, True),
        (FOREIGN, "first", False),
        (FOREIGN, "never", False),
    ],
)
def test_a_foreign_connector_is_compared_in_every_transaction(
    world: World, named: str, verify: str | None, is_found: bool
) -> None:
    """The table is changed between two transactions of one session."""
    fill(world)
    world.named, world.limits["rows"] = named, 1
    if verify is not None:
        world.bindings[0]["verify"] = verify
    world.catch_up()
    commits = list[str]()

    def tamper(at: str) -> None:
        if at == "after-commit" and not commits:
            commits.append(at)
            world.query('UPDATE revenue SET flow_document = \'{"country": "ch"}\'')

    world.collections.append("u1", 31, [("de", 10, 25, -1), ("ch", 20, 27, -1)])
    world.collections.append("u2", 31)
    if is_found:
        with pytest.raises(EndpointDrifted, match=r"revenue: expected .*20.* actual"):
            world.catch_up(tamper)
    else:
        assert world.catch_up(tamper).state == "done"
        assert world.query("SELECT * FROM revenue") == []
    assert commits


def test_an_older_session_never_commits_again(world: World) -> None:
    fill(world)

    def crash(at: str) -> None:
        if at == "before-commit":
            world.catch_up()

    with pytest.raises(ConnectorFailed, match="another session took the key range"):
        world.catch_up(crash)
    assert world.query("SELECT count(*) FROM orders_log") == [(1,)]


@pytest.mark.parametrize(
    ("binding", "text"),
    [
        ({"resource": {"table": "t"}}, "collection u2 has no key: declare"),
        ({"key": ["no"], "resource": {"table": "t"}}, "expected columns among id, item, price"),
        ({"key": ["id"], "resource": {}}, "table: Field required"),
    ],
)
def test_what_cannot_be_bound_says_why(world: World, binding: Any, text: str) -> None:
    world.bindings = [{"collection": "u2", **binding}]
    with pytest.raises((InvalidUsage, ConnectorFailed), match=text):
        world.catch_up()


def test_a_place_that_holds_another_collection_is_refused(world: World) -> None:
    fill(world)
    world.bindings = [{"collection": "u2", "key": ["id"], "resource": {"table": "orders"}}]
    world.catch_up()
    world.collections.create("u3", ORDERS)
    world.collections.append("u3", 21)
    world.bindings[0]["collection"] = "u3"
    with pytest.raises(InvalidUsage, match="orders holds collection u2, expected u3"):
        world.catch_up()


def test_a_place_that_is_ahead_of_its_collection_is_refused(world: World) -> None:
    """Its changes up to there would be left out, and nobody would see it."""
    fill(world)
    world.catch_up()
    world.collections.close()
    world.collections = Collections()
    world.collections.create("u1", REVENUE, keys=("country",))
    world.collections.create("u2", ORDERS)
    world.collections.append("u1", 15, [("fr", 5, 14, 1)])
    world.collections.append("u2", 30)
    error = r"revenue: expected u1 at frontier 15 or earlier, .*, actual 21: .*"
    with pytest.raises(InvalidUsage, match=f"{error}raise the binding's backfill"):
        world.runner().run()
    world.bindings = [
        {**binding, "resource": {**binding["resource"], "backfill": 1}}
        for binding in world.bindings
    ]
    world.catch_up()
    assert world.query("SELECT country, total FROM revenue") == [("fr", 5)]


def test_a_collection_that_is_not_there_is_named(world: World) -> None:
    world.bindings[0]["collection"] = "u9"
    with pytest.raises(InvalidUsage, match="u9"):
        world.catch_up()


@BOTH
def test_a_sealed_collection_is_there_for_good(world: World) -> None:
    fill(world)
    world.bindings = world.bindings[:1]
    sealed = Drop(CollectionId("u1"), write_capability(CollectionId("u1")))
    world.collections.shards.submit([("u1", sealed)])
    assert [world.catch_up().rows for _ in range(2)] == [2, 0]
    assert world.read_through == {"u1;revenue": END}


@BOTH
def test_it_follows_until_it_is_stopped(world: World) -> None:
    stopping = threading.Event()
    runner = world.runner(stopping=stopping)
    thread = threading.Thread(target=runner.run)
    thread.start()
    for time in range(11, 16):
        world.collections.append("u1", time + 1, [(f"c{time}", time, time, 1)])
        world.collections.append("u2", time + 1, [(time, "x", 1, time, 1)])
    while runner.status.time != 15:
        assert thread.is_alive()
        stopping.wait(0.01)
    stopping.set()
    thread.join()
    assert runner.status.state == "stopped"
    assert world.query("SELECT count(*) FROM revenue") == [(5,)]


@BOTH
def test_a_collection_without_a_complete_time_is_waited_for(world: World) -> None:
    world.collections.append("u1", 21, [("de", 10, 11, 1)])
    stopping = threading.Event()
    runner = world.runner(stopping=stopping)
    thread = threading.Thread(target=runner.run, kwargs={"until_caught_up": True})
    thread.start()
    while runner.status.state != "waiting":
        assert thread.is_alive()
        stopping.wait(0.01)
    assert runner.status.message.startswith("u2: no complete time yet")
    world.collections.append("u2", 15)
    thread.join()
    assert (runner.status.state, runner.status.message) == ("done", "")
    assert world.query("SELECT country FROM revenue") == [("de",)]


def test_what_comes_before_a_commit_is_due_goes_into_it(world: World) -> None:
    """Changes are combined while they wait, so a row that is the same again is not written."""
    fill(world)
    now = [0]
    world.limits |= {"every_ms": 1000}
    stopping = threading.Event()
    runner = world.runner(stopping=stopping, now_ms=lambda: now[0])
    thread = threading.Thread(target=runner.run)
    thread.start()
    while not runner.status.commits:
        stopping.wait(0.01)
    for time in range(21, 26):
        rows = [("de", 10, time, (-1) ** time), ("us", time, time, 1)]
        rows += [("us", time - 1, time, -1)] if time > 21 else []
        world.collections.append("u1", time + 1, [*rows])
        world.collections.append("u2", time + 1)
    world.collections.append("u1", 27, [("de", 10, 26, 1)])
    world.collections.append("u2", 27)
    while runner.status.upper != 27:
        stopping.wait(0.01)
    assert runner.status.commits == 1
    now[0] = 1000
    while runner.status.time != 26:
        stopping.wait(0.01)
    stopping.set()
    thread.join()
    assert (runner.status.commits, runner.status.rows) == (2, 4)
    assert world.query("SELECT * FROM revenue WHERE country = 'us'")[0][:2] == ("us", 25)


def test_a_spill_directory_that_is_not_there_is_named(world: World) -> None:
    world.limits |= {"spill": "/nowhere/at/all"}
    with pytest.raises(InvalidUsage, match=r"limits\.spill: .*/nowhere/at/all"):
        world.catch_up()


def test_a_collection_that_is_dropped_ends_the_task(world: World) -> None:
    fill(world)
    failures: list[Exception] = []

    def crash(at: str) -> None:
        if at == "after-commit":
            world.collections.shards.drop(CollectionId("u1"))

    def run() -> None:
        try:
            world.runner(crash).run()
        except InvalidUsage as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "collection u1 was dropped" in str(failures[0])


class Unreachable(Local):
    """A connector whose endpoint cannot be reached at first."""

    def __init__(self, connector: Any) -> None:
        super().__init__(connector)
        self.calls = 0

    def call(self, name: str, request: bytes, patience: Patience = PATIENT, /) -> bytes:
        self.calls += 1
        if self.calls == 2:
            raise ConnectorFailed("no route") from Determinate("no route")
        return super().call(name, request, patience)


def test_what_can_pass_is_tried_again(world: World) -> None:
    fill(world)
    runner = world.runner(driver=Driver(Unreachable(world.connector)))
    assert runner.run(until_caught_up=True).rows == 3
