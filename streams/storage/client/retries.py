"""Retries failed operations with growing pauses, in a thread of its own.

The thread lives as long as something has to be retried; without it, waiting callers run what is
due. An attempt may block on brokers: no lock is held meanwhile.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
RAREST_PAUSE_S = 600.0
"""The longest pause, for causes that rarely disappear, such as a missing topic."""

SHARE = 20
"""The pause is at least this multiple of an attempt's duration, as of a log of millions."""


class RetryResult(Enum):
    """The result of an attempt."""

    DONE = auto()
    """Success: nothing more to retry."""
    ILL = auto()
    """The cause persists."""
    GONE = auto()
    """The wanted thing does not exist."""


@dataclass(slots=True)
class RetryTime:
    """When to try next (monotonic seconds), and the pause after that."""

    at_s: float
    pause_s: float = FIRST_PAUSE_S


class RetryQueue:
    """Names to retry; `attempt` tries one. An exception from it counts as ill."""

    def __init__(self, attempt: Callable[[str], RetryResult], *, background: bool) -> None:
        self._attempt = attempt
        self._background = background
        self._changed = threading.Condition()
        self._due: dict[str, RetryTime] = {}
        self._trying = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def soon(self, name: str) -> None:
        """Retry at once."""
        self._plan(name, 0.0)

    def later(self, name: str) -> None:
        """Retry after a pause."""
        self._plan(name, FIRST_PAUSE_S)

    def _plan(self, name: str, pause_s: float) -> None:
        with self._changed:
            if self._closed:
                return
            self._due[name] = RetryTime(time.monotonic() + pause_s)
            if self._background and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="healer", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def forget(self, name: str) -> None:
        """Stop retrying this name."""
        with self._changed:
            self._due.pop(name, None)

    def try_due(self) -> None:
        """Without a thread: run what is due, unless another caller does."""
        if self._background or not self._due or not self._trying.acquire(blocking=False):
            return
        try:
            for name in list(self._due):
                self._try_if_due(name)
        finally:
            self._trying.release()

    def close(self) -> None:
        """Stop. A running attempt is not waited for."""
        with self._changed:
            self._closed = True
            self._due.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._due:
                    self._thread = None
                    return
                left = min(retry.at_s for retry in self._due.values()) - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                names = list(self._due)
            for name in names:
                self._try_if_due(name)

    def _try_if_due(self, name: str) -> None:
        due = self._due.get(name)
        began = time.monotonic()
        if due is None or began < due.at_s:
            return
        try:
            result = self._attempt(name)
        except Exception:  # an error in one attempt does not affect the others
            log.exception("retry raised", extra={"of": name})
            result = RetryResult.ILL
        with self._changed:
            if self._due.get(name) is due:  # else it was rescheduled or forgotten meanwhile
                self._again(name, due, result, time.monotonic() - began)

    def _again(self, name: str, due: RetryTime, result: RetryResult, took_s: float) -> None:
        if result is RetryResult.DONE:
            del self._due[name]
            return
        longest = RAREST_PAUSE_S if result is RetryResult.GONE else LONGEST_PAUSE_S
        pause_s = max(due.pause_s, took_s * SHARE)
        self._due[name] = RetryTime(time.monotonic() + pause_s, min(2 * due.pause_s, longest))
