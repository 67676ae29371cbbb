"""The fork server of an environment: imports once, and forks its services and their workers.

    python -P -m streams.app.fork_server FILENO

FILENO is a listening socket, on which `streams.forks` asks. Each process that it forks is one
of its own: it is killed and started again alone. What they share is the memory of the imports,
and the seconds these take.

A fork copies one thread and every lock, so no module that is imported here may start a thread
of Python's, open a client or hold a lock; the threads of NumPy's and Arrow's allocators and
kernels expect forks. It exits when its standard input ends, and its children with it: by the
kernel, as when it is killed.
"""

import ctypes
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from streams.app import signals
from streams.app.die_with_parent import die_with_parent, guarded
from streams.arrow_without_pandas import without_pandas
from streams.forks import ForkRequest, requested
from streams.temporary import temporary_directory

PRELOADED = (
    "streams.app.services",
    "streams.app.coordinator",
    "streams.app.compaction",
    "streams.app.storage",
    "streams.app.materialize.service",
    "streams.adapter.workers.main",
)

INPUT = 0
BACKLOG = 64
REQUEST_S = 10.0
NAME_ROOM = 512
"""Bytes for the command lines of forked processes, as lists of processes show them."""


@contextmanager
def fork_server(log_file: Path) -> Iterator[Path | None]:
    """Run a fork server; yield the path of its socket, or None where there is none (Linux).

    It imports meanwhile: requests wait for that. One that ends is not started again: who asks
    it gets an OSError, and starts a process by itself.
    """
    if sys.platform != "linux":
        yield None
        return
    with temporary_directory("slackwater-forks-") as short:  # for a socket's hundred bytes
        address = short / "door"
        with _started(address, log_file) as process:
            try:
                yield address
            finally:
                process.kill()


def _started(address: Path, log_file: Path) -> "subprocess.Popen[bytes]":
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as door, log_file.open("ab") as out:
        door.bind(str(address))
        door.listen(BACKLOG)
        program = [sys.executable, "-P", "-m", "streams.app.fork_server", str(door.fileno())]
        return subprocess.Popen(  # noqa: S603  our own command, no shell
            guarded([*program, " " * NAME_ROOM]),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[door.fileno()],
        )


class _Server:
    """Forks for each request, and reports the ends of the children to who asked for them."""

    def __init__(self, door: socket.socket) -> None:
        self._door = door
        self._connections: dict[int, socket.socket] = {}
        """That of each child, by the child's id, until it is reaped."""
        self._reported: set[int] = set()
        """Children that have ended, and who asked for them was told so."""
        self._woken, waking = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(waking, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # else it would wake nobody
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve until standard input ends."""
        while INPUT not in (ready := self._ready()):
            with suppress(BlockingIOError):
                os.read(self._woken, 1 << 10)
            for pid in list(self._connections):
                self._look_after(pid, ready)
            if self._door.fileno() in ready:
                self._answer()

    def _ready(self) -> set[int]:
        poll = select.poll()
        watched = [connection.fileno() for connection in self._connections.values()]
        for number in (INPUT, self._woken, self._door.fileno(), *watched):
            poll.register(number, select.POLLIN)
        return {number for number, _ in poll.poll()}

    def _look_after(self, pid: int, ready: set[int]) -> None:
        """Report a child's end; it keeps its id until who asked for it has seen that."""
        connection = self._connections[pid]
        is_left = connection.fileno() in ready
        if is_left:
            os.kill(pid, signal.SIGKILL)  # it may have ended, but is not reaped
        how = os.WEXITED | os.WNOWAIT | (0 if is_left else os.WNOHANG)
        ended = os.waitid(os.P_PID, pid, how)
        if is_left:
            os.waitpid(pid, 0)
            self._reported.discard(pid)
            self._connections.pop(pid).close()
        elif ended is not None and pid not in self._reported:
            self._reported.add(pid)
            self._report(ended, connection)

    @staticmethod
    def _report(ended: "os.waitid_result", connection: socket.socket) -> None:
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        with suppress(OSError):
            connection.sendall(b"%d\n" % code)

    def _answer(self) -> None:
        """Fork for the next request; the child never returns."""
        connection, _ = self._door.accept()
        connection.settimeout(REQUEST_S)
        try:
            request, files = requested(connection)
        except (OSError, ValueError, TypeError):  # who asked has gone
            connection.close()
            return
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            _become(request, files, parent)
        for number in files:
            os.close(number)
        with suppress(OSError):
            os.setpgid(pid, pid)  # before anybody knows its id, and kills its group
            self._connections[pid] = connection
            connection.sendall(b"%d\n" % pid)


def _become(request: ForkRequest, files: Sequence[int], parent: int) -> NoReturn:
    """Become the requested process."""
    code = 1
    try:
        _detach(files, parent)
        os.environ.update(request.environment)
        os.chdir(request.directory)
        if not request.is_safe:
            sys.path.insert(0, request.directory)  # as Python does for `-m`
        _rename([sys.executable, "-m", request.module, *request.arguments])
        sys.argv = [request.module, *request.arguments]
        runpy.run_module(request.module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  as the interpreter does at its end
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)


def _detach(files: Sequence[int], parent: int) -> None:
    """Keep nothing of the server but its memory."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(OSError):
        os.setpgid(0, 0)
    die_with_parent()
    if os.getppid() != parent:  # it died before the kernel knew what to do then
        os._exit(1)
    for number, file in enumerate(files):  # they came in the order of their numbers
        os.dup2(file, number)
    # not all numbers up to the limit, which may be 2**30
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number >= len(files):
            with suppress(OSError):
                os.close(number)
    signals.stopping.renew()


def _rename(command: Sequence[str]) -> None:
    """Show this command line in lists of processes, cut where there is no room.

    The kernel reads it from this process's own memory, where it was put at the start.
    """
    with suppress(OSError, ValueError, IndexError):
        now = Path("/proc/self/cmdline").read_bytes()
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        if end - start == len(now) > 0 and ctypes.string_at(start, len(now)) == now:
            shown = "\0".join(command).encode()[: len(now) - 1]
            ctypes.memmove(start, shown.ljust(len(now), b"\0"), len(now))


def main() -> None:
    """Import, and serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the environment
    gc.disable()  # the imports leave no garbage worth the collector's time
    without_pandas()
    for name in PRELOADED:
        importlib.import_module(name)
    gc.enable()
    if threading.active_count() > 1:
        sys.exit("error: a module that is imported has started a thread")
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as door:
        _Server(door).serve()
    os._exit(0)  # to take the interpreter apart makes native libraries report leaks


if __name__ == "__main__":
    main()
