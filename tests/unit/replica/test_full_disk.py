"""What state costs that cannot be stored: a full disk, a store that is away or another's."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.errors import Indeterminate
from streams.ids import CollectionId, Topic
from streams.replica.driver.checkpoint_store import CheckpointStore
from streams.replica.driver.clock_skew import Skew
from streams.replica.driver.events import Restarted
from streams.replica.driver.maintenance import Maintenance
from streams.replica.driver.micro_batch import LANES
from streams.replica.driver.status_reports import condition
from streams.trace.arrange import disk_reserve
from tests.support.sparkless import START_MS, Replica, World

LARGE, SMALL = CollectionId("large"), CollectionId("small")
TOPIC = Topic("raw")
COLUMNS = (("id", "BIGINT"), ("text", "VARCHAR"))


STORE = ("read", "write", "delete", "sizes", "folders", "delete_folder")


class Disk:
    """A file system of some size, on which the files of a directory lie."""

    def __init__(self, directory: Path, total: int) -> None:
        self.directory, self.total = directory, total

    def usage(self, _: Path) -> tuple[int, int]:
        used = sum(path.stat().st_size for path in self.directory.rglob("*") if path.is_file())
        return self.total - used, self.total


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    new_world = World()
    new_world.patch(monkeypatch)
    new_world.source("rows", COLUMNS, new_world.raw(TOPIC))
    new_world.view("large", "SELECT DISTINCT id, text FROM rows", START_MS)
    new_world.view("small", "SELECT count(*) AS n FROM rows", START_MS)
    return new_world


def send(world: World, first: int, count: int) -> None:
    for number in range(first, first + count):
        body = json.dumps({"id": number, "text": f"{number:0100}"})
        world.send(TOPIC, number % 2, None, body.encode())


def turn(world: World, replica: Replica, count: int = 1) -> None:
    """Let some seconds pass, each with whatever there is to do."""
    for _ in range(count):
        world.now += 1000
        replica.follow()
        for _ in range(3):
            replica.start()
            for lane in LANES:
                replica.step(lane)
            replica.sync()
            replica.idle()
        replica.maintenance.run_once()


def test_a_full_disk_stops_the_dataflow_that_fills_it_alone(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, 4 << 20)
    monkeypatch.setattr(disk_reserve, "usage", disk.usage)
    replica = Replica(world, "a", tmp_path)
    send(world, 0, 2_000)
    turn(world, replica, 3)
    disk.total = 1 << 20
    send(world, 2_000, 10_000)
    turn(world, replica, 8)
    large, small = (replica.scheduler.flows[collection] for collection in (LARGE, SMALL))
    reported = condition(large, world.now, Skew(), elapsed_ms=0)
    assert reported.state == "failed"
    assert reported.message.startswith("no room for state: ")
    assert "No space left on device" in reported.message
    assert large.own is not None, "its state is not built anew: that takes more room"
    assert condition(small, world.now, Skew(), elapsed_ms=0).state == "running"
    world.shards.sync()
    assert world.upper("small") == world.upper("rows") > world.upper("large")
    disk.total = 64 << 20
    turn(world, replica, 40)
    world.shards.sync()
    large = replica.scheduler.present(large)
    assert condition(large, world.now, Skew(), elapsed_ms=0).state == "running"
    assert world.upper("large") == world.upper("rows")


def test_records_and_descriptors_that_find_no_room_are_made_later(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = Replica(world, "a", tmp_path)
    send(world, 0, 10)
    turn(world, replica, 3)
    full = True

    real = os.replace

    def replace(partial: Path, path: Path) -> None:
        if full and path.is_relative_to(tmp_path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(partial, path)

    monkeypatch.setattr(os, "replace", replace)
    world.view("late", "SELECT sum(id) AS n FROM rows", world.now)
    send(world, 10, 10)
    turn(world, replica, 5)
    for name in ("rows", "late"):
        reported = condition(
            replica.scheduler.flows[CollectionId(name)], world.now, Skew(), elapsed_ms=0
        )
        assert reported.message.startswith("no room for state: "), name
    assert not list(tmp_path.rglob("*.partial"))
    full = False
    turn(world, replica, 40)
    world.shards.sync()
    for name in ("rows", "late", "small", "large"):
        assert replica.scheduler.flows[CollectionId(name)].trouble is None
        assert world.upper(name) == world.upper("rows")


def away(*_: object) -> bool:
    raise Indeterminate("the store of state: no answer")


def lost(_: CheckpointStore) -> bool:
    return False


@pytest.mark.parametrize(
    ("method", "answer"), [("put_record", away), ("is_owner", away), ("is_owner", lost)]
)
def test_records_that_cannot_be_written_cost_nothing_else(
    world: World, tmp_path: Path, method: str, answer: Callable[..., bool]
) -> None:
    replica = Replica(world, "a", tmp_path)
    send(world, 0, 10)
    turn(world, replica, 3)
    store = replica.scheduler.store
    before = store.records(SMALL)
    assert before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointStore, method, answer)
        patch.setattr(Maintenance, "_collect", lambda _: None)  # its thread tries that again
        send(world, 10, 10)
        turn(world, replica, 5)
        world.shards.sync()
        assert not replica.scheduler.table.failures
        assert world.upper("small") == world.upper("rows")
        assert store.records(SMALL) == before
    send(world, 20, 10)
    turn(world, replica, 5)
    assert store.records(SMALL)[-1].checkpoint.frontier > before[-1].checkpoint.frontier


@pytest.mark.parametrize("restarts", [False, True])
def test_nothing_waits_for_the_store_while_the_table_is_locked(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, restarts: bool
) -> None:
    """A store answers after 50 ms, and much later while it is away."""
    replica = Replica(world, "a", tmp_path)
    used: set[str] = set()

    def unlocked(name: str, method: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            assert not replica.scheduler.lock._is_owned(), f"{name}{arguments}"  # type: ignore[attr-defined]
            used.add(name)
            return method(*arguments)

        return call

    for name in STORE:
        files = replica.scheduler.store.files
        monkeypatch.setattr(type(files), name, unlocked(name, getattr(type(files), name)))
    for first in range(0, 30, 10):
        send(world, first, 10)
        turn(world, replica, 6)
        if restarts:
            replica.scheduler.tell(replica.scheduler.flows[SMALL], Restarted())
    world.shards.sync()
    assert world.upper("small") == world.upper("rows")
    assert used >= {"write", "delete", "sizes"} | ({"read"} if restarts else set())


def test_run_files_go_though_a_dataflow_is_still_starting(world: World, tmp_path: Path) -> None:
    replica = Replica(world, "a", tmp_path)
    send(world, 0, 10)
    turn(world, replica, 6)
    files = replica.scheduler.store.named(SMALL)
    assert files
    replica.scheduler.tell(replica.scheduler.flows[SMALL], Restarted())
    garbage = tmp_path / "runs" / "nobody-names-it"
    for path in (garbage, *(tmp_path / "runs" / name for name in files)):
        path.touch()
        os.utime(path, (0, 0))
    replica.maintenance._collect()
    assert not garbage.exists()
    assert files <= replica.scheduler.store.run_files()
