"""A backfill over shards in memory, with its job as a plain loop: whatever fails, and when."""

import itertools
import json
import re
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from connectors.backfill.backfill import Backfill
from connectors.backfill.outcome import Outcome, Progress
from connectors.backfill.tasks import Cell, Plan, Rows, read, stalled, write
from connectors.driver import Driver
from connectors.runtime.runner import BackfillProgress, CannotCatchUp, Runner, Status
from connectors.runtime.task import Materialization
from connectors.sql.fence import Fenced
from connectors.sqlite import CONNECTOR
from connectors.testing.faults import Act, Fault, Faulty
from connectors.transport.errors import ConnectorFailed, causes
from connectors.transport.local import Local
from streams.errors import Determinate, InvalidUsage
from streams.ids import CollectionId, Timestamp
from streams.kafka.memory.logs import MemoryBroker
from streams.storage.read.reader import READ_LEASE_MS, load, protected_chunks
from streams.trace.kernel.kernel import Kernel
from tests.support.collections import Collections
from tests.support.file_connector import FileConnector

KERNEL = Kernel()
COLUMNS = (("item", "BIGINT"), ("amount", "BIGINT"))
BINDINGS: list[dict[str, Any]] = [
    {"collection": "u1", "resource": {"table": "prices"}},
    {"collection": "u2", "resource": {"table": "stock"}, "key": ["item"]},
    {
        "collection": "u2",
        "resource": {"table": "log", "delta_updates": True},
        "key": ["item"],
    },
]
TABLES = {"prices": "u1", "stock": "u2"}
TIMES = "SELECT count(DISTINCT read_through) FROM slackwater_checkpoints"
IN_ALL = (
    "SELECT sum(n) FROM ("
    + " UNION ALL ".join(
        f"SELECT count(*) AS n FROM {table}" for table in ("prices", "stock", "log")
    )
    + ")"
)


class Died(Exception):
    """The process of the driver, or of a task, is gone."""


class Shop:
    """Two collections of which every time is known, and a task over them."""

    def __init__(self, path: Path) -> None:
        self.path = path / "shop.db"
        self.collections = Collections()
        self.contents: dict[str, dict[int, dict[int, int]]] = {}
        self.statuses: list[Status] = []
        self.connector: Any = CONNECTOR
        self.upper = 11
        for id_, keys in (("u1", ("item",)), ("u2", ())):
            self.collections.create(id_, COLUMNS, keys=keys)
            self.contents[id_] = {10: {}}

    def append(self, times: int = 3, items: int = 12) -> None:
        """At each time some items get another amount, and one goes."""
        for id_, contents in self.contents.items():
            rows: list[tuple[int, ...]] = []
            for time in range(self.upper, self.upper + times):
                before = contents[time - 1]
                after = before | {n: time * 100 + n for n in range(time % 3, items, 3)}
                after.pop(time % items, None)
                rows += [(n, a, time, -1) for n, a in before.items() if after.get(n) != a]
                rows += [(n, a, time, 1) for n, a in after.items() if before.get(n) != a]
                contents[time] = after
            self.collections.append(id_, self.upper + times, rows)
        self.upper += times

    def task(self, shards: int = 1, bindings: Any = BINDINGS) -> Materialization:
        return Materialization.model_validate(
            {
                "task": "shop",
                "connector": "sqlite",
                "config": {"path": str(self.path)},
                "bindings": bindings,
                "limits": {"every_ms": 0},
                "shards": shards,
            }
        )

    def backfill(self, job: Any = None, ranges: int = 4, bindings: Any = BINDINGS) -> Status:
        return Backfill(
            self.task(bindings=bindings),
            Driver(Local(self.connector)),
            self.collections.client(),
            ranges=ranges,
            job=job or self.job(),
            stopping=threading.Event(),
            report=self.statuses.append,
        ).run()

    def job(
        self, fail: Callable[[int], None] = lambda _: None
    ) -> Callable[[Plan, Sequence[Cell], Progress], Outcome]:
        """As on Spark, in one process; `fail` is called after each gap that is written."""

        def run(plan: Plan, cells: Sequence[Cell], progress: Progress) -> Outcome:
            total, placed, stalls = 0, self.rows(plan, cells), dict[int, str]()
            for number, rows in enumerate(placed):
                stalls |= stalled(plan, number, rows, KERNEL)
            plan = plan.without(stalls)
            for number, rows in enumerate(placed):
                total += write(plan, number, rows, Driver(Local(self.connector)), KERNEL)
                progress(number + 1, total)
                fail(number)
            return Outcome(total, stalls)

        return run

    def rows(self, plan: Plan, cells: Sequence[Cell]) -> list[list[Rows]]:
        """Of each gap."""
        placed = defaultdict[int, list[Rows]](list)
        chunks = self.collections.broker.chunks
        for cell in cells:
            for rows in read(plan, cell, lambda *some: load(chunks, *some), KERNEL):
                placed[rows.gap].append(rows)
        return [placed[number] for number in range(len(plan.gaps))]

    def follow(self, shards: int = 1, bindings: Any = BINDINGS) -> Status:
        return Runner(
            self.task(shards, bindings),
            Driver(Local(self.connector)),
            self.collections.client(),
            now_ms=lambda: 1000,
            stopping=threading.Event(),
        ).run(until_caught_up=True)

    def query(self, sql: str) -> list[Any]:
        connection = sqlite3.connect(self.path, timeout=30)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def frontier(self) -> int:
        """Up to where all tables are. They have to be at one time."""
        rows = self.query("SELECT read_through FROM slackwater_checkpoints")
        texts = {text for (text,) in rows}
        assert len(texts) == 1
        sources = json.loads(texts.pop())["sources"].values()
        (frontier,) = {int(source["readThrough"]) for source in sources}
        return frontier

    def check(self, frontier: int, birth: int) -> None:
        """All tables are what the collections were just before `frontier`."""
        assert self.frontier() == frontier
        for table, id_ in TABLES.items():
            rows = self.query(f"SELECT item, amount FROM {table}")
            assert sorted(rows) == sorted(self.contents[id_][frontier - 1].items())
        logged = self.query("SELECT item, amount, slackwater_time, slackwater_diff FROM log")
        assert sorted(logged) == sorted(self.history(birth, frontier))

    def history(self, birth: int, frontier: int) -> Iterator[tuple[int, int, int, int]]:
        """Of the delta updates: the contents at their birth, then all changes."""
        contents = self.contents["u2"] | {birth - 1: {}}
        for time in range(birth, frontier):
            before, after = contents[time - 1], contents[time]
            for item in before.keys() | after.keys():
                if before.get(item) != after.get(item):
                    deletions = [] if item not in before else [(item, before[item], time, -1)]
                    come = [] if item not in after else [(item, after[item], time, 1)]
                    yield from [*deletions, *come]


