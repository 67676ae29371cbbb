"""Processes that share the imports of a fork server, and nothing else."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from streams.app.fork_server import fork_server
from streams.app.processes import Child
from streams.forks import Forked
from tests.support.processes import command_line, eventually, is_alive, kill

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a fork server"),
    pytest.mark.timeout(240),
]

TELLING = """
import os, sys, threading
print(
    "streams.adapter.coordinator" in sys.modules,
    "pandas" in sys.modules,
    threading.active_count(),
    sorted(map(int, os.listdir("/proc/self/fd")))[:-1] == [0, 1, 2, 3, 4],  # a pipe for signals
    os.getpgrp() == os.getpid(),
    os.environ["SAID"],
    *sys.argv[1:],
    sep="\\n",
)
sys.exit(7)
"""

WAITING = """
import sys
from streams.app import signals
stopping = signals.until_signalled()
print("began", flush=True)
stopping.wait()
print("ended", flush=True)
"""

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""

ASKING = """
import sys, time
from pathlib import Path
from streams.forks import Forked
with open(sys.argv[2], "wb") as out:
    command = [sys.executable, "-m", "waiting"]
    forked = Forked(Path(sys.argv[1]), command, (0, out.fileno(), out.fileno()))
print(forked.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with fork_server(tmp_path_factory.mktemp("server") / "log") as address:
        assert address is not None
        yield address


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of the working directory, which a forked `-m` finds as a started one does."""
    for name, text in {"telling": TELLING, "waiting": WAITING, "family": FAMILY}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)


def forked(server: Path, log: Path, *command: str, **environment: str) -> Forked:
    with log.open("ab") as out, Path(os.devnull).open("rb") as nothing:
        files = (nothing.fileno(), out.fileno(), out.fileno())
        return Forked(server, [sys.executable, "-m", *command], files, environment)


def test_it_has_the_imports_and_nothing_else_of_the_server(server: Path, tmp_path) -> None:
    process = forked(server, tmp_path / "log", "telling", "a b", "c", SAID="ours")
    assert process.wait(120) == process.poll() == 7
    said = (tmp_path / "log").read_text().splitlines()
    assert said == ["True", "False", "1", "True", "True", "ours", "a b", "c"]
    process.kill()  # of one that has ended: nothing


def test_a_signal_ends_one_and_no_other(server: Path, tmp_path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    one, other = forked(server, first, "waiting"), forked(server, second, "waiting")
    eventually(lambda: "began" in first.read_text() and "began" in second.read_text())
    assert command_line(psutil.Process(one.pid))[:3] == [sys.executable, "-m", "waiting"]
    with pytest.raises(subprocess.TimeoutExpired):
        one.wait(0.01)
    one.terminate()
    assert one.wait(60) == 0
    assert "ended" in first.read_text()
    assert other.poll() is None
    other.kill()
    assert other.wait(60) == -signal.SIGKILL


def test_it_ends_with_who_asked_for_it(server: Path, tmp_path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", ASKING, str(server), str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        pid = int(asking.stdout.readline())
        eventually(lambda: "began" in log.read_text())
        kill(asking.pid)
    eventually(lambda: not psutil.pid_exists(pid), 60)


def test_a_child_that_is_forked_comes_back_alone_and_its_group_goes_with_it(
    server: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    child = Child("c", [sys.executable, "-m", "family"], log, fork_server=server)
    child.start()
    try:
        eventually(lambda: log.exists() and len(log.read_text().split()) == 1)
        pid, grandchild = child.pid, int(log.read_text())
        assert pid is not None
        parent = psutil.Process(pid).parent()
        assert parent is not None
        assert "streams.app.fork_server" in command_line(parent)
        kill(pid)
        eventually(lambda: not is_alive(grandchild))
        eventually(lambda: len(log.read_text().split()) == 2)
        assert child.pid != pid
    finally:
        child.stop()
    assert child.pid is None


def test_without_the_server_a_child_is_started_by_itself(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with fork_server(tmp_path / "server.log") as address:
        command = [sys.executable, "-m", "family"]
        child = Child("c", command, log, fork_server=address)
        child.start()
        try:
            eventually(lambda: log.exists() and len(log.read_text().split()) == 1)
            first = child.pid
            assert first is not None
            server = psutil.Process(first).parent()
            assert server is not None
            server.kill()
            eventually(lambda: not is_alive(first))  # by the kernel
            eventually(lambda: len(log.read_text().split()) == 2)
            assert child.pid is not None
            assert psutil.Process(child.pid).ppid() == os.getpid()
        finally:
            child.stop()
