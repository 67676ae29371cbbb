"""Heartbeats of a replica, from a thread of its own.

The command thread may block: on a micro-batch when one of its dataflows is dropped, and on
brokers when one is created. The replica still has to write heartbeats.
"""

from contextlib import AbstractContextManager

from streams.periodic import periodically
from streams.replica.driver.status_reports import StatusReporter

BEAT_S = 1.0
JOIN_S = 2.0


def pulse(answers: StatusReporter) -> AbstractContextManager[None]:
    """Write heartbeats, as often as a controller needs them, until the end."""
    return periodically(
        answers.alive, BEAT_S, name="pulse", warning="heartbeat not written", join_s=JOIN_S
    )
