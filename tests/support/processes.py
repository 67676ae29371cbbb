"""Processes of the operating system, for tests: asked about, ended, and waited for.

A process may end at any moment, between any two looks at it: none of these fails for it.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil


def is_alive(pid: int) -> bool:
    """Whether the process is there and still runs."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def family(pid: int) -> frozenset[psutil.Process]:
    """A process and all that descend from it, those that are there now."""
    try:
        first = psutil.Process(pid)
        return frozenset({first, *first.children(recursive=True)})
    except psutil.NoSuchProcess:
        return frozenset()


def command_line(process: psutil.Process) -> list[str]:
    """What it was started with; empty when it has ended or is not ours to look at."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def signal_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a process group, if there still is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """`kill -9` of each that still runs; never of another that got the number of one."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def kill(pid: int) -> None:
    """`kill -9` of a process, unless it has just ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).kill()


def suspend(pid: int) -> None:
    """SIGSTOP of a process, unless it has just ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).suspend()


def ignoring_ctrl_c() -> None:
    """What a shell does in the background jobs of a script, before it runs them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def service(
    name: str, config: Path, log: Path, *, supervised: bool = False
) -> Iterator["subprocess.Popen[bytes]"]:
    """A running service of an environment in a group of its own, killed with all it started.

    Where it is supervised it ends when its standard input does; otherwise it has none.
    """
    command = [sys.executable, "-m", "streams.app.main", name, "--config", str(config)]
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [*command, "--supervised"] if supervised else command,
            stdin=subprocess.PIPE if supervised else subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            everything = family(process.pid)
            signal_group(process.pid, signal.SIGKILL)
            settled(everything)


def settled(processes: Iterable[psutil.Process], timeout_s: float = 60) -> None:
    """Wait until none of them runs."""
    running = list(processes)
    eventually(lambda: not any(_runs(process) for process in running), timeout_s)


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def eventually(condition: Callable[[], bool], timeout_s: float = 180) -> None:
    """Wait until it comes true."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"it did not come true in {timeout_s:.0f} s"
        time.sleep(0.02)


TRACE = re.compile(r"^\s+at |^Traceback|^Caused by|^  File ")
"""A line of a stack trace, of Python or Java."""
FAILURE = re.compile(r"Exception|Error\b| ERROR |leaked")


def traces(text: str) -> list[str]:
    """The lines of stack traces."""
    return [line for line in text.splitlines() if TRACE.search(line)]


def expect_no_trace(log: Path) -> None:
    """A clean run leaves no stack traces and no errors."""
    text = log.read_text()
    failures = [line for line in text.splitlines() if FAILURE.search(line)]
    assert not [*traces(text), *failures], text