@pytest.fixture
def shop(memory_path: Path) -> Iterator[Shop]:
    new_shop = Shop(memory_path)
    yield new_shop
    new_shop.collections.close()


@pytest.mark.parametrize("shards", [1, 3])
def test_all_ranges_are_written_at_one_time_and_followed_from_there(
    shards: int, shop: Shop
) -> None:
    shop.append()
    status = shop.backfill()
    assert (status.time, status.commits) == (13, 4)
    shop.check(14, birth=13)
    assert shop.backfill().commits == 0, "nothing is missing"
    shop.append()
    shop.follow(shards)
    shop.check(17, birth=13)


SHORT = {(1, 3), (3, 1), (4, 0)}
DEATHS = [
    pytest.param(ranges, dies_at, marks=() if (ranges, dies_at) in SHORT else pytest.mark.long)
    for ranges in (1, 3, 4)
    for dies_at in range(4)
]


@pytest.mark.parametrize(("ranges", "dies_at"), DEATHS)
def test_what_a_death_leaves_is_written_at_the_same_time(
    dies_at: int, ranges: int, shop: Shop
) -> None:
    """Whatever the collections have become since, and in however many ranges."""
    shop.append()

    def die(number: int) -> None:
        if number == dies_at:
            raise Died

    with pytest.raises(Died):
        shop.backfill(shop.job(die))
    shop.append()
    shop.backfill(ranges=ranges)
    shop.check(14, birth=13)
    shop.follow()
    shop.check(17, birth=13)


def test_an_endpoint_that_is_ahead_of_its_collections_is_refused(
    shop: Shop, memory_path: Path
) -> None:
    """As one whose collections were made anew; it waited for the time of the old ones."""
    shop.append()

    def die(number: int) -> None:
        raise Died(number)

    with pytest.raises(Died):
        shop.backfill(shop.job(die))
    shop.collections.close()
    anew = Shop(memory_path)
    anew.append(1)
    try:
        error = "prices: expected u1 at frontier 12 or earlier, .*, actual 14"
        with pytest.raises(InvalidUsage, match=error):
            anew.backfill()
    finally:
        anew.collections.close()


