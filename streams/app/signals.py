"""Handles SIGTERM and SIGINT from the first moment of a process.

Python ends by SIGTERM without a message, and importing a command takes up to seconds: so a
process calls `listen` before it imports anything else.

An exception that a signal raises comes between any two bytecodes: in a callback that drops it,
behind a lock that was just taken, in the middle of closing. So a process that runs until it is
stopped only records signals, in `stopping`, and checks it where it can end: services
(`SERVICES`) from their first moment on, other commands within `noted`. Any other command ends
by the exception, with a message and its exit stacks unwound.

What a shell that started us has made of the signals does not count: it has background jobs of a
script ignore SIGINT, and then nothing but a kill would end them.

This module imports nothing but the standard library's smallest.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

SERVICES = frozenset(
    {"up", "storage", "coordinator", "replica", "compaction", "materializations"}
)
"""Commands that run until they receive a signal, and then end in order."""

ENDING = (signal.SIGTERM, signal.SIGINT)
IMPATIENT_S = 1.0
"""A second Ctrl-C after so long is one: `timeout` sends its signal twice, at once."""


class Stopped(Exception):
    """The process was asked to end, and this is where it can: no failure."""


class Stop:
    """Whether the process was asked to end, and by which signal; 0 is none.

    `set` takes no lock, so a signal handler may call it: that of `threading.Event` may be held
    by the very thread that the signal interrupts in `wait`, which would then wait for itself.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Become one of this process, which was forked: the pipe is its parent's."""
        self._reading, self._writing = os.pipe()
        self.number, self.since_s = 0, 0.0

    def set(self, number: int = signal.SIGTERM) -> None:
        """Ask to end, and wake the waiters; the first signal counts."""
        if not self.number:
            self.number, self.since_s = number, time.monotonic()
            os.write(self._writing, b"!")  # never read: the pipe stays readable

    def is_set(self) -> bool:
        """Whether it was asked."""
        return self.number != 0

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it was asked, now or within so many seconds."""
        if not self.number:
            poll = select.poll()
            poll.register(self._reading, select.POLLIN)
            poll.poll(None if timeout_s is None else max(timeout_s, 0) * 1000)
        return self.number != 0

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self._reading)  # bound above: at the end of the process there is no `os` any more
        close(self._writing)

    def check(self) -> None:
        """Errors: Stopped when it was asked."""
        if self.number:
            raise Stopped


stopping = Stop()
"""Set when this process was asked to end."""


def asked_for(arguments: Sequence[str]) -> str:
    """The command that is asked for, if any."""
    return next((argument for argument in arguments if not argument.startswith("-")), "")


def listen(arguments: Sequence[str]) -> None:
    """Handle signals as it fits the command that these arguments ask for."""
    if asked_for(arguments) in SERVICES:
        until_signalled()
    else:
        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def listening(arguments: Sequence[str]) -> Iterator[None]:
    """Like `listen`; an unhandled Ctrl-C ends the process with a message."""
    listen(arguments)
    try:
        yield
    except KeyboardInterrupt:
        raise unfinished(signal.SIGINT) from None


def until_signalled() -> Stop:
    """Set when the process is asked to end, or was so already."""
    for number in ENDING:
        signal.signal(number, lambda number, _: stopping.set(number))
    return stopping


@contextmanager
def noted() -> Iterator[Stop]:
    """Note signals and raise nothing; the code that waits reads the note.

    A second Ctrl-C raises KeyboardInterrupt, for who will not wait.
    """
    before = {number: signal.getsignal(number) for number in ENDING}
    for number in ENDING:
        signal.signal(number, _note)
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  as Python calls it
    if not stopping.is_set():
        stopping.set(number)
        if os.isatty(2):
            with suppress(OSError):
                os.write(2, b"ending; Ctrl-C again does not wait\n")
    elif number == signal.SIGINT and time.monotonic() - stopping.since_s > IMPATIENT_S:
        raise KeyboardInterrupt


def unfinished(number: int) -> SystemExit:
    """Say that a command ends before it is done; the exit to raise."""
    name = signal.Signals(number).name
    print(f"error: ended by {name} before it was done", file=sys.stderr)  # noqa: T201  to people
    return SystemExit(128 + number)


def end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001  as Python calls it
    """End a command that is not done: what it has opened is closed."""
    raise unfinished(number)
