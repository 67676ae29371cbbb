"""Heartbeats of a replica, from a thread of its own.

The command thread may block: on a micro-batch when one of its dataflows is dropped, and on
brokers when one is created. The replica still has to write heartbeats.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from streams.errors import SlackwaterError
from streams.replica.driver.status_reports import StatusReporter

log = logging.getLogger(__name__)

BEAT_S = 1.0
JOIN_S = 2.0


@contextmanager
def pulse(answers: StatusReporter) -> Iterator[None]:
    """Write heartbeats, as often as a controller needs them, until the end."""
    ended = threading.Event()
    thread = threading.Thread(target=_beat, args=(answers, ended), name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(JOIN_S)


def _beat(answers: StatusReporter, ended: threading.Event) -> None:
    while not ended.wait(BEAT_S):
        try:
            answers.alive()
        except SlackwaterError as failure:  # the next one will do
            log.warning("heartbeat not written", extra={"why": str(failure)})
