"""Chooses the time of a read. Pure.

A collection can be read at t iff since <= t < upper. Several collections are read at one t, so
that the answer is a consistent cut:

    t at least   the join of their sinces
    t below      the meet of their uppers

A read without AS OF takes the greatest such time: the freshest answer that needs no waiting. If
there is none yet, it takes the join of the sinces and waits for the uppers. It takes no time
before the last one of its session, and waits for that too. A read AS OF t takes exactly t:
before a since it is refused, at or beyond an upper it waits.
"""

from dataclasses import dataclass

from streams.compute.as_of import ReadableInterval
from streams.ids import Timestamp
from streams.progress import END, Antichain, end_of, meet_all


@dataclass(frozen=True, slots=True)
class ReadAt:
    """Read at `time`; `waits_for` names the collections whose uppers must pass it first."""

    time: Timestamp
    waits_for: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """No time can ever be read: `name` has been compacted, or dropped."""

    name: str
    since: Antichain


LAST = Timestamp(END - 1)
"""The time of reads of sealed collections only: later than all their updates."""

LEAST = Timestamp(0)


def choose(
    inputs: tuple[ReadableInterval, ...],
    as_of: Timestamp | None,
    after: Timestamp | None = None,
) -> ReadAt | Unreadable:
    """Return the time of a read over these collections; any time if there are none.

    `after` is the time of the session's last read, which a read AS OF does not look at.
    """
    for bounds in inputs:
        if bounds.since.is_empty or (as_of is not None and not bounds.since.less_equal(as_of)):
            return Unreadable(bounds.name, bounds.since)
    time = max(freshest(inputs), after or LEAST) if as_of is None else as_of
    waits_for = tuple(bounds.name for bounds in inputs if bounds.upper.less_equal(time))
    return ReadAt(time, waits_for)


def freshest(inputs: tuple[ReadableInterval, ...]) -> Timestamp:
    """Return the greatest time before all uppers, or the least one at or beyond all sinces."""
    upper = meet_all(bounds.upper for bounds in inputs)
    return max([Timestamp(end_of(upper) - 1), *(bounds.since.time for bounds in inputs)])
