"""Dying on purpose, for tests: the n-th time a named point is reached, everything is killed.

The points: `before-chunks` (in a task, its output computed but not written), `after-chunks`
(in the driver, between the chunks and the Append), `between-waves` (in the driver, when some
Appends of a micro-batch were read back and others await them), `after-append` (in the driver,
after the Append was read back and before Spark's commit). What dies is the driver's process
group, with the JVM in it, and the group of the task's process, by SIGKILL: nobody cleans up
anything.
"""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Crash:
    """Which points kill, and at the how manieth time; `group` is the driver's process group."""

    points: Mapping[str, int] = field(default_factory=dict)
    directory: Path = Path()
    group: int = 0

    def __call__(self, point: str) -> None:
        """Say that a point is reached. Counts over all processes, by a file's length."""
        if point not in self.points:
            return
        with (self.directory / f"crash-{point}").open("ab", buffering=0) as counter:
            counter.write(b".")
            if counter.tell() == self.points[point]:
                self._kill()

    def _kill(self) -> None:
        own = os.getpgrp()
        os.killpg(self.group, signal.SIGKILL)
        os.killpg(own, signal.SIGKILL)
