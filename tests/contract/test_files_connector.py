"""The connector of files: the kit of delta updates, and what is in the directories."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from pyarrow import fs

from connectors import files, testing
from connectors.driver import Driver
from connectors.files import transactor
from connectors.files.store import TaskStore
from connectors.files.transactor import FilesTransactor
from connectors.protocol.spec_builder import Collection, FieldSpec
from connectors.runtime.runner import can_pass
from connectors.testing import delta
from connectors.transport.errors import ConnectorFailed
from connectors.transport.local import Local
from schemas import materialize_pb2 as wire
from tests.support.endpoints import Endpoint, write

CHECK = pytest.mark.parametrize("check", delta.CHECKS, ids=lambda check: check.__name__)


def subject(root: Path, *divided: str) -> testing.Subject:
    return testing.Subject(
        driver=Driver(Local(files.CONNECTOR)),
        endpoint={"url": str(root)},
        resource=lambda table: {"path": f"shop/{table}", "partition_by": list(divided)},
    )


def rows_in(root: Path) -> Callable[[Any, int], Sequence[Any]]:
    def rows(task: Any, binding: int) -> Sequence[Any]:
        return documents(root / "/".join(task.bindings[binding].resource_path))

    return rows


def documents(directory: Path) -> list[Any]:
    if not any(directory.rglob("*.parquet")):
        return []
    rows = query(f"SELECT flow_document FROM read_parquet('{directory}/**/*.parquet')")
    return [json.loads(text) for (text,) in rows]


def query(sql: str) -> list[Any]:
    with duckdb.connect() as connection:
        return connection.execute(sql).fetchall()


@CHECK
@pytest.mark.parametrize("divided", [(), ("branch",)], ids=["plain", "hive"])
def test_files_keep_the_protocol(check: Any, divided: Any, memory_path: Path) -> None:
    check(subject(memory_path, *divided), rows_in(memory_path))


TYPES = Collection(
    name="types",
    keys=("id",),
    columns=(
        FieldSpec(name="id", types=("integer",)),
        FieldSpec(name="amount", types=("string", "number"), format="number"),
        FieldSpec(name="at", format="date-time"),
        FieldSpec(name="day", format="date"),
        FieldSpec(name="raw", base64=True),
        FieldSpec(name="tags", types=("array",)),
    ),
)
ROW = {"id": 1, "amount": "1.50", "at": "2026-01-02T04:04:05+01:00", "day": "2026-01-02"}
ROW |= {"raw": "AP8=", "tags": ["a"]}


def endpoint(root: Path) -> Endpoint:
    return Endpoint(connector=files.CONNECTOR, config={"url": str(root)}, query=lambda _: [])


def task(root: Path, **options: Any) -> Any:
    spec = endpoint(root).task(TYPES, **options)
    resource = {"path": "t", **options}
    spec.bindings[0].resource_spec_json = json.dumps(resource)
    spec.bindings[0].delta_updates = True
    return spec


def test_columns_have_types_and_directories_are_named_for_values(memory_path: Path) -> None:
    spec = task(memory_path, partition_by=["day", "id"])
    endpoint(memory_path).apply(spec)
    write(endpoint(memory_path), spec, [ROW])
    (path,) = memory_path.glob("t/day=2026-01-02/id=1/*.parquet")
    described = query(f"DESCRIBE SELECT * FROM '{path}'")
    assert {name: type_ for name, type_, *_ in described if name not in {"day", "id"}} == {
        "amount": "VARCHAR",
        "at": "TIMESTAMP WITH TIME ZONE",
        "raw": "BLOB",
        "tags": "VARCHAR",
        "flow_document": "VARCHAR",
    }
    shown = f"SELECT amount, epoch_ms(f.at), raw, tags, id FROM read_parquet('{path}') AS f"
    assert query(shown) == [("1.50", 1767323045000, b"\x00\xff", '["a"]', 1)]


def test_what_is_wrong_is_refused(memory_path: Path) -> None:
    with pytest.raises(ConnectorFailed, match=r"partition_by: no selected field \{'gone'\}"):
        endpoint(memory_path).apply(task(memory_path, partition_by=["gone"]))
    spec = task(memory_path)
    endpoint(memory_path).apply(spec)
    with pytest.raises(ConnectorFailed, match="column day: "):
        write(endpoint(memory_path), spec, [ROW | {"day": "no date"}])


def validated(url: str, *paths: str) -> None:
    bindings = [
        wire.ValidateRequest.Binding(
            resource_spec_json=json.dumps({"path": path}), collection=TYPES.spec()
        )
        for path in paths
    ]
    request = wire.ValidateRequest(
        materialization="t", endpoint_spec_json=json.dumps({"url": url}), bindings=bindings
    )
    Driver(Local(files.CONNECTOR)).validate(request)


@pytest.mark.parametrize(
    "url", ["nowhere://x", "relative", "s3://key:hunter2@bucket/x", "abfs://:hunter2@a.b/c"]
)
def test_a_url_that_is_wrong_is_refused(url: str) -> None:
    """Also one with a secret, which would stand in the catalog."""
    with pytest.raises(ConnectorFailed, match="url: ") as caught:
        validated(url)
    assert not can_pass(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_directory_in_another_one_is_refused(memory_path: Path) -> None:
    """A reader of `a` would find the rows of `a/b` in it."""
    validated(str(memory_path), "a", "ab", "b/a")
    for paths in (["a", "a/b"], ["a/b/c", "a"]):
        with pytest.raises(ConnectorFailed, match=r"path a/b.*: it is in a, which another"):
            validated(str(memory_path), *paths)


class Failing:
    """A file system on a network of which calls of one name fail."""

    def __init__(self, name: str) -> None:
        self.inner, self.name = fs.LocalFileSystem(), name

    def __getattr__(self, name: str) -> Any:
        if name == self.name:
            raise OSError("connection reset by peer")
        return getattr(self.inner, name)


CALLS = ["get_file_info", "open_input_stream", "open_output_stream", "move", "create_dir"]


@pytest.mark.parametrize("name", [*CALLS, "delete_dir"])
def test_a_file_system_that_does_not_answer_can_pass(
    name: str, memory_path: Path, monkeypatch: Any
) -> None:
    """Before the commit and after it, at whatever call; the next session goes on."""
    subject_, rows = subject(memory_path), rows_in(memory_path)
    spec, document = subject_.applied("t"), testing.account("a", 1, 1)
    commit = FilesTransactor.commit

    def failing(self: FilesTransactor) -> None:
        self._write(0)
        self.files.filesystem = Failing(name)
        commit(self)

    with subject_.session(spec) as stream, monkeypatch.context() as broken:
        broken.setattr(FilesTransactor, "commit", failing)
        stream.flush(testing.checkpoint(1))
        testing.store(stream, [document])
        with pytest.raises(ConnectorFailed, match="connection reset") as caught:
            stream.commit()
    assert can_pass(caught.value)
    with subject_.session(spec) as stream:
        if testing.at(stream) == 0:
            testing.write(stream, 1, [document])
    assert list(rows(spec, 0)) == [document]


def test_a_network_that_is_down_can_pass(monkeypatch: Any) -> None:
    """A bucket's region is asked for when the file system is opened."""

    def down(_: str) -> Any:
        raise OSError("AWS Error NETWORK_CONNECTION during HeadBucket")

    monkeypatch.setattr(files, "fs", SimpleNamespace(FileSystem=SimpleNamespace(from_uri=down)))
    with pytest.raises(ConnectorFailed, match="NETWORK_CONNECTION") as caught:
        validated("s3://bucket/x")
    assert can_pass(caught.value)


