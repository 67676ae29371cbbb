"""A worker as the coordinator sees it: a process that answers one request at a time.

It is spawned, not forked: this process has threads of DuckDB's and of Kafka's.
"""

import logging
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from streams.adapter.selecting import HINT
from streams.adapter.workers.answering import Limits
from streams.adapter.workers.frames import (
    DATA,
    END,
    LARGEST,
    REQUEST,
    TABLE,
    Garbled,
    receive,
    send,
)
from streams.adapter.workers.main import OUT_OF_MEMORY
from streams.adapter.workers.requests import Ended, Request, encoded
from streams.adapter.workers.turns import BEAT_S, Beats
from streams.errors import InvalidStatement

log = logging.getLogger(__name__)

START_S = 60.0
"""How long a worker may take to start."""


class WorkerLost(InvalidStatement):
    """A statement ended its worker, which took too much or too long, or failed."""


class Worker:
    """One process. It is fit until a request of it did not come to its end."""

    def __init__(self, limits: Limits, directory: Path | None = None) -> None:
        self._limits = limits
        self._directory = tempfile.mkdtemp(prefix="slackwater-worker-", dir=directory)
        self._process = subprocess.Popen(  # noqa: S603  our own command, no shell
            [
                *(sys.executable, "-P", "-m", "streams.adapter.workers.main"),
                *(limits.encoded(), self._directory),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._fit = self._is_ready = self._is_late = False

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def is_fit(self) -> bool:
        """Whether it takes a request, at once or when it has started."""
        return (self._fit or not self._is_ready) and self._process.poll() is None

    def ready(self) -> Beats:
        """Wait until it has started. Errors: WorkerLost."""
        if not self._is_ready:
            yield from self._timed(START_S, self._ended(bytes))
            self._is_ready = self._fit = True

    def ask(
        self,
        request: Request,
        tables: Sequence[pa.Table] = (),
        take: Callable[[bytes], object] = bytes,
    ) -> Generator[None, None, Ended]:
        """Have a request answered: `take` gets the data, piece by piece.

        The answer holds nothing of a statement that failed: `take` may have been called.
        Errors: InvalidStatement; WorkerLost; RuntimeError for a defect of ours.
        """
        self._fit = False
        conversation = self._conversation(request, tables, take)
        ended = yield from self._timed(self._limits.seconds, conversation)
        self._fit = not ended.spent
        if ended.refused is not None:
            raise InvalidStatement(*ended.refused)
        if ended.defect:
            raise RuntimeError(ended.defect)
        return ended

    def _timed(
        self, seconds: float, work: Generator[None, None, Ended]
    ) -> Generator[None, None, Ended]:
        """Do the work, and end the process when it takes longer."""
        late = threading.Timer(seconds, self._end_late)
        late.daemon = True
        late.start()
        try:
            return (yield from work)
        except (Garbled, BrokenPipeError, ConnectionResetError) as cause:
            raise self._lost() from cause
        finally:
            late.cancel()

    def _conversation(
        self, request: Request, tables: Sequence[pa.Table], take: Callable[[bytes], object]
    ) -> Generator[None, None, Ended]:
        given = self._process.stdin
        assert given is not None, "it was made with pipes"
        send(given, REQUEST, encoded(request, len(tables)))
        for table in tables:
            send(given, TABLE, _streamed(table))
        return (yield from self._ended(take))

    def _ended(self, take: Callable[[bytes], object]) -> Generator[None, None, Ended]:
        """Take what comes until an END."""
        taken = self._process.stdout
        assert taken is not None, "it was made with pipes"
        poll = select.poll()
        poll.register(taken, select.POLLIN)
        while True:
            while not poll.poll(BEAT_S * 1000):
                yield
            match receive(taken, LARGEST):
                case (kind, body) if kind == DATA:
                    take(body)
                case (kind, body) if kind == END:
                    return Ended.decoded(body)
                case _:
                    raise self._lost()

    def _end_late(self) -> None:
        self._is_late = True
        self._process.kill()

    def _lost(self) -> WorkerLost:
        """Why the process has ended, or has to: the error of the statement that it had."""
        if self._is_late:
            seconds = f"{self._limits.seconds:g} s"
            return WorkerLost(
                "the query takes too long", f"expected it to take at most {seconds}", HINT
            )
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(BEAT_S)
        code = self._process.poll()
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

    def retire(self) -> None:
        """End the process, and remove what it left."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def _streamed(table: pa.Table) -> memoryview:
    """The table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def _spelled(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"
