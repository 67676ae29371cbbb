"""How long a driver waits for a connector, which may hang.

Nothing bounds the time of a commit from outside, so a wait is not cut short: after a minute it
is reported, and only after `answer_s` it is an error that can pass. A task that is to stop
waits no longer than `STOP_S`: what is not committed then is written by the next session.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeVar

from connectors.transport.errors import ConnectorFailed
from streams.errors import Indeterminate

ANSWER_S = 3_600.0
"""The longest wait for one answer, unless a task says otherwise."""
STOP_S = 10.0
"""The longest wait of a task that is to stop."""
REPORT_S = 60.0
"""A wait is reported once it has lasted so long."""
LOOK_S = 0.2

NO_ANSWER = "no answer of the connector"
NOT_READ = "the connector reads no requests"

Answer = TypeVar("Answer")


def never() -> bool:
    """No stop is requested."""
    return False


def nothing(_: str) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """`waits` is told of a long wait, and with an empty text of its end."""

    answer_s: float = ANSWER_S
    is_stopping: Callable[[], bool] = never
    waits: Callable[[str], None] = nothing
    now_s: Callable[[], float] = time.monotonic

    @contextmanager
    def waiting(self, what: str) -> Iterator[Callable[[], None]]:
        """Wait for `what`: the block calls what it is given at least every `LOOK_S`.

        Errors: ConnectorFailed, of Indeterminate, when patience is at its end.
        """
        began, is_reported = self.now_s(), False

        def look() -> None:
            nonlocal is_reported
            waited_s = self.now_s() - began
            if waited_s > self.answer_s:
                raise hangs(f"{what} for {self.answer_s:g} s: the connector hangs")
            if waited_s > STOP_S and self.is_stopping():
                raise hangs(f"{what} for {waited_s:.0f} s, and the task is to stop")
            if waited_s > REPORT_S and not is_reported:
                self.waits(f"{what} for {waited_s:.0f} s")
                is_reported = True

        try:
            yield look
        finally:
            if is_reported:
                self.waits("")

    def take(self, queue: SimpleQueue[Answer], what: str) -> Answer:
        """The next of a queue. Errors: as `waiting`."""
        with self.waiting(what) as look:
            while True:
                try:
                    return queue.get(timeout=LOOK_S)
                except Empty:
                    look()


PATIENT = Patience()


def hangs(text: str) -> ConnectorFailed:
    """The error of a connector that does not answer: another session may succeed."""
    failure = ConnectorFailed(text)
    failure.__cause__ = Indeterminate(text)
    return failure
