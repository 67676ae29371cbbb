"""Expires leases in idle logs by appending records without effect. Pure.

A log's clock moves with its records, at most `MAX_TICK_MS` at each, so in an idle log an
abandoned lease would never end and would hold the frontiers back. The compactor appends a
record without effect every `MAX_TICK_MS`, as long as a lease of the group is overdue.

A lease counts as overdue when its remaining time, as of the record where it was first seen, has
passed by this process's clock. That decides only when a record is sent: leases end by append
times, in the fold, so a fast clock costs records but ends no lease early. A holder that renews
in time has a new expiry by then, so its log gets no record.

Several processes may do this at once: a record by any of them postpones the others'.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from streams.ids import Offset
from streams.storage.log.machine import MAX_TICK_MS
from streams.storage.log.state import State


@dataclass(frozen=True, slots=True)
class ObservedLeases:
    """The leases of a group after the record at `upto`, first seen at `seen_ms`.

    `overdue_ms` maps each expiry to the time at which it is overdue. Units: milliseconds, times
    by this process's clock, expiries by the log's.
    """

    upto: Offset
    seen_ms: int
    overdue_ms: Mapping[int, int]

    def needs_record(self, now_ms: int) -> bool:
        """Whether a lease is overdue, and the log was idle for as long as a record counts."""
        is_silent = now_ms - self.seen_ms >= MAX_TICK_MS
        return is_silent and any(
            overdue_ms <= now_ms for overdue_ms in self.overdue_ms.values()
        )


def sight_of(last: ObservedLeases | None, state: State, now_ms: int) -> ObservedLeases:
    """Return what is known of the group now, given the previous observation `last`.

    An expiry that was seen before keeps its overdue time: each record that is sent for it ends
    the idle period.
    """
    if last is not None and last.upto == state.upto:
        return last
    overdue_ms = {} if last is None else last.overdue_ms
    since = min(state.appended_ms, now_ms) - state.clock_ms
    overdue = {expiry: overdue_ms.get(expiry, since + expiry) for expiry in expiries(state)}
    return ObservedLeases(state.upto, now_ms, overdue)


def expiries(state: State) -> frozenset[int]:
    """Return when the leases and the stages of the group end, by the log's clock."""
    if state.lease_ends.next_ms is None:
        return frozenset()
    leases = {
        capability.expires_ms
        for collection in state.collections.live.values()
        for capability in collection.capabilities.values()
        if capability.expires_ms is not None
    }
    return frozenset(leases.union(stage.expires_ms for stage in state.stages.values()))
