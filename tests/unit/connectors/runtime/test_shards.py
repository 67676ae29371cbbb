"""Tasks of several key ranges: split, merged, torn apart, and never behind what is written."""

import dataclasses
import json
import sqlite3
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from connectors.driver import Driver
from connectors.protocol.messages import Extensions
from connectors.runtime import checkpoints
from connectors.runtime.checkpoints import complete
from connectors.runtime.ranges import EVERY_KEY, Reach, divided, joined, raised, within
from connectors.runtime.runner import APART, Runner, Status
from connectors.runtime.task import Materialization
from connectors.sqlite import CONNECTOR
from connectors.testing.faults import Act, DriverDied, Fault, Faulty
from connectors.transport.local import Local
from schemas.flow_hash import LAST
from streams.errors import InvalidUsage
from streams.ids import CollectionId, Timestamp
from streams.torture.connectors.databases import on_sqlite
from streams.torture.connectors.scene import Scene
from tests.support.collections import Collections
from tests.support.file_connector import FileConnector

HALF = 0x80000000
REVENUE = (CollectionId("u1"), "revenue")


def reach(begin: int, end: int, frontier: int | None) -> Reach:
    return Reach(begin, end, None if frontier is None else Timestamp(frontier))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64])
def test_ranges_cover_all_keys(count: int) -> None:
    ranges = divided(count)
    assert (ranges[0][0], ranges[-1][1]) == EVERY_KEY
    assert all(end + 1 == begin for (_, end), (begin, _) in pairwise(ranges))


def test_what_is_written_is_kept_with_the_range_that_it_is_written_of() -> None:
    apart = [reach(0, HALF - 1, 7), reach(HALF, LAST, 5)]
    both = checkpoints.encode({REVENUE: apart}, EVERY_KEY, {})
    assert checkpoints.decode(both, [REVENUE], EVERY_KEY) == {REVENUE: tuple(apart)}
    encoded = checkpoints.encode({REVENUE: apart}, (0, HALF - 1), {})
    assert checkpoints.decode(encoded, [REVENUE], (0, 9)) == {REVENUE: (reach(0, 9, 7),)}
    other = (CollectionId("u2"), "orders")
    assert checkpoints.decode(encoded, [other], (0, 9)) == {other: (reach(0, 9, None),)}
    part = checkpoints.decode(both, [REVENUE], (HALF - 1, HALF))
    assert part == {REVENUE: (reach(HALF - 1, HALF - 1, 7), reach(HALF, HALF, 5))}


def test_reaches_are_put_together() -> None:
    parts = [reach(8, 9, 2), reach(0, 3, 1), reach(4, 7, 2)]
    assert joined(parts) == (reach(0, 3, 1), reach(4, 9, 2))
    assert within(joined(parts), (2, 5)) == (reach(2, 3, 1), reach(4, 5, 2))
    assert raised(parts, Timestamp(2)) == (), "all are at one time"
    assert raised([*parts, reach(10, 11, None)], Timestamp(1)) == (
        reach(0, 3, 1),
        reach(4, 9, 2),
        reach(10, 11, 1),
    )
    assert complete([reach(2, 3, 1)], (0, 5)) == (
        reach(0, 1, None),
        reach(2, 3, 1),
        reach(4, 5, None),
    )


@pytest.fixture
def collections() -> Any:
    fixture = Collections()
    yield fixture
    fixture.close()


@pytest.mark.parametrize("seed", [1, 2, pytest.param(3, marks=pytest.mark.long)])
def test_a_task_is_divided_at_will(
    seed: int, collections: Collections, memory_path: Path
) -> None:
    """Issue: split and merged without replay, never behind any row: random histories."""
    scene = Scene(
        shards=collections.client,
        transport=Local(CONNECTOR),
        place=on_sqlite(memory_path / "bank.db"),
        rng=Random(seed),
        now_ms=lambda: 1000,
    )
    scene.wander(6)
    assert not scene.wrong
    assert scene.reader.looks > 10


TIMES = "SELECT count(DISTINCT read_through) FROM slackwater_checkpoints WHERE task = 'shop'"
"""As the documentation has it: 1 if all keys are at one time."""
PAIR = [
    {"collection": "u1", "resource": {"table": "prices"}, "key": ["item"]},
    {"collection": "u2", "resource": {"table": "stock"}, "key": ["item"]},
]


