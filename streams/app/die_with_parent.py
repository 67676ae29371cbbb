"""Runs a command that the kernel kills when its parent dies, however it dies (Linux).

Run by path in an isolated interpreter (`python -I -S die_with_parent.py PARENT COMMAND...`),
which becomes the command. A `preexec_fn` would be shorter, but it runs in a fork of a process
with threads: a lock that another thread held at that moment stays locked there, and neither
child nor parent goes on. Without it Python starts the child by vfork, and nothing of ours runs
in between.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

_PR_SET_PDEATHSIG = 1


def guarded(command: Sequence[str]) -> list[str]:
    """Return the command that is killed when the thread that starts it is gone."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that made it is gone (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: Sequence[str]) -> NoReturn:
    """Become the command `arguments[1:]`, if the parent `arguments[0]` is still there."""
    parent, *command = arguments
    die_with_parent()
    if os.getppid() != int(parent):  # it died before the kernel knew what to do then
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606 -- the command is our parent's, and no shell's


if __name__ == "__main__":
    main(sys.argv[1:])
