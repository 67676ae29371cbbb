"""Runs crowds of commands in threads, so that one that waits does not delay the others.

A thread cannot be killed. So each wait in it has a deadline, after which the commands are
retried, and the owner of the crew ends the process when a crowd is beyond all deadlines
(`CommandStuck`). The next process gets the same commands and counts such crashes (`marks`).
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
from streams.storage.commands.dedup import Report
from streams.storage.commands.dispatch import Capacity, Crowd

SLOW_S = 0.25
"""Seconds after which the next crowd of commands that need not wait starts beside a slow one.
"""

TOGETHER = 4
"""Maximum of such crowds at once."""

ALONE = 4
"""Maximum of waiting commands at once. Each may take the memory of a collection that is
counted.
"""

WAITS = ("streams", "schemas")
SHOWN = 4

Reports = Sequence[Report | None]
"""The response to each command of a crowd; None for commands that have to run alone."""

Work = Callable[[], Reports]


class CommandStuck(SlackwaterError):
    """A command has waited for longer than all deadlines: only a new process helps."""


@dataclass(frozen=True, slots=True)
class CrowdResult:
    """The responses to a crowd, or the failure."""

    crowd: Crowd
    reports: Reports = ()
    failure: BaseException | None = None


class WorkerPool(Protocol):
    """Executes crowds."""

    retry_s: float

    def room(self) -> Capacity:
        """Return how many crowds of each sort may begin now."""

    def begin(self, crowd: Crowd, work: Work) -> None:
        """Start executing a crowd."""

    def done(self, wait_s: float) -> list[CrowdResult]:
        """Return the finished crowds; wait for the first one, unless none is running."""

    def waits(self) -> list["SlowCrowd"]:
        """Return running crowds that have taken long enough to be logged."""

    def leave(self, wait_s: float) -> None:
        """Wait for running crowds; those that do not finish in time continue detached."""


@dataclass(frozen=True, slots=True)
class SlowCrowd:
    """A slow crowd, and the innermost calls in which its thread waits, the last one last."""

    crowd: Crowd
    seconds: float
    where: str


class InlinePool:
    """Executes each crowd at once in the caller's thread, deterministically, for tests."""

    retry_s = 0.0

    def __init__(self) -> None:
        self._done: list[CrowdResult] = []

    def room(self) -> Capacity:
        """Return no limit."""
        return Capacity(together=True, alone=1 << 30)

    def begin(self, crowd: Crowd, work: Work) -> None:
        """Execute the crowd."""
        self._done.append(execute_crowd(crowd, work, Exception))

    def done(self, _: float) -> list[CrowdResult]:
        """Return all crowds that were begun."""
        done, self._done = self._done, []
        return done

    def waits(self) -> list[SlowCrowd]:
        """Return nothing: no crowd runs in the background."""
        return []

    def leave(self, _: float) -> None:
        """Do nothing: no crowd runs in the background."""


@dataclass(slots=True)
class RunningCrowd:
    """A crowd and its thread; last logged at `told`. Units: monotonic seconds."""

    crowd: Crowd
    thread: threading.Thread
    began: float = field(default_factory=time.monotonic)
    told: float = 0.0


class ThreadPerCrowd:
    """Executes each crowd in a thread of its own. Used by one thread."""

    retry_s = 0.5
    word_s = 5.0

    def __init__(self) -> None:
        self._under_way: dict[int, RunningCrowd] = {}
        self._done: queue.SimpleQueue[CrowdResult] = queue.SimpleQueue()

    def room(self) -> Capacity:
        """What may begin: a crowd of brief commands only if earlier ones are done or slow."""
        now = time.monotonic()
        crowds = self._under_way.values()
        together = [crowd for crowd in crowds if not crowd.crowd[0].is_alone]
        is_free = all(now - job.began > SLOW_S for job in together)
        alone = ALONE - (len(crowds) - len(together))
        return Capacity(together=is_free and len(together) < TOGETHER, alone=alone)

    def begin(self, crowd: Crowd, work: Work) -> None:
        """Start a thread for the crowd."""
        thread = threading.Thread(
            target=lambda: self._done.put(execute_crowd(crowd, work, BaseException)),
            name=f"commands from {crowd[0].offset}",
            daemon=True,
        )
        self._under_way[id(crowd)] = RunningCrowd(crowd, thread)
        thread.start()

    def done(self, wait_s: float) -> list[CrowdResult]:
        """Return finished crowds; wait for the first."""
        results: list[CrowdResult] = []
        try:
            results.append(self._done.get(timeout=wait_s))
            while True:
                results.append(self._done.get_nowait())
        except queue.Empty:
            pass
        for result in results:
            del self._under_way[id(result.crowd)]
        return results

    def waits(self) -> list[SlowCrowd]:
        """Return crowds whose running time has doubled since they were last logged."""
        now = time.monotonic()
        crowds = []
        for job in self._under_way.values():
            if now - job.began > max(self.word_s, 2 * (job.told - job.began)):
                job.told = now
                crowds.append(SlowCrowd(job.crowd, now - job.began, stack_of(job.thread)))
        return crowds

    def leave(self, wait_s: float) -> None:
        """Wait for the threads."""
        deadline = time.monotonic() + wait_s
        for job in self._under_way.values():
            job.thread.join(max(0.0, deadline - time.monotonic()))


def execute_crowd(crowd: Crowd, work: Work, caught: type[BaseException]) -> CrowdResult:
    """Execute a crowd; return an exception instead of raising it."""
    try:
        return CrowdResult(crowd, work())
    except caught as failure:
        return CrowdResult(crowd, failure=failure)


def stack_of(thread: threading.Thread) -> str:
    """Return the position of a thread: its innermost calls in our code, the last one last."""
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001  there is no public way
    calls: list[str] = []
    while frame is not None and len(calls) < SHOWN:
        if frame.f_globals.get("__name__", "").startswith(WAITS):
            file = Path(frame.f_code.co_filename).stem
            calls.append(f"{file}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return " > ".join(reversed(calls))
