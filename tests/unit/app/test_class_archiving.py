"""The writer of the archive of classes runs beside an environment, only where it is needed."""

import sys
from contextlib import suppress
from pathlib import Path

import pytest

from streams.app import class_archiving as module
from streams.app.class_archiving import class_archiving
from streams.errors import Determinate
from tests.support.processes import eventually

PROGRAM = "import time; print('writing', flush=True); time.sleep(600)  # archive"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    archive = tmp_path / "spark.jsa"
    monkeypatch.setattr(module, "find_java", lambda: Path("java"))
    monkeypatch.setattr(module, "spark_archive", lambda _: archive)
    monkeypatch.setattr(module, "_WRITER", (sys.executable, "-c", PROGRAM))
    return archive


def test_the_writer_runs_beside_the_environment_and_ends_with_it(
    archive: Path, tmp_path: Path
) -> None:
    log = tmp_path / "class-archive.log"

    def is_writing() -> bool:
        return log.read_text() == "writing\n"

    with class_archiving(log):
        eventually(is_writing)
        assert running(PROGRAM)
    assert running(PROGRAM) == []
    assert not archive.exists()


def test_nothing_is_written_where_there_is_an_archive(archive: Path, tmp_path: Path) -> None:
    archive.touch()
    with class_archiving(tmp_path / "class-archive.log"):
        assert list(tmp_path.iterdir()) == [archive]


def test_without_java_nothing_is_written(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> Path:
        raise Determinate("no java")

    monkeypatch.setattr(module, "find_java", none)
    with class_archiving(tmp_path / "class-archive.log"):
        assert not list(tmp_path.iterdir())
    assert not archive.exists()


def running(program: str) -> list[Path]:
    """The processes whose command ends with `program`."""
    processes = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cmdline").read_bytes().endswith(f"\0{program}\0".encode()):
                processes.append(process)
    return processes
