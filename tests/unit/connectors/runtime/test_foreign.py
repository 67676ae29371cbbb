"""Connectors that we have not written: without deletes, with or without memory."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.driver import Driver
from connectors.runtime.follower import CollectionFollower
from connectors.runtime.recovery import LogTakenOver, RecoveryLog, StoredCheckpoints
from connectors.runtime.runner import Runner
from connectors.runtime.task import Materialization
from connectors.transport.local import Local
from streams.errors import InvalidUsage
from streams.ids import CollectionId
from tests.support.collections import Collections
from tests.support.file_connector import FileConnector


@pytest.fixture
def collections() -> Iterator[Collections]:
    fixture = Collections()
    fixture.create("u1", (("item", "VARCHAR"), ("price", "BIGINT")), keys=("item",))
    yield fixture
    fixture.close()


def catch_up(collections: Collections, path: Path) -> None:
    task = {
        "task": "shop",
        "connector": "./connector",
        "config": {"path": str(path)},
        "bindings": [{"collection": "u1", "resource": {"table": "t"}}],
    }
    runner = Runner(
        Materialization.model_validate(task),
        Driver(Local(FileConnector())),
        collections.client(),
        now_ms=lambda: 1000,
        stopping=threading.Event(),
    )
    runner.run(until_caught_up=True)


def documents(path: Path) -> list[Any]:
    tables = json.loads(path.read_text())["tables"]
    return sorted((json.loads(row) for row in tables["t"].values()), key=str)


@pytest.mark.parametrize("forgets", [False, True])
def test_what_a_connector_leaves_to_the_driver_is_kept(
    tmp_path: Path, collections: Collections, forgets: bool
) -> None:
    """One that forgets leaves the checkpoint to the log of the task."""
    path = tmp_path / "tables.json"
    collections.append("u1", 12, [("a", 1, 11, 1), ("b", 2, 11, 1)])
    catch_up(collections, path)
    if forgets:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"checkpoint": ""}))
    collections.append("u1", 14, [("a", 1, 13, -1), ("b", 2, 13, -1), ("b", 3, 13, 1)])
    catch_up(collections, path)
    assert documents(path) == [
        {"item": "a", "price": 1, "_meta": {"op": "d"}},
        {"item": "b", "price": 3, "_meta": {"op": "u"}},
    ]
    log = RecoveryLog(collections.client(), "shop")
    log_file = log.open()
    assert json.loads(log_file.driver) == {"flushed": 1}


def test_a_log_is_written_by_its_newest_session(collections: Collections) -> None:
    first = RecoveryLog(collections.client(), "shop")
    assert first.open() == StoredCheckpoints()
    first.write(StoredCheckpoints(b"1", b"{}"))
    second = RecoveryLog(collections.client(), "shop")
    assert second.open() == StoredCheckpoints(b"1", b"{}")
    with pytest.raises(LogTakenOver, match="another session writes its log"):
        first.write(StoredCheckpoints(b"2"))
    second.write(StoredCheckpoints(b"3"))
    assert RecoveryLog(collections.client(), "shop").open() == StoredCheckpoints(b"3")


def test_a_log_that_was_dropped_begins_anew(collections: Collections) -> None:
    first = RecoveryLog(collections.client(), "shop")
    first.write(StoredCheckpoints(b"1", b"{}"))
    RecoveryLog(collections.client(), "shop").drop()
    assert collections.broker.topics.names() == {"sw.u1.data", "sw.u1.log"}
    second = RecoveryLog(collections.client(), "shop")
    assert second.open() == StoredCheckpoints()
    second.write(StoredCheckpoints(b"2", b"{}"))
    assert RecoveryLog(collections.client(), "shop").open() == StoredCheckpoints(b"2", b"{}")


def test_a_collection_that_was_dropped_holds_nothing(collections: Collections) -> None:
    collections.create("u2", (("item", "VARCHAR"),))
    names = [CollectionId("u1"), CollectionId("u2")]
    following = CollectionFollower(collections.client(), "shop", names)
    following.open()
    following.hold()
    collections.shards.drop(CollectionId("u2"))
    assert CollectionFollower(collections.client(), "shop", names).drop() == (
        CollectionId("u1"),
    )
    absent = CollectionFollower(collections.client(), "shop", [CollectionId("u9")])
    with pytest.raises(InvalidUsage, match="collection u9 does not exist"):
        absent.drop()
