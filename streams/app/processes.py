"""Child processes that never outlive their parent, and come back when they die.

Each child leads a process group of its own, so that what it starts (a JVM, its workers) goes
with it. The kernel kills a child when its parent dies, however it dies (Linux); elsewhere the
child notices the end of its standard input.
"""

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _STABLE_S = 0.2, 10.0, 30.0
_PATIENCE_S = 10.0


@dataclass(slots=True)
class Child:
    """A supervised process: `start` keeps it running until `stop`.

    After an exit code in `final` it is not started again, for it would only end again, and
    `is_over` is true.
    """

    name: str
    command: Sequence[str]
    log_file: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    final: frozenset[int] = frozenset()
    starts: int = 0
    is_over: bool = False
    _process: "subprocess.Popen[bytes] | None" = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start it, and again whenever it ends."""
        self._stopping.clear()
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._supervise, args=(started,), name=f"supervise-{self.name}", daemon=True
        )
        self._thread.start()
        started.wait()

    @property
    def pid(self) -> int | None:
        """The process's id while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def kill(self) -> None:
        """`kill -9` of its whole group: it is started again."""
        if self._process is not None:
            kill_group(self._process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """End it for good: first politely, then not."""
        self._stopping.set()
        if self._process is not None:
            kill_group(self._process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_S)
            kill_group(self._process.pid, signal.SIGKILL)
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)

    def _supervise(self, started: threading.Event) -> None:
        # the parent-death signal follows this thread, which lives as long as the process does
        pause_s = _FIRST_PAUSE_S
        while not self._stopping.is_set():
            began = time.monotonic()
            self._process = self._spawn()
            self.starts += 1
            started.set()
            if self._stopping.is_set():  # `stop` may have looked before it was there
                kill_group(self._process.pid, signal.SIGKILL)
            code = self._process.wait()
            kill_group(self._process.pid, signal.SIGKILL)
            if self._process.stdin is not None:
                self._process.stdin.close()
            if self._stopping.is_set():
                return
            if code in self.final:
                log.error(
                    "a process ended for good",
                    extra={"service": self.name, "code": code, "log": str(self.log_file)},
                )
                self.is_over = True
                return
            lasted_s = time.monotonic() - began
            pause_s = _FIRST_PAUSE_S if lasted_s > _STABLE_S else pause_s
            log.warning(
                "a process ended and is started again",
                extra={"service": self.name, "code": code, "log": str(self.log_file)},
            )
            self._stopping.wait(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as out:
            return subprocess.Popen(  # noqa: S603  our own command, no shell
                list(self.command),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                start_new_session=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509  one call of the C library, made before exec
            )


def kill_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a process group, if it still exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def end_with_input() -> None:
    """End this process, and its group, when its standard input ends: its parent is gone."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1024):
                pass
        kill_group(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that made it is gone (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
