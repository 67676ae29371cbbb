"""Run files are deleted when nothing needs them, whatever the clock of their disk says."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from streams.compute.checkpoints import Sightings
from streams.replica.driver.checkpoint_store import CheckpointStore
from streams.replica.driver.dataflow import Phase
from streams.replica.driver.maintenance import Maintenance

HOUR_S = 3600


class Driver:
    """As much of a scheduler as the collection of garbage looks at."""

    def __init__(self, directory: Path) -> None:
        self.store = CheckpointStore(directory)
        self.lanes = {"steady": SimpleNamespace(current=None)}
        self.flows: dict[str, object] = {}
        self.lock = threading.RLock()
        self.maintenance = Maintenance(self, self.store, None, lambda: None)  # type: ignore[arg-type]

    def run(self, step: str | None) -> None:
        current = None if step is None else SimpleNamespace(step=step, began_at=HOUR_S * 1e6)
        self.lanes["steady"].current = current

    def write(self, name: str, ahead_s: int = 0) -> Path:
        path = self.store.directory / "runs" / name
        path.write_bytes(b"run")
        written = path.stat().st_mtime + ahead_s
        os.utime(path, (written, written))
        return path


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


@pytest.mark.parametrize("ahead_s", [-HOUR_S, 0, HOUR_S])
def test_what_a_running_step_may_have_written_stays(driver: Driver, ahead_s: int) -> None:
    """The clock of the disk may be an hour before the driver's, or behind it."""
    driver.run("steady-1")
    begun = driver.write("begun", ahead_s)
    for _ in range(3):
        driver.maintenance._collect()
    assert begun.exists()


@pytest.mark.parametrize("ahead_s", [-HOUR_S, 0, HOUR_S])
def test_what_nothing_names_goes_once_its_step_has_ended(driver: Driver, ahead_s: int) -> None:
    driver.run("steady-1")
    orphan = driver.write("orphan", ahead_s)
    driver.maintenance._collect()
    driver.run("steady-2")
    later = driver.write("later", ahead_s)
    driver.maintenance._collect()
    assert not orphan.exists()
    assert later.exists()


def test_what_nothing_names_goes_at_once_where_no_step_runs(driver: Driver) -> None:
    orphan = driver.write("orphan")
    driver.maintenance._collect()
    assert not orphan.exists()


def test_a_long_step_keeps_only_what_came_while_it_ran() -> None:
    sightings, long = Sightings(), frozenset({"apart-1"})
    assert sightings.complete(["before"], frozenset({"steady-1"})) == set()
    assert sightings.complete(["before", "during"], long) == {"before"}
    assert sightings.complete(["during"], long | {"steady-2"}) == set()
    assert sightings.complete(["during"], frozenset({"steady-3"})) == {"during"}
    assert sightings.complete([], frozenset()) == set()
    assert not sightings.running_then, "what is gone is forgotten"


def test_who_does_not_own_a_store_deletes_nothing_in_it(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = driver.write("another process's")
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "is_owner", lambda _: False)
        for _ in range(4):
            driver.maintenance._collect()
    assert path.exists()
    for _ in range(4):
        driver.maintenance._collect()
    assert not path.exists()


def test_a_dataflow_that_loses_its_state_meanwhile_keeps_its_files(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its stored records name was not read: it was known when the collection began."""
    flow = SimpleNamespace(id="u1", phase=Phase.RUNNING, own=None, build=None, records=())
    driver.flows["u1"] = flow
    recorded = driver.write("recorded")
    monkeypatch.setattr(driver.store, "stored", lambda: frozenset({"u1", "u2"}))

    def named(dataflow: str) -> frozenset[str]:
        flow.phase = Phase.STARTING
        return frozenset({"recorded"} if dataflow == "u1" else ())

    monkeypatch.setattr(driver.store, "named", named)
    for _ in range(2):
        driver.maintenance._collect()
        assert flow.phase is Phase.STARTING
        assert recorded.exists()
    flow.phase = Phase.RUNNING
    monkeypatch.setattr(driver.store, "stored", lambda: frozenset({"u1"}))
    driver.maintenance._collect()
    assert not recorded.exists()
