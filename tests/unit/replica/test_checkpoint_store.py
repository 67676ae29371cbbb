"""The state of a replica: what is found again after a restart, and what is not."""

import errno
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.errors import Determinate, Indeterminate
from streams.ids import CollectionId, Timestamp
from streams.progress import frontier
from streams.replica.driver import checkpoint_store
from streams.replica.driver.checkpoint_store import CheckpointStore, hydration_of, record_of
from streams.replica.driver.dataflow_state import Build, OwnState, run_names
from streams.replica.driver.task_inputs import ServedInputs
from streams.replica.state_files import RemoteFiles, opened

VIEW = CollectionId("u1")


def state(time: int, *names: str) -> OwnState:
    runs = {0: {"1.rows": [[name, 1] for name in names]}}
    return OwnState("life", frontier(time), runs, {0: 5, 1: 7})  # type: ignore[arg-type]


def write_runs(store: CheckpointStore, *names: str) -> None:
    for name in names:
        store.files.write(f"runs/{name}", b"run")


Open = Callable[[], CheckpointStore]


@pytest.fixture(params=["directory", "store"])
def again(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same state as a new process does: in its directory, or in a store."""
    if request.param == "directory":
        return lambda: CheckpointStore(tmp_path / "s")
    files = opened(f"file://{tmp_path}/store").below("sw/default/r1")
    directories = map(tmp_path.joinpath, map(str, itertools.count()))
    return lambda: CheckpointStore(next(directories), files, ServedInputs())


def test_a_record_is_found_as_it_was_written(again: Open) -> None:
    store = again()
    write_runs(store, "a", "b")
    record = record_of("f", state(9, "a", "b"), 2)
    store.put_record(VIEW, record)
    assert again().records(VIEW) == (record,)
    last = again()
    assert last.stored() == {VIEW}
    last.forget(VIEW)
    assert (last.records(VIEW), last.stored()) == ((), frozenset())
    assert last.run_files() == {"a", "b"}
    assert last.run_sizes() == {"a": 3, "b": 3}
    last.delete_runs(["a", "c"])
    assert last.run_files() == {"b"}


def test_a_record_without_all_its_runs_is_of_no_use(again: Open) -> None:
    store = again()
    write_runs(store, "a")
    store.put_record(VIEW, record_of("f", state(9, "a", "b"), 2))
    assert store.records(VIEW) == ()
    write_runs(store, "b")
    assert store.records(VIEW) == (), "it was deleted"


def test_the_latest_process_of_a_store_owns_it_and_alone_deletes(tmp_path: Path) -> None:
    files = opened(f"file://{tmp_path}/store")
    earlier = CheckpointStore(tmp_path / "a", files, ServedInputs())
    assert earlier.is_owner()
    later = CheckpointStore(tmp_path / "b", files, ServedInputs())
    assert (earlier.is_owner(), later.is_owner()) == (False, True)
    later.put_record(VIEW, record_of("f", state(9), 2))
    earlier.forget(VIEW)
    earlier.delete_records(VIEW, later.records(VIEW))
    assert later.records(VIEW)
    later.forget(VIEW)
    assert not later.records(VIEW)


class Away(RemoteFiles):
    """A store that cannot be reached, once it is told so."""

    is_away = False

    def read(self, path: str) -> bytes:
        if Away.is_away:
            raise Indeterminate("the store is away")
        return super().read(path)


def test_a_store_that_is_away_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = opened(f"file://{tmp_path}/store")
    store = CheckpointStore(tmp_path / "a", Away(there.filesystem, there.root), ServedInputs())
    store.put_record(VIEW, record_of("f", state(9), 2))
    with monkeypatch.context() as patch:
        patch.setattr(Away, "is_away", True)
        for ask in (store.is_owner, lambda: store.records(VIEW), lambda: store.named(VIEW)):
            with pytest.raises(Indeterminate):
                ask()
        store.forget(VIEW)
        store.delete_records(VIEW, [record_of("f", state(9), 2)])
    assert store.is_owner()
    assert store.records(VIEW)


def test_run_files_of_a_store_are_deleted_beside_each_other(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "a", opened(f"file://{tmp_path}/store"), ServedInputs())
    names = {f"run{number}" for number in range(40)}
    for name in names:
        store.files.write(f"runs/{name}", b"rows")
    together = threading.Barrier(4)  # it breaks unless four wait at once

    def delete(files: RemoteFiles, path: str) -> None:
        together.wait(60)
        real(files, path)

    real = RemoteFiles.delete
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemoteFiles, "delete", delete)
        store.delete_runs(names)
    assert not store.run_files()


def test_records_come_in_the_order_of_their_frontiers(again: Open) -> None:
    store = again()
    for frontier_ms in (100, 9, 20):
        store.put_record(VIEW, record_of("f", state(frontier_ms), 2))
    assert [record.checkpoint.frontier for record in store.records(VIEW)] == [9, 20, 100]
    store.delete_records(VIEW, store.records(VIEW)[:1])
    assert [record.checkpoint.frontier for record in store.records(VIEW)] == [20, 100]


def test_a_restarted_machine_has_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = tmp_path / "boot_id"
    boot.write_text("first")
    monkeypatch.setattr(checkpoint_store, "BOOT", boot)
    CheckpointStore(tmp_path / "s").put_record(VIEW, record_of("f", state(9), 2))
    assert CheckpointStore(tmp_path / "s").records(VIEW)
    boot.write_text("second")
    assert CheckpointStore(tmp_path / "s").records(VIEW) == ()


def test_another_machine_loses_the_cache_and_nothing_else(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    write_runs(store, "a")
    store.put_record(VIEW, record_of("f", state(9, "a"), 2))
    (tmp_path / "lock").touch()
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "blocks").write_bytes(b"of a session that runs")
    (tmp_path / "boot").write_text("of another machine")
    again = CheckpointStore(tmp_path)
    assert (again.stored(), again.run_files()) == (frozenset(), frozenset())
    assert (tmp_path / "spark" / "blocks").exists()
    assert (tmp_path / "lock").exists()


def test_progress_of_a_hydration_is_found_again(again: Open) -> None:
    store = again()
    build = Build(
        incarnation="life",
        lower=Timestamp(5),
        upper=Timestamp(6),
        as_of=True,
        writes=True,
        slices=((), ()),
        sizes=(0, 0),
        done=1,
        runs=state(6, "a").runs,
    )
    store.put_build(VIEW, "f", build, 2)
    assert again().build(VIEW, "f") == (build, 2)
    assert again().build(VIEW, "g") is None, "another version computes something else"
    assert again().named(VIEW) == {"a"}
    hydration = hydration_of("f", build)
    assert (hydration.as_of, hydration.done, hydration.slices) == (5, 1, 2)
    assert hydration.runs == {"a"}
    again().delete_build(VIEW)
    assert store.build(VIEW, "f") is None


@pytest.mark.parametrize("body", [b"\x80", b"cstreams.replica.flow\nGone\n."])
def test_progress_that_another_version_wrote_is_not_unpickled(
    tmp_path: Path, body: bytes
) -> None:
    store = CheckpointStore(tmp_path)
    file = tmp_path / "checkpoints" / VIEW / "build"
    file.parent.mkdir(parents=True)
    file.write_bytes(b'{"fingerprint": "of before", "runs": ["a"]}\n' + body)
    assert store.build(VIEW, "f") is None
    assert store.named(VIEW) == {"a"}
    assert file.exists()


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b'{"fingerprint": "f"}\n\x80'])
def test_state_that_cannot_be_read_is_dropped_and_nothing_else(
    again: Open, content: bytes
) -> None:
    store = again()
    store.put_record(VIEW, record_of("f", state(9), 2))
    for name in ("build", "7"):
        store.files.write(f"checkpoints/{VIEW}/{name}", content)
    assert store.build(VIEW, "f") is None
    assert [record.checkpoint.frontier for record in store.records(VIEW)] == [9]
    assert store.named(VIEW) == frozenset()
    assert set(store.files.sizes(f"checkpoints/{VIEW}")) == {"9"}


def test_what_a_process_leaves_behind_is_deleted(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "s")
    (store.directory / "steps" / "steady-1.pickle").write_bytes(b"")
    store.inputs.put_plan("p", "{}")
    again = CheckpointStore(tmp_path / "s")
    assert not list((again.directory / "steps").iterdir())
    assert not list((again.directory / "plans").iterdir())


def test_forgetting_a_dataflow(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "s")
    store.put_record(VIEW, record_of("f", state(9), 2))
    assert store.stored() == {VIEW}
    store.forget(VIEW)
    assert store.stored() == set()


def test_a_state_names_the_files_that_its_runs_lie_in() -> None:
    assert run_names(state(5, "a.0", "a.64", "b.0").runs) == {"a", "b"}


def test_a_full_disk_that_takes_no_folder_is_determinate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(Determinate, match="No space left"):
        store.put_record(VIEW, record_of("f", state(9), 2))
