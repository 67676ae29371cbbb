"""Files that are there whole or not at all."""

import errno
import os
import stat
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from streams import files
from streams.errors import Determinate
from streams.files import directory_of_programs, write_program, write_whole
from streams.temporary import OWNER


def test_readers_see_the_old_content_or_the_new_and_never_a_part(tmp_path: Path) -> None:
    file, texts, seen = tmp_path / "f", ("a" * 100_000, "b" * 100_000), set()
    write_whole(file, texts[0])
    written = threading.Event()

    def write() -> None:
        for turn in range(200):
            write_whole(file, texts[turn % 2])
        written.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not written.is_set():
        seen.add(file.read_text())
    writer.join()
    assert seen <= set(texts)


def test_the_mode_is_that_asked_for_whatever_was_there(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("readable by all")
    file.chmod(0o644)
    write_whole(file, "secret", mode=0o600)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == "secret"


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "d"
    file.mkdir()
    with pytest.raises(OSError, match="directory"):
        write_whole(file, b"x")
    assert list(tmp_path.iterdir()) == [file]


def test_a_durable_file_is_on_disk_before_its_name_and_then_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, said, sync, replace = tmp_path / "f", list[str](), os.fsync, os.replace

    def synchronize(descriptor: int) -> None:
        said.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def rename(partial: Path, path: Path) -> None:
        said.append("rename")
        replace(partial, path)

    monkeypatch.setattr(os, "fsync", synchronize)
    monkeypatch.setattr(os, "replace", rename)
    write_whole(file, "x", is_durable=True)
    assert said == ["file", "rename", "directory"]
    assert file.read_text() == "x"
    write_whole(file, "y")
    assert said[3:] == ["rename"]


def noexec(monkeypatch: pytest.MonkeyPatch, *places: Path) -> None:
    """Let disks at these places run no programs."""
    real = files._run_something

    def run(path: Path) -> None:
        if any(path.is_relative_to(place) for place in places):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        real(path)

    monkeypatch.setattr(files, "_run_something", run)


def test_programs_lie_where_they_can_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, home = tmp_path / "tmp", tmp_path / "home"
    system.mkdir()
    (home / ".cache").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(system))
    monkeypatch.setenv("HOME", str(home))
    with directory_of_programs("p-") as first:
        assert first.parent == system
        assert [path.name for path in first.iterdir()] == [OWNER]
    noexec(monkeypatch, system)
    with directory_of_programs("p-") as second:
        assert second.parent == home / ".cache"
        write_program(second / "say", 'echo "$1"')
        done = subprocess.run([second / "say", "a b"], capture_output=True, check=True)
        assert done.stdout == b"a b\n"
    assert [*system.iterdir(), *(home / ".cache").iterdir()] == []


def test_without_a_place_for_programs_the_setting_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "no home"))
    noexec(monkeypatch, Path("/"))
    with pytest.raises(Determinate, match="set TMPDIR to one") as raised:
        directory_of_programs("p-").__enter__()
    assert "Permission denied" in str(raised.value)
    assert "no home/.cache (No such file or directory)" in str(raised.value)
