"""A pool of a few worker processes with bounded memory, for the coordinator.

    with (yield from workers.lend()) as worker:
        ended = yield from worker.ask(request, tables, take)

A worker evaluates what the text of a statement makes the engine evaluate. A statement that
takes too much memory or time ends its worker, and no other statement. A worker serves one
caller at a time, and the others wait in order. A waiting caller gets a beat each second and can
give up then.
"""

import logging
import threading
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from streams.adapter.workers.fair_semaphore import Turns
from streams.adapter.workers.limits import Limits
from streams.adapter.workers.process import Unstarted, Worker
from streams.adapter.workers.requests import Ended, Request
from streams.log_lines import LogFormat

log = logging.getLogger(__name__)

MOST = 4
"""Workers at a time, and so statements that are computed at a time."""


_Returned = TypeVar("_Returned")


class Workers:
    """A pool of at most `most` workers; any thread may borrow one.

    Their files lie under `directory`, by default the temporary directory of the system. A
    worker that is killed together with this process leaves its files there. With a
    `fork_server`, at that address (`streams.forks`), they are forked, which takes no second.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        most: int = MOST,
        directory: Path | None = None,
        log_format: LogFormat = "text",
        fork_server: Path | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.directory, self.log_format = directory, log_format
        self._fork_server = fork_server
        self._turns = Turns(most)
        self._lock = threading.Lock()
        self._free: list[Worker] = []
        self._is_closed = False

    def start(self) -> None:
        """Start a worker in advance, since a start takes a second.

        A failure is not reported here: the next caller that needs a worker gets it.
        """
        with self._lock:
            if not self._free and not self._is_closed:
                try:
                    self._free.append(self._new())
                except Unstarted as error:
                    log.warning("no worker can be started", extra={"cause": error.detail})

    def lend(self) -> Generator[None, None, AbstractContextManager[Worker]]:
        """Wait for a turn and for a worker, which the context gives back.

        Errors: Unstarted when no worker can be started.
        """
        yield from self._turns.take()
        try:
            worker = self._fit()
        except BaseException:
            self._turns.give()
            raise
        try:
            yield from worker.ready()
        except BaseException:
            self._give_back(worker)
            raise
        return self._lent(worker)

    @contextmanager
    def _lent(self, worker: Worker) -> Iterator[Worker]:
        try:
            yield worker
        finally:
            self._give_back(worker)

    def answer(self, request: Request) -> tuple[bytes, Ended]:
        """Send a request without tables; return its data and its end. Waits for a turn.

        Errors: as `lend` and `Worker.ask`.
        """
        blocks: list[bytes] = []
        with _waited(self.lend()) as worker:
            ended = _waited(worker.ask(request, (), blocks.append))
        return b"".join(blocks), ended

    def _new(self) -> Worker:
        return Worker(self.limits, self.directory, self.log_format, self._fork_server)

    def _fit(self) -> Worker:
        while True:
            with self._lock:
                worker = self._free.pop() if self._free else None
            if worker is None:
                return self._new()
            if worker.is_fit:
                return worker
            worker.retire()

    def _give_back(self, worker: Worker) -> None:
        try:
            with self._lock:
                is_kept = worker.is_fit and not self._is_closed
                if is_kept:
                    self._free.append(worker)
            if not is_kept:
                worker.retire()
                self.start()
        finally:
            self._turns.give()

    def close(self) -> None:
        """End the idle workers now, and the others when they are given back."""
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for worker in free:
            worker.retire()


def _waited(work: Generator[None, None, _Returned]) -> _Returned:
    """Run the work to its end, ignoring its beats, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            returned: _Returned = done.value
            return returned
