"""Which documents are loaded: those that are compared, and those of which nothing else says
whether they are there (D310)."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from connectors import sqlite as sqlite_connector
from connectors.driver import Driver
from connectors.protocol.messages import Load, Open
from connectors.runtime import session
from connectors.runtime.lane import EndpointDrifted
from connectors.runtime.runner import Runner
from connectors.runtime.task import Materialization
from connectors.transport.local import Local
from schemas import flow_tuple
from tests.support.collections import Collections
from tests.support.file_connector import FileConnector

FOREIGN, OURS = "./connector", "sqlite"


class Watched:
    """A connector of which each load is noted. One that forgets returns no checkpoint."""

    def __init__(self, connector: Any, *, forgets: bool = False) -> None:
        self._connector, self._forgets = connector, forgets
        self.loads: list[tuple[str, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connector, name)

    @contextmanager
    def open(self, message: Open) -> Iterator[Any]:
        with self._connector.open(message) as transactor:
            yield WatchedTransactor(transactor, self.loads, forgets=self._forgets)


class WatchedTransactor:
    def __init__(self, transactor: Any, loads: list[tuple[str, ...]], *, forgets: bool) -> None:
        self._transactor, self._loads = transactor, loads
        if forgets:
            self.checkpoint, self.subranges = b"", ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transactor, name)

    def load(self, message: Load) -> None:
        keys = (flow_tuple.unpack(key)[0] for key in message.keys.packed)
        self._loads.append(tuple(sorted(map(str, keys))))
        self._transactor.load(message)


class World:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.collections = Collections()
        columns = (("item", "VARCHAR"), ("price", "BIGINT"))
        self.collections.create("u1", columns, keys=("item",))

    def catch_up(
        self, connector: Any, named: str, verify: str | None, **limits: object
    ) -> None:
        """One session, in which each time is a transaction."""
        binding = {"collection": "u1", "resource": {"table": "t"}}
        task = {
            "task": "shop",
            "connector": named,
            "config": {"path": str(self.directory / "file")},
            "bindings": [binding if verify is None else {**binding, "verify": verify}],
            "limits": {"rows": 1, "every_ms": 0, "idle_ms": 0, **limits},
        }
        Runner(
            Materialization.model_validate(task),
            Driver(Local(connector)),
            self.collections.client(),
            now_ms=lambda: 1000,
            stopping=threading.Event(),
        ).run(until_caught_up=True)

    def documents(self) -> list[Any]:
        tables = json.loads((self.directory / "file").read_text())["tables"]
        return sorted((json.loads(row) for row in tables["t"].values()), key=str)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    new_world = World(tmp_path)
    yield new_world
    new_world.collections.close()


ALL = [("a",), ("b",)]
"""Each key that has a row, as its transaction comes."""


@pytest.mark.parametrize(
    ("named", "verify", "forgets", "loads"),
    [
        (OURS, None, False, [("a",)]),
        (OURS, "first", False, [("a",)]),
        (OURS, "always", False, ALL),
        (OURS, "never", False, []),
        (FOREIGN, None, False, ALL),
        (FOREIGN, "first", False, [("a",)]),
        (FOREIGN, "never", False, []),
        pytest.param(FOREIGN, None, True, [], id="the log decides"),
        pytest.param(FOREIGN, "always", True, [], id="the log decides, always"),
        pytest.param(FOREIGN, "first", True, [], id="the log decides, first"),
    ],
)
def test_what_is_loaded_is_compared(
    world: World, named: str, verify: str | None, forgets: bool, loads: list[tuple[str, ...]]
) -> None:
    connector = Watched(sqlite_connector.CONNECTOR, forgets=forgets)
    world.collections.append("u1", 12, [("a", 1, 11, 1), ("b", 2, 11, 1)])
    world.catch_up(connector, named, verify)
    assert connector.loads == [], "there was nothing"
    world.collections.append("u1", 14, [("a", 1, 13, -1), ("c", 3, 13, 1)])
    world.collections.append("u1", 16, [("b", 2, 15, -1), ("b", 3, 15, 1)])
    world.catch_up(connector, named, verify)
    assert connector.loads == loads


@pytest.mark.parametrize(
    ("verify", "loads"),
    [
        ("always", [("a",), ("b", "c"), ("a",)]),
        ("first", [("a",), ("c",), ("a",)]),
        ("never", [("c",), ("a",)]),
    ],
)
def test_where_nothing_is_deleted_loads_say_what_is_there(
    world: World, verify: str, loads: list[tuple[str, ...]]
) -> None:
    """A key without a row may have a document, which is marked; one with a row has one."""
    connector = Watched(FileConnector())
    world.collections.append("u1", 12, [("a", 1, 11, 1), ("b", 2, 11, 1)])
    world.catch_up(connector, FOREIGN, verify)
    connector.loads.clear()
    world.collections.append("u1", 14, [("a", 1, 13, -1)])
    world.collections.append("u1", 16, [("b", 2, 15, -1), ("b", 3, 15, 1), ("c", 4, 15, 1)])
    world.collections.append("u1", 18, [("a", 5, 17, 1)])
    world.catch_up(connector, FOREIGN, verify)
    assert connector.loads == loads
    assert world.documents() == [
        {"item": "a", "price": 5, "_meta": {"op": "u"}},
        {"item": "b", "price": 3, "_meta": {"op": "u"}},
        {"item": "c", "price": 4, "_meta": {"op": "c"}},
    ]


def test_of_many_rows_at_one_time_some_are_compared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compared is in memory, and a transaction on disk may be of any size."""
    monkeypatch.setattr(session, "MOST_COMPARED", 5, raising=False)
    connector = Watched(sqlite_connector.CONNECTOR)
    rows = [(f"i{n}", n) for n in range(300)]
    world.collections.append("u1", 12, [(*row, 11, 1) for row in rows])
    world.catch_up(connector, FOREIGN, "always", bytes=1)
    changes = [(item, price + n, 13, 2 * n - 1) for item, price in rows for n in (0, 1)]
    world.collections.append("u1", 14, changes)
    world.catch_up(connector, FOREIGN, "always", bytes=1)
    compared = [key for keys in connector.loads for key in keys]
    assert 5 <= len(compared) < 50
    with closing(sqlite3.connect(world.directory / "file")) as database:
        assert sorted(database.execute("SELECT item, price FROM t")) == sorted(
            (item, price + 1) for item, price in rows
        )


def test_a_document_of_a_key_without_a_row_is_compared_with_none(world: World) -> None:
    world.collections.append("u1", 12, [("a", 1, 11, 1)])
    world.catch_up(FileConnector(), FOREIGN, "never")
    file = world.directory / "file"
    state = json.loads(file.read_text())
    key = flow_tuple.pack(("b",)).hex()
    state["tables"]["t"][key] = '{"item": "b", "price": 7}'
    file.write_text(json.dumps(state))
    world.collections.append("u1", 14, [("b", 2, 13, 1)])
    with pytest.raises(EndpointDrifted, match=r"t: expected no row, actual .*7"):
        world.catch_up(FileConnector(), FOREIGN, "never")
