"""Ends the leases of a log to which nothing is appended. Pure.

A log's clock moves with its records, at most `MAX_TICK_MS` at each, so in an idle log a lease
that its holder abandoned lasts on and holds the frontiers back. Whoever compacts appends a
record that changes nothing, one each `MAX_TICK_MS`, as long as a lease of the group is overdue.

A lease is taken to be overdue when what was left of it at the record where it was first seen
has passed by this process's clock. That decides when a record is sent and nothing else: leases
end by append times, in the fold, so a clock that is ahead costs records and no lease. A holder
that renews in time has a new expiry by then, so its log gets no record.

Several processes may do this at once: a record of any of them puts the others' off.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from streams.ids import Offset
from streams.storage.machine import MAX_TICK_MS
from streams.storage.state import State


@dataclass(frozen=True, slots=True)
class Sight:
    """The leases of a group after the record at `upto`, which was first seen at `seen_ms`.

    `overdue_ms` says of each expiry when it is overdue.
    Units: milliseconds, times by this process's clock, expiries by the log's.
    """

    upto: Offset
    seen_ms: int
    overdue_ms: Mapping[int, int]

    def needs_record(self, now_ms: int) -> bool:
        """Whether a lease is overdue, and the log was silent for as long as a record counts."""
        is_silent = now_ms - self.seen_ms >= MAX_TICK_MS
        return is_silent and any(each <= now_ms for each in self.overdue_ms.values())


def sight_of(last: Sight | None, state: State, now_ms: int) -> Sight:
    """What is seen now of the group that looked like `last` before.

    An expiry that was seen before stays overdue from the same time on: each record that is sent
    for it ends the silence.
    """
    if last is not None and last.upto == state.upto:
        return last
    known = {} if last is None else last.overdue_ms
    since = min(state.appended_ms, now_ms) - state.clock_ms
    overdue = {each: known.get(each, since + each) for each in expiries(state)}
    return Sight(state.upto, now_ms, overdue)


def expiries(state: State) -> frozenset[int]:
    """When the leases and the stages of the group end, by the log's clock."""
    if state.next_expiry_ms is None:
        return frozenset()
    leases = {
        each.expires_ms
        for collection in state.collections.live.values()
        for each in collection.capabilities.values()
        if each.expires_ms is not None
    }
    return frozenset(leases.union(each.expires_ms for each in state.stages.values()))
