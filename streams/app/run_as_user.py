"""Runs a command as another user: of root, for programs that refuse to run as root.

Run by path in an isolated interpreter (`python -I -S run_as_user.py UID GID COMMAND...`),
between a guard (`streams.kafka.embedded.guard`) and the command. Linux forgets the death
signal, which the guard has set, when the user changes: it is set again here.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> NoReturn:
    """Become the user `arguments[0]` of the group `arguments[1]`, then the command."""
    uid, gid, *command = arguments
    os.setgroups([])
    os.setgid(int(gid))
    os.setuid(int(uid))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.execv(command[0], command)  # noqa: S606 -- the command is our parent's, and no shell's


if __name__ == "__main__":
    main(sys.argv[1:])
