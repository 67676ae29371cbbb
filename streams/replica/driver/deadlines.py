"""Deadlines of micro-batches. Pure.

A step that never ends cannot be distinguished from a long one. So the deadline is generous: it
grows with the input and with the last cost of the dataflows, and doubles for a dataflow each
time that it missed one alone. So every finite step completes. A step that never ends occupies
only the lane `apart`, for growing times: a convicted dataflow has its longer deadline only
while it is stepped alone there, and yields to a waiting dataflow with fewer convictions
(`Scheduler.is_in_the_way`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from streams.replica.driver.retry_policy import Isolation
from streams.replica.driver.task_assignment import size_of
from streams.replica.driver.work_units import Unit
from streams.replica.ingest import ranges
from streams.replica.tasks.descriptor import ChunkLoad, RawLoad, Undo

BYTES_A_SECOND = 100_000
"""Assumed rate for stored chunks: a tenth of the slowest hydration measured, on one core."""

MESSAGES_A_SECOND = 2_000
TIMES_THE_LAST = 20
MOST_DOUBLINGS = 12


@dataclass(frozen=True, slots=True)
class Deadline:
    """The limit in seconds for the tasks of a micro-batch.

    `common_s` is the limit of any dataflow, `own_s` that of this one after its convictions.
    """

    common_s: float
    own_s: float


def deadline(units: Sequence[Unit], least_s: float) -> Deadline:
    """Return the limit for the tasks of a micro-batch, at least `least_s`."""
    doublings = min([*(_doublings(unit.flow.isolation) for unit in units), MOST_DOUBLINGS])
    last_ms = sum(unit.flow.cost_ms for unit in units)
    reading_s = sum(_reading_s(unit) for unit in units)
    more_s = reading_s + TIMES_THE_LAST * last_ms / 1000
    return Deadline(least_s + more_s, least_s * (1 << doublings) + more_s)


def _doublings(isolation: Isolation) -> int:
    """Return the number of doublings; none for a dataflow that shares a lane with others."""
    return isolation.convictions if isolation.steps else 0


def _reading_s(unit: Unit) -> float:
    seconds = 0.0
    for load in unit.loads:
        match load:
            case ChunkLoad() | Undo():
                seconds += size_of(load) / BYTES_A_SECOND
            case RawLoad():
                seconds += ranges.length(load.slices) / MESSAGES_A_SECOND
            case _:
                assert_never(load)
    return seconds
