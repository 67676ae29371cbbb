import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from streams.app.environment import Environment, Settings
from streams.app.processes import Child
from tests.support.processes import eventually, is_alive, kill

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


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
        kill(pid)
        eventually(lambda: not is_alive(first))
        born(tmp_path / "log", 2)
        assert child.pid != pid
        assert child.starts == 2
    finally:
        child.stop()


def test_nothing_of_the_parent_runs_in_a_child_before_its_command(tmp_path) -> None:
    """A fork of a process with threads may inherit a lock that nobody opens."""
    code = f"""
import os, sys, time
from pathlib import Path
from streams.app.processes import Child
os.register_at_fork(after_in_child=lambda: time.sleep(600))
log = Path({str(tmp_path / "log")!r})
child = Child("c", [sys.executable, "-c", "print(1, flush=True); input()"], log)
child.start()
while not log.read_text():
    time.sleep(0.02)
child.stop()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_child_dies_with_its_parent(tmp_path) -> None:
    code = f"""
import sys, time
from pathlib import Path
from streams.app.processes import Child
Child("c", [sys.executable, "-c", {FAMILY!r}], Path({str(tmp_path / "log")!r})).start()
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        born(tmp_path / "log", 1)
        (child,) = psutil.Process(parent.pid).children()
        kill(parent.pid)
    eventually(lambda: not is_alive(child.pid))


def test_some_ends_are_final(tmp_path) -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    child = Child("c", command, tmp_path / "log", final=frozenset({3}))
    child.start()
    eventually(lambda: child.is_over)
    assert child.starts == 1
    child.stop()


def ending(code: str, log: Path, **options: Any) -> Child:
    """A process that runs some Python and ends."""
    return Child("c", [sys.executable, "-c", code], log, **options)


def test_who_ends_in_the_same_way_three_times_is_given_up_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    child = ending("raise OSError('no java')", tmp_path / "log")
    child.start()
    eventually(lambda: child.is_over)
    child.stop()
    assert child.starts == 3
    assert "c ended with exit code 1: OSError: no java" in child.reason
    assert str(tmp_path / "log") in child.reason
    assert "3 times in a row" in child.reason
    assert "\n" not in child.reason
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert all("exit code 1: OSError: no java" in message for message in messages)


def test_who_runs_long_enough_is_started_again_for_ever(tmp_path: Path) -> None:
    child = ending("raise OSError('no java')", tmp_path / "log", stable_s=0.0)
    child.start()
    eventually(lambda: child.starts > 3)
    child.stop()
    assert not child.is_over


def test_the_error_is_that_of_the_last_run(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ERROR: of an earlier environment\n")
    child = ending("import os; os.abort()", log)
    child.start()
    eventually(lambda: child.is_over)
    child.stop()
    assert "SIGABRT" in child.reason
    assert "earlier" not in child.reason


def test_nobody_is_given_up_for_what_others_are_to_blame_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    excuses = ["no broker answers"]
    code = "raise OSError('no broker')"
    child = ending(code, tmp_path / "log", excuse=lambda _: excuses[0])
    child.start()
    try:
        eventually(lambda: child.starts > 3)
        assert not child.is_over
        message = caplog.records[2].getMessage()
        assert message.endswith("no broker answers; restarting until that is over")
        excuses[0] = ""
        eventually(lambda: child.is_over)
    finally:
        child.stop()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has it")
def test_who_ends_for_want_of_room_heals_when_there_is_some(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.symlink_to("/dev/full")
    program = f"import time, pathlib; pathlib.Path({str(disk)!r}).write_text('x')"
    program += "; time.sleep(600)"
    environment = Environment(Settings(directory=tmp_path))
    child = ending(program, tmp_path / "log", excuse=environment.lack_of_room)
    child.start()
    try:
        eventually(lambda: child.starts > 3)
        disk.unlink()
        eventually(lambda: disk.exists() and disk.read_text() == "x")
        assert child.pid is not None
        assert not child.is_over
    finally:
        child.stop()


def test_a_process_that_cannot_even_be_started_has_ended(tmp_path: Path) -> None:
    """As on a disk that has no room for its log: the thread that starts it goes on."""
    blocked = tmp_path / "logs"
    blocked.write_text("")
    child = ending("import time; time.sleep(60)", blocked / "log")
    child.start()
    try:
        eventually(lambda: child.starts > 0)
        assert child.pid is None
        blocked.unlink()
        eventually(lambda: child.pid is not None)
    finally:
        child.stop()


def test_who_is_killed_on_purpose_always_comes_back(tmp_path: Path) -> None:
    child = family(tmp_path / "log")
    child.start()
    try:
        for count in range(1, 6):
            born(tmp_path / "log", count)
            child.kill()
        born(tmp_path / "log", 6)
        assert not child.is_over
    finally:
        child.stop()


def test_a_process_is_killed_that_runs_before_its_start_has_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowStart(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            time.sleep(1)  # the supervisor's thread is not scheduled, the process is

    monkeypatch.setattr(subprocess, "Popen", SlowStart)
    child = family(tmp_path / "log")
    child.start()
    try:
        born(tmp_path / "log", 1)
        child.kill()
        born(tmp_path / "log", 2)
        child.kill()  # what it started last, not what has ended
        born(tmp_path / "log", 3)
    finally:
        child.stop()


def test_stop_asks_the_process_alone_and_lets_it_end_what_it_started(tmp_path: Path) -> None:
    program = """
import signal, subprocess, sys
inner = "import signal, sys; print('born', flush=True); signal.sigwait([signal.SIGTERM])"
inner += "; print('asked', flush=True)"
child = subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE)
signal.signal(signal.SIGTERM, lambda *_: sys.exit("in order"))
child.wait()
"""
    child = ending(program, tmp_path / "log")
    child.start()
    eventually(lambda: "born" in (tmp_path / "log").read_text())
    child.stop()
    assert (tmp_path / "log").read_text().split("\n")[1:] == ["in order", ""]


@pytest.mark.parametrize("supervised", [True, False])
def test_the_end_of_standard_input_ends_only_who_is_supervised(supervised: bool) -> None:
    program = f"""
import sys
from streams.app.service_process import until_signalled
stopping = until_signalled(supervised={supervised})
print("ready", flush=True)
sys.exit(0 if stopping.wait(60) else 7)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        if supervised:
            assert process.wait(30) == -signal.SIGKILL
            return
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.terminate()
        assert process.wait(30) == 0


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
from streams.app.environment import Environment, Settings
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
