"""Measures the skew of our clock to the broker's, from regular records or a heartbeat.

An idle source ticks every second and each tick is a measurement, so a heartbeat is written only
without ticks: before a replica's first source begins, and every `clock_skew.FORGET_MS` while
our clock is known to be wrong, because then no source ticks.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from streams.errors import SlackwaterError
from streams.ids import MINIMUM_TIME
from streams.progress import frontier
from streams.replica.driver.clock_skew import Skew
from streams.replica.driver.dataflow import Dataflow, Phase
from streams.replica.driver.scheduler import Scheduler
from streams.storage.log.events import Body, Downgrade
from streams.storage.log.outcomes import Outcome, Unavailable

log = logging.getLogger(__name__)


@dataclass(slots=True)
class SkewMonitor:
    """Measures when a source waits for it; one thread."""

    scheduler: Scheduler

    def measure(self) -> None:
        """Append a heartbeat of each waiting source. Errors: as `Shards.submit`.

        All of them, so that one log that cannot be written delays no other source.
        """
        scheduler = self.scheduler
        now_ms = scheduler.now_ms()
        if scheduler.skew.known(now_ms) is not None:
            return
        with scheduler.lock:
            waiting = [
                (flow.description.group, _heartbeat(flow))
                for flow in scheduler.sound()
                if flow.binds and flow.is_ready(Phase.RUNNING, now_ms)
            ]
        if waiting:
            submit(scheduler, waiting)
            scheduler.wakeup.ring()


def submit(scheduler: Scheduler, events: Sequence[tuple[str, Body]]) -> list[Outcome]:
    """Like `Shards.submit`; the append times give the skew."""
    before_ms = scheduler.now_ms()
    outcomes = scheduler.shards.submit(events)
    after_ms = scheduler.now_ms()
    append_ms = _append_ms(scheduler, events, outcomes)
    if append_ms is not None:
        _take_note(scheduler.skew, (before_ms, append_ms, after_ms))
    return outcomes


def _append_ms(
    scheduler: Scheduler, events: Sequence[tuple[str, Body]], outcomes: Sequence[Outcome]
) -> int | None:
    """Return when the last of the events that were read back, or a later record, was appended.

    The newest record of a log that could not be written is useless: it may be old.
    """
    for (group, _), outcome in zip(reversed(events), reversed(outcomes), strict=True):
        if not isinstance(outcome, Unavailable):
            try:
                return scheduler.shards.group_state(group).appended_ms
            except SlackwaterError:  # closed meanwhile
                continue
    return None


def _take_note(skew: Skew, times: tuple[int, int, int]) -> None:
    was_wrong = skew.is_wrong
    skew.measure(*times)
    if skew.is_wrong and not was_wrong:
        log.warning(
            "clock differs from the broker's: idle sources wait until it is corrected",
            extra={"ahead_ms": skew.last_ms},
        )
    elif was_wrong and not skew.is_wrong:
        log.info("clock agrees with the broker's again")


def _heartbeat(flow: Dataflow) -> Downgrade:
    """Return an event without effect: a capability never goes back."""
    return Downgrade(
        collection=flow.id,
        capability=flow.description.capability,
        frontier=frontier(MINIMUM_TIME),
    )