def test_a_transaction_may_have_any_number_of_partitions(memory_path: Path) -> None:
    """Arrow writes 1,024 unless it is told otherwise: of days not three years."""
    subject_ = subject(memory_path, "branch")
    spec = subject_.applied("t")
    accounts = [testing.account(f"b{n:04}", n, 1) for n in range(1100)]
    with subject_.session(spec) as stream:
        testing.write(stream, 1, accounts)
    assert len(rows_in(memory_path)(spec, 0)) == 1100


def test_many_rows_are_written_before_the_commit(memory_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(transactor, "LARGEST", 1)
    subject_, rows = subject(memory_path), rows_in(memory_path)
    spec = subject_.applied("many")
    with subject_.session(spec) as stream:
        stream.flush(testing.checkpoint(1))
        both = [testing.account("a", 1, 1), testing.account("a", 2, 2)]
        for session in both:
            testing.store(stream, [session])
        assert list(rows(spec, 0)) == []
        stream.commit()
    assert list(rows(spec, 0)) == both


def test_files_that_were_committed_and_not_moved_are_moved_once(
    memory_path: Path, monkeypatch: Any
) -> None:
    """The session ends between the commit and each step of what comes behind it."""
    subject_, rows = subject(memory_path), rows_in(memory_path)
    publish = TaskStore.publish
    for number in (0, 1):
        spec = subject_.applied("moved", "moved_too")
        with subject_.session(spec) as stream:
            stream.flush(testing.checkpoint(1))
            testing.store_both(stream)

            def partly(store: TaskStore, staged: str, moves: int = number) -> None:
                paths = TaskStore.paths
                with monkeypatch.context() as some:
                    some.setattr(TaskStore, "paths", lambda *args: list(paths(*args))[:moves])
                    publish(store, staged)
                raise OSError("the power is gone")

            with monkeypatch.context() as broken:
                broken.setattr(TaskStore, "publish", partly)
                with pytest.raises(ConnectorFailed, match="the power is gone"):
                    stream.commit()
        with subject_.session(spec) as stream:
            assert testing.at(stream) == 1
            assert list(rows(spec, 0)) == [testing.account("a", 1, 2)]
            assert list(rows(spec, 1)) == [testing.account("b", 1, 2)]


def test_a_merged_range_is_one_file_once_it_is_committed(memory_path: Path) -> None:
    """So the checkpoints of all ranges say whether they are at one time."""
    subject_ = subject(memory_path)
    spec = subject_.applied("merged")
    with subject_.session(spec, 0, 9) as old:
        testing.commit(old, 1)
    ranges = TaskStore(*files.reached(spec.endpoint_spec_json), spec.materialization).ranges
    with subject_.session(spec) as session:
        assert len(ranges()) == 3, "two parts, and the range of the session"
        testing.commit(session, 2)
        assert [row.held.range for row in ranges()] == [(0, 0xFFFFFFFF)]


def unfenced(monkeypatch: Any) -> None:
    monkeypatch.setattr(TaskStore, "fence", lambda *_: None)


def seen_early(monkeypatch: Any) -> None:
    monkeypatch.setattr(transactor, "LARGEST", 1)
    monkeypatch.setattr(TaskStore, "staged", lambda store, *_: store.root)


def never_settled(monkeypatch: Any) -> None:
    monkeypatch.setattr(TaskStore, "settle", lambda *_: None)


@pytest.mark.parametrize(
    ("defect", "found_by"),
    [
        (unfenced, delta.check_fence),
        (seen_early, delta.check_uncommitted),
        (never_settled, delta.check_appends),
    ],
)
def test_the_kit_finds_planted_defects(
    defect: Any, found_by: Any, memory_path: Path, monkeypatch: Any
) -> None:
    defect(monkeypatch)
    with pytest.raises((AssertionError, ConnectorFailed)):
        found_by(subject(memory_path), rows_in(memory_path))
