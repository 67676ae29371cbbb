"""Intervals of times, and the end of time.

A step, a slice and a read cover the times [lower, upper). Where a frontier has to be a number,
the empty one is `END`: every update has an earlier time.
"""

from dataclasses import dataclass

from streams.ids import Timestamp
from streams.progress.antichain import Antichain

END = Timestamp((1 << 63) - 1)
"""The end of time: the upper of a complete collection as a number. No update has it."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The times [lower, upper) of a step.

    `as_of` marks the step in which a dataflow is born: its updates are the snapshots of the
    imports, all at `lower`, and there is no state.
    """

    lower: Timestamp
    upper: Timestamp
    as_of: bool = False


def interval_of(lower: int, upper: int, *, as_of: bool = False) -> Interval:
    """The interval [lower, upper)."""
    return Interval(Timestamp(lower), Timestamp(upper), as_of)


def end_of(upper: Antichain) -> Timestamp:
    """A frontier as a number: its time, or the end of time."""
    return END if upper.is_empty else upper.time
