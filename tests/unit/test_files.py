"""Files that are there whole or not at all."""

import stat
import threading
from pathlib import Path

import pytest

from streams.files import write_whole


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
