"""What failed is tried again, with growing pauses, out of the way of what did not.

With a thread of its own, which lives as long as there is something to try; without one, whoever
waits does what is due. A try may block for as long as brokers take: no lock is held meanwhile.
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
"""The longest pause for what hardly ever comes back, such as a topic that is not there."""

SHARE = 20
"""A try that takes long, as of a log of millions, comes so much more rarely."""


class Found(Enum):
    """What a try has shown."""

    DONE = auto()
    """There is nothing more to try."""
    ILL = auto()
    """The cause is still there."""
    GONE = auto()
    """What is wanted is not there at all."""


@dataclass(slots=True)
class Due:
    """When to try next, by the monotonic clock, and after which pause once more."""

    at_s: float
    pause_s: float = FIRST_PAUSE_S


class Healer:
    """Names, each with something to try; `attempt` tries it. Errors of it count as ill."""

    def __init__(self, attempt: Callable[[str], Found], *, background: bool) -> None:
        self._attempt = attempt
        self._background = background
        self._changed = threading.Condition()
        self._due: dict[str, Due] = {}
        self._trying = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def soon(self, name: str) -> None:
        """Try at once."""
        self._plan(name, 0.0)

    def later(self, name: str) -> None:
        """Try after a pause."""
        self._plan(name, FIRST_PAUSE_S)

    def _plan(self, name: str, pause_s: float) -> None:
        with self._changed:
            if self._closed:
                return
            self._due[name] = Due(time.monotonic() + pause_s)
            if self._background and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="healer", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def forget(self, name: str) -> None:
        """There is nothing to try under this name any more."""
        with self._changed:
            self._due.pop(name, None)

    def try_due(self) -> None:
        """Without a thread: try what is due, unless another caller is at it."""
        if self._background or not self._due or not self._trying.acquire(blocking=False):
            return
        try:
            for name in list(self._due):
                self._try_if_due(name)
        finally:
            self._trying.release()

    def close(self) -> None:
        """Try nothing any more. A try that is under way is not waited for."""
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
                left = min(each.at_s for each in self._due.values()) - time.monotonic()
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
            found = self._attempt(name)
        except Exception:  # one that cannot be tried keeps no other from it
            log.exception("a try failed", extra={"of": name})
            found = Found.ILL
        with self._changed:
            if self._due.get(name) is due:  # else it was planned or forgotten meanwhile
                self._again(name, due, found, time.monotonic() - began)

    def _again(self, name: str, due: Due, found: Found, took_s: float) -> None:
        if found is Found.DONE:
            del self._due[name]
            return
        longest = RAREST_PAUSE_S if found is Found.GONE else LONGEST_PAUSE_S
        pause_s = max(due.pause_s, took_s * SHARE)
        self._due[name] = Due(time.monotonic() + pause_s, min(2 * due.pause_s, longest))