def test_a_follower_writes_what_a_death_has_left(shop: Shop) -> None:
    """Without a backfill, that is: each part of the keys goes on from where it is."""
    shop.append()

    def die(number: int) -> None:
        if number == 1:
            raise Died

    keyed = BINDINGS[:2]
    with pytest.raises(Died):
        shop.backfill(shop.job(die), bindings=keyed)
    assert shop.query(TIMES) == [(2,)], "two ranges are written and two are not"
    shop.append()
    shop.follow(bindings=keyed)
    assert shop.frontier() == 17
    for table, id_ in TABLES.items():
        rows = shop.query(f"SELECT item, amount FROM {table}")
        assert sorted(rows) == sorted(shop.contents[id_][16].items())


def test_a_failed_job_is_tried_again_and_writes_nothing_twice(shop: Shop) -> None:
    shop.append()
    failures = [1, 0]

    def fail(number: int) -> None:
        if failures and number == failures[0]:
            failures.pop(0)
            raise Determinate("an executor is lost")

    shop.backfill(shop.job(fail))
    assert not failures
    shop.check(14, birth=13)
    assert "stalled" in [status.state for status in shop.statuses]


def test_a_job_that_never_gets_on_ends(shop: Shop) -> None:
    shop.append()
    tries: list[int] = []

    def fail(plan: Plan, cells: Sequence[Cell], progress: Progress) -> Outcome:
        tries.append(len(cells))
        raise Determinate("no executors")

    with pytest.raises(Determinate, match="no executors"):
        shop.backfill(fail)
    assert len(tries) == 5


def test_a_task_that_runs_again_writes_nothing(shop: Shop) -> None:
    shop.append()
    rows: list[int] = []

    def run(plan: Plan, cells: Sequence[Cell], progress: Progress) -> Outcome:
        for number, some in enumerate(shop.rows(plan, cells)):
            for _ in range(2):
                rows.append(write(plan, number, some, Driver(Local(CONNECTOR)), KERNEL))
        return Outcome(sum(rows))

    shop.backfill(run)
    assert all(again == 0 for again in rows[1::2])
    assert sum(rows) == sum(len(shop.contents[id_][13]) for id_ in ("u1", "u2", "u2"))
    shop.check(14, birth=13)


@pytest.mark.parametrize("event", ["store", "commit"])
def test_of_two_attempts_of_a_task_the_older_cannot_commit(event: str, shop: Shop) -> None:
    """As of a speculative task: the first stands still until the other has committed."""
    shop.append()
    ends: list[BaseException] = []

    def run(plan: Plan, cells: Sequence[Cell], progress: Progress) -> Outcome:
        first, *others = shop.rows(plan, cells)
        shim = Faulty(Local(CONNECTOR), Fault(Act.ZOMBIE, event))

        def stand_still() -> None:
            try:
                write(plan, 0, first, Driver(shim), Kernel())
            except ConnectorFailed as error:
                ends.append(error)

        thread = threading.Thread(target=stand_still)
        thread.start()
        assert shim.fired.wait(60)
        for number, rows in enumerate([first, *others]):
            write(plan, number, rows, Driver(Local(CONNECTOR)), KERNEL)
        shim.resumed.set()
        thread.join()
        return Outcome(0)

    shop.backfill(run)
    assert [isinstance(cause, Fenced) for cause in causes(ends[0])].count(True) == 1
    shop.check(14, birth=13)


def test_a_binding_that_comes_later_begins_with_the_others(shop: Shop) -> None:
    shop.append()
    shop.follow(bindings=BINDINGS[:1])
    assert shop.backfill().time == 13
    shop.check(14, birth=13)
    shop.append()
    shop.follow(shards=2)
    shop.check(17, birth=13)


def violated(shop: Shop) -> None:
    """From 14 on item 5 of u2 has two rows more, which go at 15."""
    shop.append()
    shop.collections.append("u2", 15, [(5, 1, 14, 1), (5, 2, 14, 1)])
    shop.collections.append("u1", 15)


REASON = r"key \(item = 5\) is not unique: [23] rows have it at 14"


def test_a_violated_key_stops_its_binding_alone(shop: Shop) -> None:
    violated(shop)
    status = shop.backfill()
    assert list(status.stalls) == ["stock"]
    assert re.fullmatch(REASON, status.stalls["stock"])
    assert (status.state, status.time, status.commits) == ("backfilling", 14, 4)
    assert shop.query("SELECT * FROM stock") == [], "no part of it, in no range"
    rows = shop.query("SELECT item, amount FROM prices")
    assert sorted(rows) == sorted(shop.contents["u1"][13].items())
    logged = shop.query("SELECT count(*) FROM log")
    assert logged == [(len(shop.contents["u2"][13]) + 2,)]