class Divided:
    """A task of two collections in several shards, and what its table of checkpoints says."""

    def __init__(self, collections: Collections, path: Path) -> None:
        self.collections, self.path = collections, path
        self.statuses: list[Status] = []
        for id_ in ("u1", "u2"):
            collections.create(id_, (("item", "VARCHAR"), ("amount", "BIGINT")))

    def append(self, times: range) -> None:
        """A new row in both at each time."""
        for id_ in ("u1", "u2"):
            rows = [(f"i{time}", time, time, 1) for time in times]
            self.collections.append(id_, times[-1] + 1, rows)

    def run(
        self,
        shards: int,
        watch: Callable[[str], None] = lambda _: None,
        fault: Fault | None = None,
    ) -> None:
        task = {
            "task": "shop",
            "connector": "sqlite",
            "config": {"path": str(self.path)},
            "bindings": PAIR,
            "shards": shards,
            "limits": {"rows": 2, "every_ms": 0},
        }
        Runner(
            Materialization.model_validate(task),
            Driver(Faulty(Local(CONNECTOR), fault, watch)),
            self.collections.client(),
            now_ms=lambda: 1000,
            stopping=threading.Event(),
            report=self.statuses.append,
        ).run(until_caught_up=True)

    def query(self, sql: str) -> list[Any]:
        connection = sqlite3.connect(self.path, timeout=30)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def look(self) -> tuple[dict[int, tuple[int, ...]], int]:
        """By where a range begins, how far both collections are; and the answer to `TIMES`."""
        looked = self.query(
            f"SELECT key_begin, read_through, ({TIMES}) FROM slackwater_checkpoints"
        )
        frontiers = {
            begin: tuple(
                int(source["readThrough"])
                for source in json.loads(text).get("sources", {}).values()
            )
            for begin, text, _ in looked
        }
        return frontiers, looked[0][2]


def test_all_shards_are_cut_at_the_same_frontiers(
    collections: Collections, memory_path: Path
) -> None:
    shop = Divided(collections, memory_path / "shop.db")
    shop.append(range(11, 20))
    looks: list[tuple[dict[int, tuple[int, ...]], int]] = []

    def watch(event: str) -> None:
        if event == "committed":
            looks.append(shop.look())

    shop.run(3, watch)
    begins = [begin for begin, _ in divided(3)]
    assert all(sorted(ranges) == begins for ranges, _ in looks)
    history = [list(dict.fromkeys(ranges[begin] for ranges, _ in looks)) for begin in begins]
    cuts = max(history, key=len)
    assert len(cuts) > 3, "there were several transactions"
    assert all(len(set(cut)) <= 1 for cut in cuts), "both tables are at one time"
    for frontiers in history:
        assert frontiers == [cut for cut in cuts if cut in frontiers]
    for ranges, count in looks:
        times = sorted({cuts.index(range_) for range_ in ranges.values()})
        assert times in ([times[0]], [times[0], times[0] + 1]), "before a cut, or after it"
        assert len(times) == count
    assert shop.look()[1] == 1


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_one_select_tells_whether_all_keys_are_at_one_time(
    shards: int, collections: Collections, memory_path: Path
) -> None:
    """Apart after a death between two commits, together after the next transaction."""
    shop = Divided(collections, memory_path / "shop.db")
    shop.append(range(11, 14))
    shop.run(3)
    shop.append(range(14, 16))
    with pytest.raises(DriverDied):
        shop.run(3, fault=Fault(Act.DRIVER_DIES, "commit", 2))
    assert [status.at_one_time for status in shop.statuses][-1:] == [False]
    assert shop.query(TIMES) == [(2,)]
    first = len(shop.statuses)
    shop.append(range(16, 17))
    shop.run(shards)
    opened = next(status for status in shop.statuses[first:] if status.state == "running")
    assert (opened.at_one_time, opened.message) == (False, APART)
    assert [status.at_one_time for status in shop.statuses][-1:] == [True]
    assert shop.query(TIMES) == [(1,)]
    assert shop.query("SELECT count(*) FROM slackwater_checkpoints") == [(shards,)]
    assert shop.query("SELECT count(*), sum(amount) FROM prices") == [(6, sum(range(11, 17)))]


def runner(collections: Collections, connector: Any, path: Path, binding: Any) -> Runner:
    task = {
        "task": "shop",
        "connector": "ours",
        "config": {"path": str(path)},
        "bindings": [{"collection": "u1", **binding}],
        "shards": 2,
    }
    return Runner(
        Materialization.model_validate(task),
        Driver(Local(connector)),
        collections.client(),
        now_ms=lambda: 1000,
        stopping=threading.Event(),
    )


def test_who_cannot_be_divided_is_told_so(collections: Collections, memory_path: Path) -> None:
    collections.create("u1", (("item", "VARCHAR"), ("price", "BIGINT")))
    collections.append("u1", 12, [("a", 1, 11, 1)])
    path = memory_path / "x.db"
    delta = {"resource": {"table": "t", "delta_updates": True}}
    with pytest.raises(InvalidUsage, match="t has no key by which its rows could be divided"):
        runner(collections, CONNECTOR, path, delta).run(until_caught_up=True)
    keyed = {"resource": {"table": "u"}, "key": ["item"]}
    foreign = runner(collections, FileConnector(), memory_path / "y", keyed)
    with pytest.raises(InvalidUsage, match="does not offer the extension subranges"):
        foreign.run(until_caught_up=True)
    odd = dataclasses.replace(CONNECTOR, extensions=Extensions(delete=True))
    with pytest.raises(InvalidUsage, match="does not offer the extension subranges"):
        runner(collections, odd, path, keyed).run(until_caught_up=True)
    assert runner(collections, CONNECTOR, path, keyed).run(until_caught_up=True).rows == 1
