"""The peeks of a simulated replica and of a simulated coordinator.

A replica's session and its reader and writer are the real ones; what is read is the uuid.
"""

from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from streams.compute.controller import Controller
from streams.compute.peek_session import (
    AnswerPeek,
    PeekAction,
    PeekSession,
    ReadTarget,
    TargetBounds,
)
from streams.compute.peeks import (
    MOST_COPIED,
    CopyFiles,
    Peek,
    PeekFiles,
    PeekOutcome,
    PeekRows,
    PeekTarget,
)
from streams.compute.reader import CommandReader, UnreadableCommand
from streams.compute.writer import ResponseWriter
from streams.errors import Determinate, Indeterminate
from streams.ids import CollectionId, Offset, Timestamp
from streams.progress import frontier
from tests.model.protocol_subscribes import SubscribeReplica

MOST_OPEN = 12
FILES = CopyFiles("file:///nowhere", ("a",), 1)


def peek_at_random(rng: Random, uuid: str, read: CollectionId, upper: int) -> Peek:
    """A peek or a copy-to about the present, of all replicas or of one."""
    is_copy = rng.random() < 0.3
    return Peek(
        uuid=uuid,
        target=PeekTarget(read, read),
        time=Timestamp(max(0, upper + rng.randrange(-5, 8))),
        plan="",
        project=(0,),
        most_bytes=MOST_COPIED if is_copy else 1,
        replica=rng.choice(("", "", "", "a", "b")),
        files=FILES if is_copy else None,
    )


def outcome_of(peek: Peek) -> PeekOutcome:
    """The one right answer."""
    if peek.files is not None:
        return PeekFiles(((peek.time, len(peek.uuid)),))
    return PeekRows(peek.time, peek.uuid.encode())


@dataclass
class PeekReplica:
    """What a process has heard of peeks from `started` on. Reads take a while."""

    rng: Random
    reader: CommandReader
    started: Offset
    writer: ResponseWriter
    session: PeekSession
    subscribes: SubscribeReplica
    reads: list[ReadTarget] = field(default_factory=list)

    def hear(self, uppers: dict[CollectionId, int], now: float, *, is_calm: bool) -> None:
        """Take what was said, and finish some reads. Errors: Determinate, Indeterminate."""

        def bounds(target: PeekTarget) -> TargetBounds:
            upper = 1 << 40 if is_calm else uppers[target.collection]
            return TargetBounds(frontier(0), frontier(upper))

        if self.rng.random() < 0.5:
            self._finish(is_calm=is_calm)
        for received in self.reader.poll(0):
            if not isinstance(received.command, UnreadableCommand):
                is_old = received.offset < self.started
                self.session, actions = self.session.step(received.command, is_old=is_old)
                self._act(actions)
                self.subscribes.take(received.command, is_old=is_old)
        self.subscribes.work(uppers, now, is_calm=is_calm)
        self.session, actions = self.session.ready(bounds)
        self._act(actions)
        self._finish(is_calm=is_calm)

    def _finish(self, *, is_calm: bool) -> None:
        self.rng.shuffle(self.reads)
        while self.reads and (is_calm or self.rng.random() < 0.5):
            read = self.reads.pop()
            outcome = outcome_of(read.peek)
            self.session, actions = self.session.finished(read.nonce, read.peek.uuid, outcome)
            self._act(actions)

    def _act(self, actions: Iterable[PeekAction]) -> None:
        for action in actions:
            if isinstance(action, AnswerPeek):
                self.writer.write(action.nonce, [action.response])
            else:
                self.reads.append(action)


@dataclass
class PeekClients:
    """Who asks a controller; they are gone with it."""

    rng: Random
    controller: Controller
    asked: dict[str, tuple[Peek, "Future[PeekOutcome]"]] = field(default_factory=dict)

    def ask(self, peek: Peek) -> None:
        if len(self.controller.open_peeks) < MOST_OPEN:
            self.asked[peek.uuid] = peek, self.controller.peek(peek)

    def cancel(self) -> None:
        if self.asked:
            self.leave(self.rng.choice(sorted(self.asked)))

    def leave(self, uuid: str) -> None:
        """Wait no more, whether or not it is answered."""
        del self.asked[uuid]
        with suppress(Determinate, Indeterminate):
            self.controller.cancel_peek(uuid)

    def check(self) -> None:
        """Every peek that was sent has its answer."""
        assert not self.controller.open_peeks, self.controller.open_peeks
        for peek, result in self.asked.values():
            assert result.done(), peek
            if result.exception() is None:
                assert result.result() == outcome_of(peek)
            else:
                assert isinstance(result.exception(), Determinate), peek
