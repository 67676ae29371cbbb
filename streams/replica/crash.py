"""Dying on purpose, for tests: the n-th time a named point is reached, everything is killed.

The points, in the order of a micro-batch:

    after-state     in a task: a round's state is in run files, and nobody was told
    before-chunks   in a task: its output is computed but not written
    after-chunks    in the driver: between the chunks and the Append, or the Stage
    between-waves   in the driver: some Appends were read back and others await them
    after-append    in the driver: all were read back, and Spark has not committed
    before-record   in the driver: before a checkpoint record is written

What dies is the driver's process group, with the JVM in it, and the group of the task's
process, by SIGKILL: nobody cleans up anything. A point followed by `@worker` kills the process
of the task alone, as the kernel would that ran out of memory; one followed by `@executor` kills
the JVM that started the task's Python by the nursery: an executor of `local-cluster[...]`.
"""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streams.replica.launcher import starter

ALONE = "@worker"
EXECUTOR = "@executor"


@dataclass(frozen=True, slots=True)
class Crash:
    """Which points kill, and at the how manieth time; `group` is the driver's process group."""

    points: Mapping[str, int] = field(default_factory=dict)
    directory: Path = Path()
    group: int = 0

    def __call__(self, point: str) -> None:
        """Say that a point is reached. Counts over all processes, by a file's length."""
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
