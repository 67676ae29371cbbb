"""Replicas as processes with Spark, which are killed, stopped, resumed, added and replaced."""

import itertools
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from streams.app.processes import Child, kill_group
from streams.app.restart_policy import SPARK_STABLE_S
from streams.app.service_config import RESIDENT_TASKS, Service

PROGRAM = (sys.executable, "-m", "streams.app.main")
MEMORY = "512m"


@dataclass(slots=True)
class Replicas:
    """The replicas of an instance, by name. Each has a state directory under `directory`.

    Copies may be written below `exports`. `program` is the command line that serves as
    `slackwater` does.
    """

    bootstrap: str
    namespace: str
    directory: Path
    exports: Path
    program: Sequence[str] = PROGRAM
    figures: Counter[str] = field(default_factory=Counter)
    children: dict[str, Child] = field(default_factory=dict)
    stopped: dict[str, tuple[int, float]] = field(default_factory=dict)
    """The process group of each that was stopped, and when it is resumed."""
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _leaving: list[threading.Thread] = field(default_factory=list)

    def add(self) -> str:
        """Start one more, and return its name."""
        name = f"r{next(self._numbers)}"
        config = self.directory / f"{name}.json"
        service = Service(
            bootstrap=self.bootstrap,
            directory=str(self.directory / name),
            namespace=self.namespace,
            replica=name,
            resident_tasks=RESIDENT_TASKS,
            driver_memory=MEMORY,
            copy_to=[self.exports.as_uri()],
        )
        service.write(config)
        child = self.children[name] = Child(
            name,
            (*self.program, "replica", "--config", str(config), "--supervised"),
            self.directory / f"{name}.log",
            {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
            stable_s=SPARK_STABLE_S,
        )
        child.start()
        return name

    def kill(self, name: str) -> None:
        """`kill -9`: its supervisor starts another process with its state."""
        self.resume(name)
        self.children[name].kill()
        self.figures["replicas killed"] += 1

    def stop(self, name: str, seconds: float) -> None:
        """SIGSTOP of everything it runs; `tend` resumes it after so long."""
        pid = self.children[name].pid
        if pid is None or name in self.stopped:
            return
        kill_group(pid, signal.SIGSTOP)
        self.stopped[name] = pid, time.monotonic() + seconds
        self.figures["replicas stopped"] += 1

    def resume(self, name: str) -> None:
        """SIGCONT, if it is stopped."""
        pid, _ = self.stopped.pop(name, (0, 0.0))
        if pid:
            kill_group(pid, signal.SIGCONT)
            self.figures["replicas resumed"] += 1

    def replace(self, name: str) -> None:
        """Another one joins, and this one leaves while the other one starts."""
        self.add()
        self.resume(name)
        leaving = threading.Thread(target=self.children.pop(name).stop, name=f"stop {name}")
        leaving.start()
        self._leaving.append(leaving)
        self.figures["replicas replaced"] += 1

    def tend(self) -> None:
        """Resume those that were stopped for long enough."""
        for name, (_, until) in list(self.stopped.items()):
            if time.monotonic() > until:
                self.resume(name)

    def calm(self) -> None:
        """Resume all."""
        for name in list(self.stopped):
            self.resume(name)

    def wrong(self) -> Sequence[str]:
        """Why some were given up."""
        return [child.reason for child in self.children.values() if child.reason]

    def close(self) -> None:
        """End all."""
        self.calm()
        with ExitStack() as stack:
            for thread in self._leaving:
                stack.callback(thread.join)
            for child in self.children.values():
                stack.callback(child.stop)
