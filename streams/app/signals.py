"""SIGTERM and SIGINT from the first moment of a process on.

Python ends by SIGTERM without a word, and importing a command takes up to seconds: so whoever
starts here calls `listen` before anything else is imported. A service (see `SERVICES`) is then
asked to stop, and finds that when it is ready to look; any other command ends with a message
and its exit stacks unwound. This module imports nothing but the standard library's smallest.
"""

import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

SERVICES = frozenset({"up", "storage", "coordinator", "replica", "compaction"})
"""Commands that run until they are told to end, and end in order then."""

stopping = threading.Event()
"""Set when a service was asked to end."""


def asked_for(arguments: Sequence[str]) -> str:
    """The command that is asked for, if any."""
    return next((each for each in arguments if not each.startswith("-")), "")


def listen(arguments: Sequence[str]) -> None:
    """Handle signals as it fits the command that these arguments ask for."""
    if asked_for(arguments) in SERVICES:
        until_signalled()
    else:
        signal.signal(signal.SIGTERM, end)


def until_signalled() -> threading.Event:
    """Set when the process is asked to end, or was so already."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping


def end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001  as Python calls it
    """End a command that is not done: what it has opened is closed."""
    name = signal.Signals(number).name
    print(f"error: ended by {name} before it was done", file=sys.stderr)  # noqa: T201  to people
    raise SystemExit(128 + number)
