"""Processes that a fork server starts: they are there at once, and share its imports.

The server (`streams.app.fork_server`) has imported what the services of an environment need,
and has no thread of Python's and no client. It is asked over a Unix socket, with the command
and the files of the process. Its answers are two lines: the process's id, and the exit code.
The other half of that connection is the process's life line: the server kills a process whose
connection ends, and its id is not used again before that.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Protocol

ANSWER_S = 60.0
"""How long to wait for an answer: the server may still import."""

_SIZE = 4


class Process(Protocol):
    """What callers use of a process, one of `subprocess.Popen` or a `Forked`."""

    stdin: "IO[bytes] | None"
    stdout: "IO[bytes] | None"

    @property
    def pid(self) -> int:
        """Its id."""
        ...

    def poll(self) -> int | None:
        """The exit code, or minus the signal; None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Errors: subprocess.TimeoutExpired."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""
        ...

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        ...


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """What a forked process is to be: a Python with `-m module arguments...`.

    `environment` is added to the server's. With `is_safe`, Python's `-P`, the directory is not
    among those of which modules are imported.
    """

    module: str
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    is_safe: bool


class Forked:
    """A process that the server at `address` has forked. Any thread may use it.

    `command` is a Python with `-m MODULE ARGUMENTS...`. `files` become its descriptors 0, 1, 2
    and so on; `stdin` and `stdout` are our ends of pipes among them.

    Errors: OSError when the server is not there, or forks no more.
    """

    def __init__(
        self,
        address: Path,
        command: Sequence[str],
        files: Sequence[int],
        environment: Mapping[str, str] | None = None,
        stdin: "IO[bytes] | None" = None,
        stdout: "IO[bytes] | None" = None,
    ) -> None:
        self.stdin, self.stdout = stdin, stdout
        self.command = list(command)
        self._code: int | None = None
        self._lock = threading.Lock()
        self._connection = socket.socket(socket.AF_UNIX)
        try:
            self._connection.settimeout(ANSWER_S)
            self._connection.connect(str(address))
            self._request(files, environment)
            self._pid = int(self._line() or _gone())
            self._connection.settimeout(None)
        except BaseException:
            self._connection.close()
            raise

    def _request(self, files: Sequence[int], environment: Mapping[str, str] | None) -> None:
        module, *arguments = self.command[self.command.index("-m") + 1 :]
        is_safe = "-P" in self.command or sys.flags.safe_path
        added = dict(environment or {})
        request = ForkRequest(module, arguments, added, str(Path.cwd()), is_safe)
        body = json.dumps(asdict(request)).encode()
        socket.send_fds(self._connection, [len(body).to_bytes(_SIZE, "big")], files)
        self._connection.sendall(body)

    def __del__(self) -> None:
        # not before: another thread may wait for it
        self._connection.close()

    @property
    def pid(self) -> int:
        """Its id."""
        return self._pid

    def poll(self) -> int | None:
        """The exit code, or minus the signal; None while it runs."""
        with self._lock:
            if self._code is None and _is_readable(self._connection, 0):
                # without an answer the server has gone, and with it its children
                self._code = int(self._line() or -signal.SIGKILL)
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)  # its id may be used again
            return self._code

    def _line(self) -> bytes:
        """The next line of the server's, and nothing of the one after it."""
        line = b""
        with suppress(ConnectionResetError):
            while (byte := self._connection.recv(1)) not in {b"", b"\n"}:
                line += byte
        return line

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Errors: subprocess.TimeoutExpired."""
        if self.poll() is None and not _is_readable(self._connection, timeout):
            raise subprocess.TimeoutExpired(self.command, timeout or 0)
        code = self.poll()
        assert code is not None, "there is an answer, or the server has gone"
        return code

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with self._lock, suppress(ProcessLookupError):
                if self._code is None:
                    os.kill(self._pid, number)


def requested(connection: socket.socket) -> tuple[ForkRequest, list[int]]:
    """The request that comes over a connection, and its files; for the server.

    Errors: OSError, ValueError when none comes.
    """
    size, files, _, _ = socket.recv_fds(connection, _SIZE, 16)
    with connection.makefile("rb") as reader:
        document = json.loads(reader.read(int.from_bytes(size, "big")))
    return ForkRequest(**document), files


def _is_readable(connection: socket.socket, timeout_s: float | None) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else max(timeout_s, 0) * 1000))


def _gone() -> bytes:
    raise ConnectionResetError("the fork server ended before it answered")
