"""What the services of an environment have in common: clock, names, log lines, their end.

Each is a process of its own (`streams.app.coordinator`, `streams.app.replica`,
`streams.app.compaction`), and is told everything by one JSON file (`streams.app.service`).
"""

import logging
import signal
import sys
import threading
import time
import uuid

from streams.app.processes import end_with_input


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """A name nobody else has."""
    return uuid.uuid4().hex


def configure_logging() -> None:
    """Lines for people on standard output, with the fields of `extra` at the end."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Fields("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("py4j").setLevel(logging.WARNING)


class _Fields(logging.Formatter):
    """Appends what a record carries beyond the usual."""

    _usual = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields = {k: v for k, v in vars(record).items() if k not in self._usual}
        text = super().format(record)
        return text + "".join(f" {key}={value}" for key, value in fields.items())


def until_told() -> threading.Event:
    """As `until_signalled`, of a process whose end also follows its parent's."""
    end_with_input()
    return until_signalled()


def until_signalled() -> threading.Event:
    """Set when the process is asked to end; from now on log lines are for people."""
    configure_logging()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping
