"""How long a micro-batch may take before it is given up. Pure.

Nobody can tell a step that never ends from one that takes long. So the deadline is generous: it
grows with what there is to read and with what the dataflows took the last time, and doubles for
a dataflow each time that it missed one alone. A large step comes to its end, however large it
is. One that never ends takes the lane `apart` ever longer, and no other: what is granted to a
convict it has while it is stepped alone there, and gives back to a dataflow that was convicted
less often and waits (`Scheduler.is_in_the_way`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from streams.replica.descriptor import ChunkLoad, RawLoad, Undo
from streams.replica.ingest import ranges
from streams.replica.spread import size_of
from streams.replica.trouble import Isolation
from streams.replica.work import Unit

BYTES_A_SECOND = 100_000
"""Of stored chunks, a tenth of the slowest hydration that was measured, by one core."""

MESSAGES_A_SECOND = 2_000
TIMES_THE_LAST = 20
MOST_DOUBLINGS = 12


@dataclass(frozen=True, slots=True)
class Deadline:
    """The seconds that the tasks of a micro-batch may take.

    `common_s` is what any dataflow has, `own_s` what this one has for its convictions.
    """

    common_s: float
    own_s: float


def deadline(units: Sequence[Unit], least_s: float) -> Deadline:
    """How long the tasks of a micro-batch may take, at least `least_s`."""
    doublings = min([*(_doublings(unit.flow.isolation) for unit in units), MOST_DOUBLINGS])
    last_ms = sum(unit.flow.cost_ms for unit in units)
    reading_s = sum(_reading_s(unit) for unit in units)
    more_s = reading_s + TIMES_THE_LAST * last_ms / 1000
    return Deadline(least_s + more_s, least_s * (1 << doublings) + more_s)


def _doublings(isolation: Isolation) -> int:
    """One that is trusted again has the deadline of the others, in whose lane it is."""
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
