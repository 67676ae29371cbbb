"""Crash injection for tests: the n-th hit of a named point kills the replica.

The points, in the order of a micro-batch:

    after-state     in a task: a round's state is in run files, not yet reported
    before-chunks   in a task: its output is computed but not written
    after-chunks    in the driver: between the chunks and the Append, or the Stage
    between-waves   in the driver: some Appends were read back and others await them
    after-append    in the driver: all were read back, and Spark has not committed
    before-record   in the driver: before a checkpoint record is written

SIGKILL goes to the driver's process group, with the JVM in it, and to the group of the task's
process: there is no clean-up. A point followed by `@worker` kills only the process of the task,
like the kernel's OOM killer; one followed by `@executor` kills the JVM that started the task's
Python by the zygote: an executor of `local-cluster[...]`.
"""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streams.replica.zygote_client import starter

ALONE = "@worker"
EXECUTOR = "@executor"


@dataclass(frozen=True, slots=True)
class Crash:
    """Crash points with the hit count that kills; `group` is the driver's process group."""

    points: Mapping[str, int] = field(default_factory=dict)
    directory: Path = Path()
    group: int = 0

    def __call__(self, point: str) -> None:
        """Hit a point. Counts over all processes, by a file's length."""
        if self._is_its_turn(f"{point}{ALONE}"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._is_its_turn(f"{point}{EXECUTOR}"):
            os.kill(starter(), signal.SIGKILL)
        if self._is_its_turn(point):
            self._kill()

    def _is_its_turn(self, named: str) -> bool:
        if named not in self.points:
            return False
        with (self.directory / f"crash-{named}").open("ab", buffering=0) as counter:
            counter.write(b".")
            return counter.tell() == self.points[named]

    def _kill(self) -> None:
        own = os.getpgrp()
        os.killpg(self.group, signal.SIGKILL)
        os.killpg(own, signal.SIGKILL)
