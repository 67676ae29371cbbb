"""The coordinator's workers: processes of bounded memory, a few of them.

    with (yield from workers.lend()) as worker:
        ended = yield from worker.ask(request, tables, take)

What a text makes the engine evaluate is evaluated in one, so a statement that takes too much,
or takes for ever, ends a worker and nobody else's statement. A worker has one user at a time;
the others wait for their turn. Whoever waits gets to see a beat every second, and may give up
at each.
"""

import threading
from collections.abc import Callable, Generator
from pathlib import Path
from types import TracebackType

from streams.adapter.workers.answering import Limits
from streams.adapter.workers.process import Worker
from streams.adapter.workers.turns import Turns

MOST = 4
"""Workers at a time, and so statements that are computed at a time."""


class Lent:
    """A worker for as long as the context lasts."""

    def __init__(self, worker: Worker, give_back: Callable[[Worker], None]) -> None:
        self._worker, self._give_back = worker, give_back

    def __enter__(self) -> Worker:
        return self._worker

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._give_back(self._worker)


class Workers:
    """A pool of at most `most` workers; any thread may borrow one.

    Their files lie under `directory`; that of the system if it is None. One that is killed
    together with this process leaves them there.
    """

    def __init__(
        self, limits: Limits | None = None, most: int = MOST, directory: Path | None = None
    ) -> None:
        self.limits = limits or Limits()
        self._directory = directory
        self._turns = Turns(most)
        self._lock = threading.Lock()
        self._free: list[Worker] = []
        self._is_closed = False

    def start(self) -> None:
        """Have one ready before it is asked for, as it takes a second to start."""
        with self._lock:
            if not self._free and not self._is_closed:
                self._free.append(Worker(self.limits, self._directory))

    def lend(self) -> Generator[None, None, Lent]:
        """Wait for a turn, and for a worker. Errors: WorkerLost when none can be started."""
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
        return Lent(worker, self._give_back)

    def _fit(self) -> Worker:
        while True:
            with self._lock:
                worker = self._free.pop() if self._free else None
            if worker is None:
                return Worker(self.limits, self._directory)
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
        """End those that nobody uses, and the others when they are given back."""
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for worker in free:
            worker.retire()
