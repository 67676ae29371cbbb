"""Temporary directories outlive nobody: those of killed processes are removed by the next."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from connectors.runtime.runner import spilling
from streams.errors import InvalidUsage
from streams.temporary import OWNER, remove_abandoned, temporary_directory

HELD = """
import sys, time
from pathlib import Path
from streams.temporary import temporary_directory
with temporary_directory(sys.argv[1], Path(sys.argv[2])) as directory:
    (directory / "some").mkdir()
    (directory / "some" / "rows").write_text("x")
    print(directory, flush=True)
    time.sleep(600)
"""


def holder(prefix: str, place: Path) -> tuple["subprocess.Popen[str]", Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, prefix, str(place)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_next_session_removes_what_a_killed_one_has_left(tmp_path: Path) -> None:
    killed, other_directory = holder("slackwater-spill-", tmp_path)
    living, directory = holder("slackwater-spill-", tmp_path)
    try:
        killed.kill()
        killed.wait()
        assert (other_directory / "some" / "rows").exists()
        with spilling(str(tmp_path)) as own:
            assert not other_directory.exists()
            assert (directory / "some" / "rows").exists(), "its process lives"
            remove_abandoned("slackwater-spill-", tmp_path)
            assert own.exists(), "also of this process"
        assert not own.exists()
    finally:
        for process in (killed, living):
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def test_what_is_not_known_to_be_abandoned_stays(tmp_path: Path) -> None:
    plain, other, aim = tmp_path / "a-plain", tmp_path / "b-other", tmp_path / "aim"
    for path in (plain, other, aim):
        path.mkdir()
    for path in (other, aim):
        (path / OWNER).touch()
    (tmp_path / "a-link").symlink_to(aim)
    with temporary_directory("a-", tmp_path):
        assert plain.exists(), "it has no lock yet"
        assert other.exists(), "another prefix"
        assert aim.exists(), "a link leads elsewhere"
    remove_abandoned("b-", tmp_path)
    assert not other.exists()


@pytest.mark.parametrize("package", ["streams", "connectors"])
def test_every_directory_is_removed_by_the_next_process(package: str) -> None:
    """A directory that `tempfile` makes stays for ever when its process is killed."""
    root = Path(__file__).parents[2]
    bare = [
        f"{file.relative_to(root)}:{number}"
        for file in sorted((root / package).rglob("*.py"))
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if re.search(r"\b(TemporaryDirectory|mkdtemp)\b", line)
        and file != root / "streams" / "temporary.py"
    ]
    assert not bare, "use streams.temporary"


def test_no_place_is_told(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(InvalidUsage, match=r"limits\.spill: "), spilling(str(tmp_path / "no")):
        pass
    for _ in range(3):
        with spilling(str(tmp_path)):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before
