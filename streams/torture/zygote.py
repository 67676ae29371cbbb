"""Forks workers from a loaded process, without the seconds that a new interpreter needs.

The zygote has imported everything and has no thread and no connection. It forks a worker for
each plan, and kills one on request. It reaps only whom it killed, so that a number
never comes to mean another process.

    start PATH    ->  the worker's process id
    kill PID      ->  the same, when it is dead

Killed itself, or when its input ends, it takes all workers with it (Linux).
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from streams.app.die_with_parent import die_with_parent, guarded
from streams.torture.worker import load, run


class Zygote:
    """The zygote, from the other side. A context manager."""

    def __init__(self, log_file: Path) -> None:
        self._log_file = log_file

    def __enter__(self) -> Self:
        with self._log_file.open("ab") as said:
            self._process = subprocess.Popen(  # noqa: S603  our own command, no shell
                guarded([sys.executable, "-m", __name__]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def start(self, plan: Path) -> int:
        """A worker that carries out the plan; its process id."""
        return self._ask(f"start {plan}")

    def kill(self, pid: int) -> None:
        """`kill -9`; it is dead when this returns."""
        self._ask(f"kill {pid}")

    def _ask(self, command: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def born(plan: Path) -> int:
    """Fork a worker."""
    parent, pid = os.getpid(), os.fork()
    if pid:
        return pid
    die_with_parent()
    if os.getppid() != parent:  # it died before the kernel knew what to do then
        os._exit(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    run(load(plan))
    os._exit(1)


def killed(pid: int) -> int:
    """Kill a worker and reap it."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return pid


def main() -> None:
    """Do as the lines say."""
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        print(born(Path(argument)) if command == "start" else killed(int(argument)), flush=True)  # noqa: T201  the answer


if __name__ == "__main__":
    main()
