import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.app.processes import Child
from tests.support.processes import is_alive

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def family(log: Path) -> Child:
    """A process with a child of its own, which writes down the child's id."""
    return Child("family", [sys.executable, "-c", FAMILY], log)


def born(log: Path, count: int) -> list[int]:
    """The ids of the grandchildren, once there are so many."""
    eventually(lambda: log.exists() and len(log.read_text().split()) >= count)
    return [int(word) for word in log.read_text().split()]


def test_a_child_that_dies_comes_back_and_its_group_goes_with_it(tmp_path) -> None:
    child = family(tmp_path / "log")
    child.start()
    try:
        (first,) = born(tmp_path / "log", 1)
        pid = child.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not is_alive(first))
        born(tmp_path / "log", 2)
        assert child.pid != pid
        assert child.starts == 2
    finally:
        child.stop()


def test_some_ends_are_final(tmp_path) -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    child = Child("c", command, tmp_path / "log", final=frozenset({3}))
    child.start()
    eventually(lambda: child.is_over)
    assert child.starts == 1
    child.stop()


def test_stop_ends_the_whole_group_for_good(tmp_path) -> None:
    child = family(tmp_path / "log")
    child.start()
    (grandchild,) = born(tmp_path / "log", 1)
    pid = child.pid
    assert pid is not None
    child.stop()
    eventually(lambda: not is_alive(pid) and not is_alive(grandchild))
    time.sleep(0.5)
    assert len(born(tmp_path / "log", 1)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal is Linux's")
def test_kill_9_of_the_supervisor_takes_its_children_down(tmp_path) -> None:
    program = f"""
import sys, time
from pathlib import Path
from streams.app.processes import Child
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
child = Child("c", sleep, Path({str(tmp_path / "log")!r}))
child.start()
print(child.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        assert is_alive(pid)
        supervisor.kill()
    eventually(lambda: not is_alive(pid))
