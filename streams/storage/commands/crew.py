"""Who carries crowds out: threads, so that one which waits keeps no other waiting.

A thread cannot be ended from outside. So each wait in it has its own deadline, after which the
commands are tried again, and whoever runs the crew ends the process when a crowd is beyond all
of them (`Stuck`): the next one has the same commands, and counts such ends (`marks`).
"""

import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from streams.errors import SlackwaterError
from streams.storage.commands.desk import Crowd, Room
from streams.storage.commands.ledger import Report

SLOW_S = 0.25
"""After so long a crowd of those that wait for nothing is not waited for by the next one."""

TOGETHER = 4
"""Such crowds at once."""

ALONE = 4
"""Commands that may wait, at once. Each may take the memory of a collection that is counted."""

WAITS = ("streams", "schemas")
SHOWN = 4

Reports = Sequence[Report | None]
"""What is said of each of a crowd; None of those that are to be carried out alone."""

Work = Callable[[], Reports]


class Stuck(SlackwaterError):
    """A command has waited for longer than anything takes: only a new process helps."""


@dataclass(frozen=True, slots=True)
class Done:
    """What is to be said of a crowd, or why there is nothing."""

    crowd: Crowd
    reports: Reports = ()
    failure: BaseException | None = None


class Crew(Protocol):
    """Carries crowds out."""

    retry_s: float

    def room(self) -> Room:
        """What may begin now."""

    def begin(self, crowd: Crowd, work: Work) -> None:
        """Have it carried out."""

    def done(self, wait_s: float) -> list[Done]:
        """Those that are over, the first of them waited for, unless none is under way."""

    def waits(self) -> list["Waiting"]:
        """What is under way, and has been for so long that it is worth a word."""

    def leave(self, wait_s: float) -> None:
        """Wait for what is under way; what is not over then goes on by itself."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A crowd that takes long, and what it waits in: the innermost calls, the last one last."""

    crowd: Crowd
    seconds: float
    where: str


class Inline:
    """Carries each crowd out at once, in the caller's thread: tests know what happens when."""

    retry_s = 0.0

    def __init__(self) -> None:
        self._done: list[Done] = []

    def room(self) -> Room:
        """Everything may begin."""
        return Room(together=True, alone=1 << 30)

    def begin(self, crowd: Crowd, work: Work) -> None:
        """Carry it out."""
        self._done.append(finished(crowd, work, Exception))

    def done(self, _: float) -> list[Done]:
        """All that were begun."""
        done, self._done = self._done, []
        return done

    def waits(self) -> list[Waiting]:
        """Nothing is under way."""
        return []

    def leave(self, _: float) -> None:
        """Nothing is under way."""


@dataclass(slots=True)
class UnderWay:
    """A crowd and its thread; it was last spoken of when it was `told`. Monotonic seconds."""

    crowd: Crowd
    thread: threading.Thread
    began: float = field(default_factory=time.monotonic)
    told: float = 0.0


class Threads:
    """Carries each crowd out in a thread of its own. Used by one thread."""

    retry_s = 0.5
    word_s = 5.0

    def __init__(self) -> None:
        self._under_way: dict[int, UnderWay] = {}
        self._done: queue.SimpleQueue[Done] = queue.SimpleQueue()

    def room(self) -> Room:
        """What may begin: a crowd together if the ones before are done, or take long."""
        now = time.monotonic()
        crowds = self._under_way.values()
        together = [each for each in crowds if not each.crowd[0].is_alone]
        is_free = all(now - each.began > SLOW_S for each in together)
        alone = ALONE - (len(crowds) - len(together))
        return Room(together=is_free and len(together) < TOGETHER, alone=alone)

    def begin(self, crowd: Crowd, work: Work) -> None:
        """Start its thread."""
        thread = threading.Thread(
            target=lambda: self._done.put(finished(crowd, work, BaseException)),
            name=f"commands from {crowd[0].offset}",
            daemon=True,
        )
        self._under_way[id(crowd)] = UnderWay(crowd, thread)
        thread.start()

    def done(self, wait_s: float) -> list[Done]:
        """Those that are over; the first is waited for."""
        found: list[Done] = []
        try:
            found.append(self._done.get(timeout=wait_s))
            while True:
                found.append(self._done.get_nowait())
        except queue.Empty:
            pass
        for each in found:
            del self._under_way[id(each.crowd)]
        return found

    def waits(self) -> list[Waiting]:
        """Those of which nothing was said for as long as they took until then."""
        now = time.monotonic()
        found = []
        for each in self._under_way.values():
            if now - each.began > max(self.word_s, 2 * (each.told - each.began)):
                each.told = now
                found.append(Waiting(each.crowd, now - each.began, where(each.thread)))
        return found

    def leave(self, wait_s: float) -> None:
        """Wait for the threads."""
        deadline = time.monotonic() + wait_s
        for each in self._under_way.values():
            each.thread.join(max(0.0, deadline - time.monotonic()))


def finished(crowd: Crowd, work: Work, caught: type[BaseException]) -> Done:
    """Carry a crowd out; what is caught is told instead of raised."""
    try:
        return Done(crowd, work())
    except caught as failure:
        return Done(crowd, failure=failure)


def where(thread: threading.Thread) -> str:
    """What a thread is in: our own innermost calls, the last one last."""
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001  the one way there is
    calls: list[str] = []
    while frame is not None and len(calls) < SHOWN:
        if frame.f_globals.get("__name__", "").startswith(WAITS):
            file = Path(frame.f_code.co_filename).stem
            calls.append(f"{file}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return " > ".join(reversed(calls))
