"""The loop of peeks of a replica: reads commands, waits for targets, writes the answers.

    hearing    one thread that follows the command topic
    readers    threads that read what is complete, and evaluate it
    copies     one that does so for copy-tos, and writes files; no peek waits for it
    answers    one thread that writes the answers that are there together
    indexes    one thread that keeps the indexes up with their collections
    subscribes one thread that reads and delivers what is new for subscribes

It has a client of the shards, a reader of commands and engines of its own, so nothing that the
dataflows do delays it but the machine. A peek that fails is answered with the failure.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue

import pyarrow as pa

from streams.compute.parameters import ComputeParameters
from streams.compute.peek_session import (
    AnswerPeek,
    PeekAction,
    PeekSession,
    ReadTarget,
    TargetBounds,
)
from streams.compute.peeks import Peek, PeekError, PeekOutcome, PeekResponse, PeekTarget
from streams.compute.protocol import AllowCompaction, Command, CreateInstance
from streams.compute.reader import CommandReader, ReceivedCommand, UnreadableCommand
from streams.compute.subscribe_session import SubscribeSession
from streams.compute.writer import ResponseWriter
from streams.copies.targets import NOWHERE, CopyTargets
from streams.errors import SlackwaterError
from streams.ids import CollectionId, Offset
from streams.replica.driver.wakeup import Wakeup
from streams.replica.peeks.copying import copied
from streams.replica.peeks.evaluation import answer, import_types, plan_of, rows_of
from streams.replica.peeks.indexes import Indexes
from streams.replica.peeks.passing_failures import may_pass
from streams.replica.peeks.shard_read import read_shard
from streams.replica.peeks.subscribes import Subscribes
from streams.storage.client.shards import Shards
from streams.trace.kernel.kernel import Kernel

log = logging.getLogger(__name__)

POLL_MS = 100
WAIT_MS = 1000
"""How long a thread waits for news before it looks itself."""

PAUSE_S = 1.0
READERS = 2
"""Peeks that are read at a time: a large one does not hold up all small ones."""


class PeekLoop:
    """The peeks of one replica process; starts its threads at once.

    A copy-to may write below `copy_to`.

    `started` is the end of the command topic when the process opened it. `shards_of` makes a
    client for a namespace, which the loop closes.
    """

    def __init__(  # noqa: PLR0913  dependencies
        self,
        reader: CommandReader,
        started: Offset,
        writer: ResponseWriter,
        replica: str,
        shards_of: Callable[[str], Shards],
        index_bytes: int,
        *,
        copy_to: CopyTargets = NOWHERE,
    ) -> None:
        self._reader, self._started, self._writer = reader, started, writer
        self._shards_of, self._copy_to = shards_of, copy_to
        self._shards: Shards | None = None
        self._session = PeekSession(replica)
        self._lock, self._wakeup = threading.Lock(), Wakeup()
        self.indexes = Indexes(index_bytes, self._wakeup)
        self._subscribes = Subscribes(SubscribeSession(replica), writer)
        self._reads: deque[ReadTarget] = deque()
        self._copies: deque[ReadTarget] = deque()
        self._answers: SimpleQueue[AnswerPeek | None] = SimpleQueue()
        self._stopping = threading.Event()
        self.broken: Exception | None = None
        """The internal error that stopped it: only a new process helps."""
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
            for name, work in [
                ("peeks", self._hear),
                ("peek-answers", self._answer),
                ("indexes", self._tend),
                ("subscribes", self._serve),
                ("copies", partial(self._read, self._copies)),
                *(
                    (f"peek-reader-{number}", partial(self._read, self._reads))
                    for number in range(READERS)
                ),
            ]
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads; open peeks stay unanswered."""
        self._stopping.set()
        self._wakeup.ring()
        self._answers.put(None)
        for thread in self._threads:
            thread.join()
        self._reader.close()
        if self._shards is not None:
            self._shards.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as defect:
            log.exception("the loop of peeks has ended")
            self.broken = defect

    def _hear(self) -> None:
        while not self._stopping.is_set():
            try:
                heard = self._reader.poll(POLL_MS)
            except SlackwaterError as failure:
                log.warning("peeks cannot be read", extra={"cause": str(failure)})
                self._stopping.wait(PAUSE_S)
                continue
            for received in heard:
                self._take(received)
            if heard:
                self._wakeup.ring()

    def _take(self, received: ReceivedCommand) -> None:
        command = received.command
        if isinstance(command, UnreadableCommand):
            return  # the loop of dataflows reports it
        if isinstance(command, CreateInstance) and self._shards is None:
            self._shards = self._shards_of(command.namespace)
            self._shards.subscribe(lambda _: self._wakeup.ring())
        self._leave_dropped(command)
        is_old = received.offset < self._started
        with self._lock:
            self._session, actions = self._session.step(command, is_old=is_old)
            self._act(actions)
        self._subscribes.take(command, is_old=is_old)

    def _leave_dropped(self, command: Command) -> None:
        """Stop following the group of a collection that is dropped, which has its name."""
        if self._shards is not None and isinstance(command, AllowCompaction):
            group = str(command.id)
            if command.frontier.is_empty:
                self._shards.close(group)

    def _read(self, queue: deque[ReadTarget]) -> None:
        kernel, heard = Kernel(), 0
        while not self._stopping.is_set():
            read = self._next(self._open_targets(), queue)
            if read is None:
                heard = self._wakeup.wait(heard, WAIT_MS)
            else:
                self._finish(read, self._outcome(read, kernel))

    def _answer(self) -> None:
        while not self._stopping.is_set():
            answers = [self._answers.get()]
            with suppress(Empty):
                while True:
                    answers.append(self._answers.get_nowait())
            self._write([answer for answer in answers if answer is not None])

    def _tend(self) -> None:
        heard = 0
        while not self._stopping.is_set():
            if self._shards is not None:
                before = self.indexes.every_bounds()
                self.indexes.tend(self._shards, self._least_times())
                if self.indexes.every_bounds() != before:
                    self._wakeup.ring()
            heard = self._wakeup.wait(heard, WAIT_MS)

    def _serve(self) -> None:
        heard = 0
        while not self._stopping.is_set():
            if self._subscribes.is_idle or not self._has_served():
                heard = self._wakeup.wait(heard, WAIT_MS)

    def _has_served(self) -> bool:
        """Deliver what is new for subscribes; return whether there was anything."""
        bounds = partial(self._bounds, self._open_targets())
        with self._lock:
            parameters = self._session.parameters
        return self._subscribes.serve(self._shards, bounds, parameters)

    def _least_times(self) -> Mapping[CollectionId, int]:
        """Return the least time at which an open peek reads each index."""
        with self._lock:
            peeks = list(self._session.peeks())
        least: dict[CollectionId, int] = {}
        for peek in peeks:
            index = peek.target.index
            if index is not None:
                least[index] = min(peek.time, least.get(index, peek.time))
        return least

    def _open_targets(self) -> Mapping[str, TargetBounds]:
        """Follow the groups of what is open; return why some cannot be followed."""
        shards, problems = self._shards, dict[str, TargetBounds]()
        if shards is None:
            return problems
        with self._lock:
            wanted = {peek.target.group for peek in self._session.peeks()}
        wanted |= self._subscribes.groups()
        for group in wanted.difference(shards.groups()):
            try:
                shards.open(group)
            except SlackwaterError as failure:
                problems[group] = TargetBounds(problem=str(failure), may_pass=may_pass(failure))
        return problems

    def _next(
        self, problems: Mapping[str, TargetBounds], queue: deque[ReadTarget]
    ) -> ReadTarget | None:
        """Take one read of a queue, if there is any."""
        with self._lock:
            bounds = partial(self._bounds, problems)
            self._session, actions = self._session.ready(bounds)
            self._act(actions)
            read = queue.popleft() if queue else None
            has_more = bool(self._reads or self._copies)
        if has_more:
            self._wakeup.ring()
        return read

    def _act(self, actions: Iterable[PeekAction]) -> None:
        """Queue what is to be done; with the lock, so that answers stay in order."""
        for action in actions:
            if isinstance(action, ReadTarget):
                is_copy = action.peek.files is not None
                (self._copies if is_copy else self._reads).append(action)
            else:
                self._answers.put(action)

    def _bounds(self, problems: Mapping[str, TargetBounds], target: PeekTarget) -> TargetBounds:
        """Return the bounds of a target as folded. Quick: called with the lock."""
        if target.index is not None:
            return self.indexes.bounds(target.index)
        if target.group in problems:
            return problems[target.group]
        if self._shards is None or target.group not in self._shards.groups():
            return TargetBounds()  # it is opened before the next look
        try:
            state = self._shards.state(target.collection)
        except SlackwaterError as failure:  # what is not there yet may come
            return TargetBounds(problem=str(failure), may_pass=True)
        return TargetBounds(state.since, state.upper)

    def _outcome(self, read: ReadTarget, kernel: Kernel) -> PeekOutcome:
        with self._lock:
            parameters = self._session.parameters
        peek = _bounded(read.peek, parameters)
        try:
            loaded = self._loaded(peek, kernel, parameters.max_read_bytes)
            if peek.files is None:
                return answer(peek, *loaded, kernel)
            rows = rows_of(peek, *loaded, kernel)
            if isinstance(rows, PeekError):
                return rows
            return copied(peek, rows, self._copy_to, partial(self._is_unwanted, read))
        except SlackwaterError as failure:
            return PeekError(str(failure))
        except Exception as defect:
            log.exception("peek failed", extra={"uuid": peek.uuid})
            return PeekError(f"internal error: {defect!r}")

    def _loaded(self, peek: Peek, kernel: Kernel, most_bytes: int) -> tuple[pa.Table, pa.Table]:
        """Return what the target holds at the time of a peek: updates and errors."""
        assert self._shards is not None, "the instance comes before its peeks"
        if peek.target.index is not None:
            return self.indexes.find(peek, kernel)
        return read_shard(self._shards, peek, import_types(plan_of(peek)), kernel, most_bytes)

    def _is_unwanted(self, read: ReadTarget) -> bool:
        with self._lock:
            return not self._session.is_reading(read.nonce, read.peek.uuid)

    def _finish(self, read: ReadTarget, outcome: PeekOutcome) -> None:
        with self._lock:
            self._session, actions = self._session.finished(read.nonce, read.peek.uuid, outcome)
            self._act(actions)

    def _write(self, answers: list[AnswerPeek]) -> None:
        """Write answers.

        Errors: as the writer. Only a new process gives them then: it is sent what is open.
        """
        responses: dict[str, list[PeekResponse]] = {}
        for action in answers:
            responses.setdefault(action.nonce, []).append(action.response)
        for nonce, mine in responses.items():
            self._writer.write(nonce, mine)


def _bounded(peek: Peek, parameters: ComputeParameters) -> Peek:
    """Return a peek whose answer is as small as the parameters want it; files have no bound."""
    if peek.files is not None:
        return peek
    return replace(peek, most_bytes=min(peek.most_bytes, parameters.max_result_bytes))
