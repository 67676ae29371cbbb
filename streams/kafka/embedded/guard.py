"""Runs a command and kills it when the parent process is gone, however that ended.

A process killed by signal 9 can run no handler, so another process has to notice: this program
waits on a pipe whose other end only the parent holds. End of file, or another parent process,
means that the parent is gone. Should the guard itself be killed, Linux kills the command.

The guard also holds the directory's lock for as long as the command lives: two brokers never
share one directory, and a new one waits until the old one has closed its files.

Run by path in an isolated interpreter (`python -I -S guard.py LOCK COMMAND...`): standard
library only, one thread, a few megabytes. The parent itself cannot set the death signal: Linux
ties it to the *thread* that forked.
"""

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

LOCKED = 75
"""Exit code: another process holds the directory."""

_LOCK_WAIT_S = 20.0
_GRACE_S = 10.0
_LOOK_EVERY_S = 0.25
_PR_SET_PDEATHSIG = 1


def _die_with_guard() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _take(lock: IO[str]) -> bool:
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_EVERY_S)


def _parent_is_gone(parent: int) -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], _LOOK_EVERY_S)
    return bool(readable) or os.getppid() != parent


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def main(arguments: Sequence[str]) -> int:
    """Guard `arguments[1:]` under the lock `arguments[0]`. Returns the command's exit code."""
    parent = os.getppid()
    with Path(arguments[0]).open("a", encoding="utf-8") as lock:
        if not _take(lock):
            return LOCKED
        child = subprocess.Popen(  # noqa: S603 -- the command is our parent's
            arguments[1:],
            stdin=subprocess.DEVNULL,
            preexec_fn=_die_with_guard,  # noqa: PLW1509 -- one thread, so fork is safe here
        )
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        while child.poll() is None:
            if _parent_is_gone(parent):
                _end(child)
        return child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
