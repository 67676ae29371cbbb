"""Files of a replica's state, in a directory and in a file system of pyarrow."""

from pathlib import Path

import pytest

from streams.errors import Indeterminate, InvalidUsage
from streams.replica.state_files import DirectoryFiles, RemoteFiles, StateFiles, opened


@pytest.fixture(params=["directory", "store"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> StateFiles:
    if request.param == "directory":
        return DirectoryFiles(tmp_path)
    return opened(f"file://{tmp_path}")


def test_a_file_is_read_listed_replaced_and_deleted(files: StateFiles, tmp_path: Path) -> None:
    files.write("a/b/one", b"1")
    files.write("a/b/one", b"12")
    files.write("a/two", b"")
    assert files.read("a/b/one") == b"12"
    assert files.sizes("a/b") == {"one": 2}
    assert files.sizes("a") == {"two": 0}
    assert files.folders("a") == {"b"}
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == ["one"]
    files.delete("a/b/one")
    files.delete("a/b/one")
    with pytest.raises(FileNotFoundError):
        files.read("a/b/one")
    files.delete_folder("a")
    files.delete_folder("a")
    assert not (tmp_path / "a").exists()


def test_a_folder_that_does_not_exist_is_empty(files: StateFiles) -> None:
    assert files.sizes("none") == {}
    assert files.folders("none") == frozenset()


def test_a_file_that_goes_meanwhile_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"123")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    assert DirectoryFiles(tmp_path.parent).sizes(tmp_path.name) == {"there": 3}


def store_of(place: Path) -> RemoteFiles:
    return opened(f"file://{place}/store").below("sw/default/r1")


def test_a_file_travels_to_another_host(tmp_path: Path) -> None:
    store, content = store_of(tmp_path), bytes(range(256)) * 20_000
    (tmp_path / "here").write_bytes(content)
    store.upload(tmp_path / "here", "runs/x")
    store.download("runs/x", tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == content
    assert {path.name for path in tmp_path.iterdir()} == {"here", "there", "store"}
    assert store.sizes("runs") == {"x": len(content)}


def test_a_file_that_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        store_of(tmp_path).download("runs/x", tmp_path / "there")
    with pytest.raises(FileNotFoundError):
        store_of(tmp_path).upload(tmp_path / "here", "runs/x")
    assert not list(tmp_path.iterdir())


def test_what_a_file_system_says_else_is_for_the_moment(tmp_path: Path) -> None:
    store = opened(f"file://{tmp_path}")
    (tmp_path / "folder").mkdir()
    for ask in (lambda: store.read("folder"), lambda: store.write("folder", b"1")):
        with pytest.raises(Indeterminate, match="the store of state, folder"):
            ask()


@pytest.mark.parametrize(
    ("uri", "came"),
    [
        ("nowhere://KEY:SECRET@host/x", "one of the scheme nowhere"),
        ("/a/path", "a text without a scheme"),
        ("", "a text without a scheme"),
    ],
)
def test_what_is_no_store_is_refused_without_its_secrets(uri: str, came: str) -> None:
    with pytest.raises(InvalidUsage) as refused:
        opened(uri)
    assert came in str(refused.value)
    assert "SECRET" not in str(refused.value)
