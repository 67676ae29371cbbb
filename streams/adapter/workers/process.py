"""A worker process, as the coordinator uses it: one request at a time.

It is no fork of this process, which has threads of DuckDB and of Kafka: a fork server has none
(`streams.forks`), and where there is no such server a new Python is started.
"""

import logging
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from streams.adapter.workers.fair_semaphore import BEAT_S, Beats
from streams.adapter.workers.framing import (
    DATA,
    END,
    LARGEST,
    REQUEST,
    TABLE,
    Garbled,
    receive,
    send,
)
from streams.adapter.workers.limits import HINT, WORKING, Limits, too_much_disk
from streams.adapter.workers.main import OUT_OF_MEMORY, START_LOG
from streams.adapter.workers.requests import Ended, Request, encoded
from streams.errors import InvalidStatement
from streams.forks import Forked, Process
from streams.log_lines import LogFormat
from streams.temporary import temporary_directory

log = logging.getLogger(__name__)

PREFIX = "slackwater-worker-"

START_S = 180.0
"""How long a worker may take to start. It takes a second, and minutes on a machine so busy that
the next one would take as long."""

_NAMES_AN_ERROR = re.compile(r"(Error|Exception)\b")

ERRORS = 3
"""The descriptor of a forked worker for errors, behind the standard ones."""

_BLOCK = 512
"""Bytes of a block, as a file's status counts them."""


class WorkerLost(InvalidStatement):
    """A statement killed its worker, which took too much or too long, or failed."""


class Unstarted(InvalidStatement):
    """No worker can be started for a statement, through no fault of its own."""


def unstarted(why: str) -> Unstarted:
    """Return the error of a statement for which no worker can be started."""
    return Unstarted(
        "the query was not begun: no process for it can be started",
        why,
        "try again; the coordinator's log has what the process wrote",
    )