def test_a_stalled_binding_is_left_to_the_follow_which_writes_it_once_it_is_healed(
    shop: Shop,
) -> None:
    violated(shop)
    shop.backfill()
    with pytest.raises(CannotCatchUp, match=f"stock: {REASON}"):
        shop.follow()
    assert shop.backfill().stalls, "of what is still missing"
    shop.collections.append("u2", 16, [(5, 1, 15, -1), (5, 2, 15, -1)])
    shop.collections.append("u1", 16)
    shop.follow()
    for table, id_ in TABLES.items():
        rows = shop.query(f"SELECT item, amount FROM {table}")
        assert sorted(rows) == sorted(shop.contents[id_][13].items())
    assert shop.frontier() == 16
    assert not shop.backfill().stalls


def test_a_task_that_stalls_as_a_whole_writes_nothing_and_ends(shop: Shop) -> None:
    violated(shop)
    status = shop.backfill(bindings=BINDINGS[1:2])
    assert (list(status.stalls), status.commits, status.time) == (["stock"], 0, None)


def test_a_collection_in_error_is_named_and_stops_its_bindings_alone(shop: Shop) -> None:
    shop.append()
    for id_ in ("u1", "u2"):
        errors = [("division by zero", 14, 1)] if id_ == "u1" else []
        shop.collections.append(id_, 15, [], errors)
    status = shop.backfill()
    assert list(status.stalls) == ["prices"]
    assert "division by zero" in status.stalls["prices"]
    assert shop.query("SELECT * FROM prices") == []
    assert len(shop.query("SELECT * FROM stock")) == len(shop.contents["u2"][13])


def test_rows_are_counted_as_ranges_are_committed(shop: Shop) -> None:
    shop.append()
    counts = list[int]()
    shop.backfill(shop.job(lambda _: counts.append(shop.query(IN_ALL)[0][0])))
    told = [status for status in shop.statuses if status.backfill is not None]
    assert [status.backfill for status in told] == [
        BackfillProgress(number, 4, "key ranges") for number in range(5)
    ]
    assert [status.rows for status in told] == [0, *counts]
    assert [status.commits for status in told] == [0, 1, 2, 3, 4]
    assert shop.statuses[-1].backfill is None
    assert shop.statuses[-1].rows == counts[-1] > counts[0] > 0


def test_what_was_committed_before_a_failure_counts_once(shop: Shop) -> None:
    shop.append()
    failures = [2]

    def fail(number: int) -> None:
        if failures and number == failures[0]:
            failures.pop()
            raise Determinate("an executor is lost")

    status = shop.backfill(shop.job(fail))
    assert (status.rows, status.commits) == (shop.query(IN_ALL)[0][0], 4)


def test_who_cannot_be_divided_is_told_so(shop: Shop) -> None:
    shop.append()
    plain = [{"collection": "u2", "resource": {"table": "t", "delta_updates": True}}]
    with pytest.raises(InvalidUsage, match="t has no key by which its rows could be divided"):
        shop.backfill(bindings=plain)
    dead = [BINDINGS[0] | {"dead_letters": "dead"}]
    with pytest.raises(InvalidUsage, match="dead letters"):
        shop.backfill(bindings=dead)
    shop.connector = FileConnector()
    assert not shop.connector.extensions.subranges
    with pytest.raises(InvalidUsage, match="does not offer the extension subranges"):
        shop.backfill(bindings=[BINDINGS[0] | {"resource": {"table": "u"}}])


def test_it_waits_for_a_complete_time(shop: Shop) -> None:
    """And ends if it is told to stop before."""
    stopping = threading.Event()
    statuses: list[Status] = []

    def report(status: Status) -> None:
        statuses.append(status)
        stopping.set()

    backfill = Backfill(
        shop.task(),
        Driver(Local(CONNECTOR)),
        shop.collections.client(),
        ranges=2,
        job=shop.job(),
        stopping=stopping,
        report=report,
    )
    backfill.run()
    assert [(status.state, status.message) for status in statuses] == [
        ("waiting", "u1, u2: no complete time yet")
    ]


def test_a_hold_is_renewed_as_long_as_its_block_runs() -> None:
    clock = itertools.count(1000, 10)  # of the log: it moves on with each record
    collections, u1 = Collections(MemoryBroker(lambda: next(clock))), CollectionId("u1")
    collections.create("u1", COLUMNS)

    def expires() -> int:
        capabilities = collections.shards.state(u1).capabilities
        return max(capability.expires_ms or 0 for _, capability in capabilities.items())

    with protected_chunks(collections.shards, u1, Timestamp(12)) as renew:
        before = expires()
        renew()
        assert expires() > before > READ_LEASE_MS
    assert expires() == 0, "it is given up"
    collections.close()
