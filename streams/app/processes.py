"""Child processes that never outlive their parent, and are restarted when they die.

Each child leads a process group of its own, so that what it starts (a JVM, its workers) goes
with it. The kernel kills a child when its parent dies, however it dies (Linux); elsewhere a
child that is told to (`end_with_input`) notices the end of its standard input.
"""

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streams.app.die_with_parent import guarded
from streams.app.restart_policy import (
    FIRST_PAUSE_S,
    STABLE_S,
    End,
    Ends,
    Excuse,
    last_error,
    none,
)
from streams.forks import Forked, Process

log = logging.getLogger(__name__)

_PATIENCE_S = 20.0
_READ_AT_MOST = 1 << 18
"""Bytes of a log in which the last error is looked for."""


@dataclass(slots=True)
class Child:
    """A supervised process: `start` keeps it running until `stop`.

    It is not started again, and `is_over` is true, after an exit code in `final`, and after it
    has ended in the same way too often (`streams.app.restart_policy`): then `reason` says in
    which. While `excuse` names another cause, its supervisor keeps restarting it. After
    `stable_s` seconds it has not ended soon after its start. With a `fork_server`, at that
    address, it is forked, and started by itself where that has ended.
    """

    name: str
    command: Sequence[str]
    log_file: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    final: frozenset[int] = frozenset()
    excuse: Excuse = none
    stable_s: float = STABLE_S
    fork_server: Path | None = None
    starts: int = 0
    is_over: bool = False
    reason: str = ""
    _is_wanted: bool = False
    """Whether the next end is one that `kill` brought about."""
    _process: Process | None = None
    _spawning: threading.Lock = field(default_factory=threading.Lock)
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
        with self._spawning:  # it runs before `Popen` has returned
            process = self._process
        if process is not None:
            self._is_wanted = True
            kill_group(process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """End it for good: first politely, then not.

        Only the process itself is asked to end: it ends what it has started in its own order.
        """
        self._stopping.set()
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_S)
            kill_group(self._process.pid, signal.SIGKILL)
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)

    def _supervise(self, started: threading.Event) -> None:
        # the parent-death signal follows this thread, which lives as long as the process does
        ends = Ends(self.stable_s)
        while not self._stopping.is_set():
            end = self._run_once(started)
            if self._stopping.is_set():
                return
            pause_s, self._is_wanted = self._pause_after(end, ends), False
            if self.is_over:
                return
            self._stopping.wait(pause_s)

    def _run_once(self, started: threading.Event) -> End:
        """Start the process and wait until it ends, and its group with it."""
        began = time.monotonic()
        written = self.log_file.stat().st_size if self.log_file.exists() else 0
        try:
            with self._spawning:
                process = self._process = self._spawn()
        except OSError as cause:  # no room for its log, or none for one process more
            return End(1, str(cause), 0)
        finally:
            self.starts += 1
            started.set()
        if self._stopping.is_set():  # `stop` may have looked before it was there
            kill_group(process.pid, signal.SIGKILL)
        code = process.wait()
        kill_group(process.pid, signal.SIGKILL)
        if process.stdin is not None:
            process.stdin.close()
        return End(code, last_error(self._said_since(written)), time.monotonic() - began)

    def _pause_after(self, end: End, ends: Ends) -> float:
        """Say how it ended, and decide what comes of it; the seconds until the next start."""
        said = f"{self.name} {end} (log: {self.log_file})"
        if end.code in self.final:
            log.error("%s", said)
            self.is_over = True
        elif self._is_wanted:
            return FIRST_PAUSE_S
        elif ends.is_last(end, self.excuse):
            self.reason = f"{said}, {ends.alike} times in a row; giving up"
            self.is_over = True
        else:
            log.warning("%s; %s", said, ends.outlook)
        return ends.pause_s

    def _said_since(self, written: int) -> str:
        """The output since this offset of its log, only the last part if it is long."""
        try:
            with self.log_file.open("rb") as file:
                file.seek(max(written, file.seek(0, os.SEEK_END) - _READ_AT_MOST))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def _spawn(self) -> Process:
        return spawn(self.command, self.log_file, self.environment, self.fork_server)


def spawn(
    command: Sequence[str],
    log_file: Path,
    environment: Mapping[str, str] | None = None,
    fork_server: Path | None = None,
) -> Process:
    """Start a process in a group of its own, which appends to a log and ends with this one.

    `environment` is added to ours. Where the fork server at the address has ended, it is
    started by itself. Errors: OSError.
    """
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as out:
        if fork_server is not None:
            with contextlib.suppress(OSError):
                return _forked(fork_server, command, out.fileno(), environment)
        return subprocess.Popen(  # noqa: S603  our own command, no shell
            guarded(command),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )


def _forked(
    server: Path, command: Sequence[str], out: int, environment: Mapping[str, str] | None
) -> Forked:
    """Have the server fork it. Errors: OSError."""
    reading, writing = os.pipe()
    stdin = os.fdopen(writing, "wb", buffering=0)
    try:
        return Forked(server, command, (reading, out, out), environment, stdin)
    except OSError as cause:
        stdin.close()
        log.warning(
            "a process cannot be forked, and is started by itself",
            extra={"command": " ".join(command), "cause": str(cause)},
        )
        raise
    finally:
        os.close(reading)


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
