"""A replica's signs of life, from a thread of its own.

The thread that hears commands waits for a micro-batch when a dataflow is dropped in the middle
of one, and for brokers when one is created: the replica lives meanwhile, and says so.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from streams.errors import SlackwaterError
from streams.replica.answers import Answers

log = logging.getLogger(__name__)

BEAT_S = 1.0
JOIN_S = 2.0


@contextmanager
def pulse(answers: Answers) -> Iterator[None]:
    """Say that this process lives, as often as a controller has to hear it, until the end."""
    ended = threading.Event()
    thread = threading.Thread(target=_beat, args=(answers, ended), name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(JOIN_S)


def _beat(answers: Answers, ended: threading.Event) -> None:
    while not ended.wait(BEAT_S):
        try:
            answers.alive()
        except SlackwaterError as failure:  # the next one is as good
            log.warning("heartbeat not written", extra={"why": str(failure)})
