"""Files of a copy: together visible or not at all, nothing overwritten, nothing left behind."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyarrow import fs

from streams.copies.destination import (
    CopyCanceled,
    CopyManifest,
    Destination,
    opened,
)
from streams.copies.targets import CopyTargets
from streams.errors import InvalidStatement

DATA = [b"ab", b"cde", b"f"]
MANIFEST = CopyManifest("c1", 7, (("a", "BIGINT"),), ((1, 3), (2, 3)))


def local(path: Path, attempt: str = "one") -> Destination:
    return Destination(fs.LocalFileSystem(), str(path), attempt)


def remote(attempt: str = "one", filesystem: fs.FileSystem | None = None) -> Destination:
    """A directory where nothing is renamed."""
    filesystem = filesystem or fs._MockFileSystem()
    filesystem.create_dir("bucket/v")
    return Destination(filesystem, "bucket/v", attempt)


def names(destination: Destination) -> list[str]:
    entries = destination.filesystem.get_file_info(fs.FileSelector(destination.path))
    return sorted(info.base_name for info in entries)


def failing(pieces: int) -> Iterator[bytes]:
    yield from DATA[:pieces]
    raise OSError("the disk has gone")


def test_a_local_directory_has_files_and_a_manifest(tmp_path: Path) -> None:
    local(tmp_path / "v").write(DATA, MANIFEST)
    assert [path.name for path in tmp_path.iterdir()] == ["v"]
    contents = {path.name: path.read_bytes() for path in (tmp_path / "v").iterdir()}
    manifest = json.loads(contents.pop("_SUCCESS"))
    assert contents == {"part-00000-one.parquet": b"abc", "part-00001-one.parquet": b"def"}
    assert manifest == {
        "copy": "c1",
        "format": "parquet",
        "as_of": 7,
        "rows": 3,
        "columns": [{"name": "a", "type": "BIGINT"}],
        "files": [
            {"name": "part-00000-one.parquet", "rows": 1, "bytes": 3},
            {"name": "part-00001-one.parquet", "rows": 2, "bytes": 3},
        ],
    }


def test_a_local_directory_appears_with_all_its_files(tmp_path: Path) -> None:
    def looking() -> Iterator[bytes]:
        for piece in DATA:
            assert not (tmp_path / "v").exists()
            yield piece

    local(tmp_path / "v").write(looking(), MANIFEST)
    assert len(list((tmp_path / "v").iterdir())) == 3


def test_an_empty_directory_is_a_target(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    local(tmp_path / "v").write(DATA, MANIFEST)
    assert len(list((tmp_path / "v").iterdir())) == 3


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "mine").write_text("x")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidStatement, match="it has mine, of 1 in all"):
        local(tmp_path / "v").write(DATA, MANIFEST)
    with pytest.raises(InvalidStatement, match="it is a file"):
        local(tmp_path / "file").write(DATA, MANIFEST)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "file",
        "v",
        "v/mine",
    ]


def test_the_parent_must_exist(tmp_path: Path) -> None:
    with pytest.raises(InvalidStatement, match=r"parent of the target, .*/none, is not a dir"):
        local(tmp_path / "none" / "v").write(DATA, MANIFEST)
    assert not list(tmp_path.iterdir())


def test_of_two_at_a_time_one_becomes_visible(tmp_path: Path) -> None:
    def overtaken() -> Iterator[bytes]:
        yield DATA[0]
        local(tmp_path / "v", "two").write(DATA, MANIFEST)
        yield from DATA[1:]

    with pytest.raises(InvalidStatement, match="overwrites nothing"):
        local(tmp_path / "v").write(overtaken(), MANIFEST)
    assert [path.name for path in tmp_path.iterdir()] == ["v"]
    assert names(local(tmp_path / "v")) == [
        "_SUCCESS",
        "part-00000-two.parquet",
        "part-00001-two.parquet",
    ]


@pytest.mark.parametrize("pieces", range(4))
def test_a_failure_leaves_nothing(tmp_path: Path, pieces: int) -> None:
    with pytest.raises(OSError, match="the disk has gone"):
        local(tmp_path / "v").write(
            failing(pieces), CopyManifest("c1", 7, (), ((1, 3), (2, 9)))
        )
    assert not list(tmp_path.iterdir())
    destination = remote()
    with pytest.raises(OSError, match="the disk has gone"):
        destination.write(failing(pieces), CopyManifest("c1", 7, (), ((1, 3), (2, 9))))
    assert not names(destination)


@pytest.mark.parametrize("looks", range(5))
def test_a_cancellation_leaves_nothing(tmp_path: Path, looks: int) -> None:
    """It is looked for before each piece, and before anything becomes visible."""
    for destination in (local(tmp_path / "v"), remote()):
        canceled = partial(next, iter([False] * looks), True)
        with pytest.raises(CopyCanceled):
            destination.write(DATA, MANIFEST, canceled)
    assert not list(tmp_path.iterdir())


def test_without_renames_the_manifest_is_last() -> None:
    destination = remote()
    seen: list[list[str]] = []

    def looking() -> Iterator[bytes]:
        for piece in DATA:
            seen.append(names(destination))
            yield piece

    destination.write(looking(), MANIFEST)
    assert not any("_SUCCESS" in listing for listing in seen)
    assert names(destination) == [
        "_SUCCESS",
        "part-00000-one.parquet",
        "part-00001-one.parquet",
    ]


def test_without_renames_the_second_to_look_gives_up() -> None:
    """Each of two looks when its files are there: so never do both write a manifest."""
    first = remote()
    second = remote("two", first.filesystem)

    def overtaken() -> Iterator[bytes]:
        yield DATA[0]
        with pytest.raises(InvalidStatement, match="overwrites nothing"):
            second.write(DATA, MANIFEST)
        yield from DATA[1:]

    first.write(overtaken(), MANIFEST)
    assert names(first) == ["_SUCCESS", "part-00000-one.parquet", "part-00001-one.parquet"]


def test_without_renames_one_that_is_overtaken_gives_up(monkeypatch) -> None:
    """Both have found the directory empty, and the other one is done first."""
    first = remote()
    second = remote("two", first.filesystem)
    look = Destination.refuse_taken

    def overtaken(self: Destination) -> None:
        look(self)
        if self is first:
            second.write(DATA, MANIFEST)

    monkeypatch.setattr(Destination, "refuse_taken", overtaken)
    with pytest.raises(InvalidStatement, match="overwrites nothing"):
        first.write(DATA, MANIFEST)
    assert names(first) == ["_SUCCESS", "part-00000-two.parquet", "part-00001-two.parquet"]


def test_a_manifest_that_cannot_be_written_leaves_no_files(monkeypatch) -> None:
    destination = remote()
    put = Destination._put

    def broken(self: Destination, name: str, pieces: Iterator[bytes]) -> None:
        put(self, name, pieces)
        if name == "_SUCCESS":
            raise OSError("was it written?")

    monkeypatch.setattr(Destination, "_put", broken)
    with pytest.raises(OSError, match="was it written"):
        destination.write(DATA, MANIFEST)
    assert not names(destination)


def test_what_a_copy_has_written_is_found_by_its_name(tmp_path: Path) -> None:
    for destination in (local(tmp_path / "v"), remote()):
        assert destination.written("c1") is None
        destination.write(DATA, MANIFEST)
        assert destination.written("c1") == MANIFEST.files
        assert destination.written("c2") is None
    (tmp_path / "v" / "_SUCCESS").write_text("")  # as Spark writes it
    assert local(tmp_path / "v").written("c1") is None


def test_a_link_leads_nowhere_else(tmp_path: Path) -> None:
    allowed, secret = tmp_path / "exports", tmp_path / "secret"
    allowed.mkdir()
    secret.mkdir()
    (allowed / "out").symlink_to(secret)
    targets = CopyTargets.of([allowed.as_uri()])
    with pytest.raises(InvalidStatement, match="a link leads out"):
        opened(targets.find(f"{allowed.as_uri()}/out/v"), "one")
    with pytest.raises(InvalidStatement, match="it is a link"):
        opened(targets.find(f"{allowed.as_uri()}/out"), "one")
    (tmp_path / "link").symlink_to(allowed)
    targets = CopyTargets.of([(tmp_path / "link").as_uri()])
    destination = opened(targets.find(f"{(tmp_path / 'link').as_uri()}/v"), "one")
    assert destination.path == str(allowed / "v")


def test_a_file_system_that_refuses_the_settings_shows_no_secret() -> None:
    targets = CopyTargets.of(["s3://KEY:SECRET@bucket/x?none=1"])
    with pytest.raises(InvalidStatement) as caught:
        opened(targets.find("s3://bucket/x/y"), "one")
    assert "none" in str(caught.value)
    assert "KEY" not in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_a_uri_has_a_greatest_length() -> None:
    with pytest.raises(InvalidStatement, match="1108 characters, of at most 1024"):
        CopyTargets().find("file:///" + "x" * 1100)