class Worker:
    """One process. It is fit until a request of it did not complete."""

    def __init__(
        self,
        limits: Limits,
        directory: Path | None = None,
        log_format: LogFormat = "text",
        fork_server: Path | None = None,
    ) -> None:
        """Begin to start it. Errors: Unstarted."""
        self._limits, self._log_format = limits, log_format
        self._fit = self._is_ready = False
        self._why: InvalidStatement | None = None
        self._looked = 0.0
        self._stack = ExitStack()
        try:
            directory_ = self._stack.enter_context(temporary_directory(PREFIX, directory))
            self._directory = str(directory_)
            self._process = self._started(fork_server)
        except OSError as error:
            self._stack.close()
            raise unstarted(f"{type(error).__name__}: {error}") from error

    def _started(self, fork_server: Path | None) -> Process:
        """The process, which writes to a file of its own until it has started."""
        with (Path(self._directory) / START_LOG).open("wb") as writer:
            if fork_server is not None:
                with suppress(OSError):  # it has ended
                    return self._forked(fork_server, writer.fileno())
            return self._spawned(writer)

    def _spawned(self, writer: BinaryIO) -> Process:
        ours = os.dup(2)
        try:
            return subprocess.Popen(  # noqa: S603  our own command, no shell
                self._command(ours),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=writer,
                bufsize=0,
                pass_fds=(ours,),
            )
        finally:
            os.close(ours)

    def _forked(self, server: Path, writer: int) -> Process:
        """Have the server fork it. Errors: OSError."""
        requests, asking = os.pipe()
        taking, answers = os.pipe()
        stdin = os.fdopen(asking, "wb", buffering=0)
        stdout = os.fdopen(taking, "rb", buffering=0)
        files = (requests, answers, writer, 2)
        try:
            return Forked(server, self._command(ERRORS), files, stdin=stdin, stdout=stdout)
        except OSError:
            stdin.close()
            stdout.close()
            raise
        finally:
            os.close(requests)
            os.close(answers)

    def _command(self, errors: int) -> list[str]:
        """The command of a worker that writes errors to this descriptor once it has started."""
        return [
            *(sys.executable, "-P", "-m", "streams.adapter.workers"),
            *(self._limits.encoded(), self._directory, str(errors), self._log_format),
        ]

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def is_fit(self) -> bool:
        """Whether it accepts a request, now or when it has started."""
        is_meant = self._fit or not self._is_ready
        return is_meant and self._why is None and self._process.poll() is None

    def ready(self) -> Beats:
        """Wait until it has started. Errors: Unstarted."""
        if not self._is_ready:
            late = unstarted(f"it did not start within {START_S:g} s")
            yield from self._timed(START_S, late, self._ended(bytes))
            self._is_ready = self._fit = True

    def ask(
        self,
        request: Request,
        tables: Sequence[pa.Table] = (),
        take: Callable[[bytes], object] = bytes,
    ) -> Generator[None, None, Ended]:
        """Have a request answered: `take` gets the data, piece by piece.

        The answer holds nothing of a statement that failed: `take` may have been called.
        Errors: InvalidStatement, WorkerLost; RuntimeError for an internal error.
        """
        self._fit = False
        conversation = self._conversation(request, tables, take)
        late = WorkerLost(
            "the query takes too long",
            f"expected it to take at most {self._limits.seconds:g} s",
            HINT,
        )
        ended = yield from self._timed(self._limits.seconds, late, conversation)
        self._fit = not ended.spent
        if ended.refused is not None:
            raise InvalidStatement(*ended.refused)
        if ended.defect:
            raise RuntimeError(ended.defect)
        return ended

    def _timed(
        self, seconds: float, late: InvalidStatement, work: Generator[None, None, Ended]
    ) -> Generator[None, None, Ended]:
        """Do the work, and end the process when it takes longer."""
        timer = threading.Timer(seconds, self._end, [late])
        timer.daemon = True
        timer.start()
        try:
            return (yield from work)
        except (Garbled, BrokenPipeError, ConnectionResetError) as cause:
            raise self._lost() from cause
        finally:
            timer.cancel()

    def _conversation(
        self, request: Request, tables: Sequence[pa.Table], take: Callable[[bytes], object]
    ) -> Generator[None, None, Ended]:
        stdin = self._process.stdin
        assert stdin is not None, "it was made with pipes"
        send(stdin, REQUEST, encoded(request, len(tables)))
        for table in tables:
            send(stdin, TABLE, _streamed(table))
        return (yield from self._ended(take))

    def _ended(self, take: Callable[[bytes], object]) -> Generator[None, None, Ended]:
        """Take what comes until an END."""
        taken = self._process.stdout
        assert taken is not None, "it was made with pipes"
        poll = select.poll()
        poll.register(taken, select.POLLIN)
        while True:
            while not poll.poll(BEAT_S * 1000):
                self._look_at_disk()
                yield
            self._look_at_disk()
            match receive(taken, LARGEST):
                case (kind, body) if kind == DATA:
                    take(body)
                case (kind, body) if kind == END:
                    return Ended.decoded(body)
                case _:
                    raise self._lost()

    def _look_at_disk(self) -> None:
        """End the process when its files have grown too large; at most once a beat."""
        # Each file has this limit in the process too: here it is all of them together.
        now = time.monotonic()
        if now - self._looked >= BEAT_S:
            self._looked = now
            if _bytes_in(self._directory) > self._limits.disk:
                self._end(WorkerLost(*too_much_disk(self._limits, WORKING).args))

    def _end(self, why: InvalidStatement) -> None:
        self._why = why
        self._process.kill()

    def _lost(self) -> InvalidStatement:
        """Why the process has ended, or has to: the error of the statement that it had."""
        if self._why is not None:
            return self._why
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(BEAT_S)
        code = self._process.poll()
        if not self._is_ready:
            return self._unstarted(code)
        log.warning("a worker ended in the middle of a statement", extra={"code": code})
        if code == OUT_OF_MEMORY:
            mib = self._limits.memory >> 20
            return WorkerLost(
                "the query takes too much memory",
                f"expected its process to take at most {mib} MiB, it asked for more",
                HINT,
            )
        return WorkerLost(
            "the query ended the process that computed it",
            f"the process ended with {_spelled(code)}",
            f"it took too much memory, or the engine failed: {HINT}",
        )

    def _unstarted(self, code: int | None) -> Unstarted:
        log_text = (Path(self._directory) / START_LOG).read_text(errors="replace").strip()
        log.error("a worker did not start", extra={"code": code, "told": log_text})
        lines = log_text.splitlines()
        named = [line for line in lines if _NAMES_AN_ERROR.search(line)]
        ended = f"it ended with {_spelled(code)}"
        return unstarted(f"{ended}: {(named or lines)[-1]}" if lines else ended)

    def retire(self) -> None:
        """End the process, and remove what it left."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._stack.close()


def _streamed(table: pa.Table) -> memoryview:
    """The table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def _bytes_in(directory: str) -> int:
    """The bytes that the files under a directory take on the disk."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(folder) / name).lstat().st_blocks * _BLOCK
    return total


def _spelled(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"
