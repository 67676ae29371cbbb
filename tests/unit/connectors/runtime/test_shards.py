"""Tasks of several key ranges: split, merged, torn apart, and never behind what is written."""

import dataclasses
import threading
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from connectors.driving import Driver
from connectors.protocol.messages import Extensions
from connectors.runtime import checkpoints
from connectors.runtime.checkpoints import complete
from connectors.runtime.ranges import EVERY_KEY, Reach, divided, joined, raised, within
from connectors.runtime.runner import Runner
from connectors.runtime.task import Materialization
from connectors.sqlite import CONNECTOR
from connectors.transport.local import Local
from schemas.flow_hash import LAST
from streams.errors import InvalidUsage
from streams.ids import CollectionId, Timestamp
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
    left = checkpoints.encode({REVENUE: apart}, (0, HALF - 1), {})
    assert checkpoints.decode(left, [REVENUE], (0, 9)) == {REVENUE: (reach(0, 9, 7),)}
    other = (CollectionId("u2"), "orders")
    assert checkpoints.decode(left, [other], (0, 9)) == {other: (reach(0, 9, None),)}
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
    made = Collections()
    yield made
    made.close()


@pytest.mark.parametrize("seed", [1, 2, pytest.param(3, marks=pytest.mark.long)])
def test_a_task_is_divided_at_will(
    seed: int, collections: Collections, memory_path: Path
) -> None:
    """Issue: split and merged without replay, never behind any row: random histories."""
    scene = Scene(
        shards=collections.client,
        transport=Local(CONNECTOR),
        file=memory_path / "bank.db",
        rng=Random(seed),
        now_ms=lambda: 1000,
    )
    scene.wander(6)
    assert not scene.wrong
    assert scene.reader.looks > 10


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
