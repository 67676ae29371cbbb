"""Rebasing: binds the event times of a collection to times of the clock. Pure.

A rebase has one import, whose times are event times, and an export on the timeline of the
clock. Each interval takes the updates of an interval of event times, all at one time of the
clock. With f(t) the *bound frontier* at a time t of the clock:

    export at t   =   import as of the event times before f(t)

    import   event time    [ 0 ......... f1 )[ f1 .... f2 )[ f2 ..  not final yet
                                          |             |
    export   clock         [ t1 ......... ............ t2 ......
                            f(t) = f1                   f(t) = f2

The export's shard carries f as the one number of its binding. The Append of an interval names
both ends and counts only if it continues the binding (rule 18). So of replicas that race, which
may have seen different uppers of the import, one counts, and each update is stamped once. A
rebase has no state but its position. Its hold on the import is f - 1, so that the updates from
f on stay distinct from those before (rule 5).

The first interval is the snapshot of the import at its upper. It is at the first time of the
export. Times are chosen as those of messages are (`streams.compute.reclocking`, rule 27), and
the export's time moves with the clock when the import's does not. When the import is complete,
so is the export.
"""

from typing import assert_never

from streams.compute.binding import Offsets
from streams.compute.reclocking import (
    MAX_SKEW_MS,
    Clock,
    Follow,
    Ingest,
    Pause,
    Position,
    Rebuild,
    Tick,
    decide_lost,
)
from streams.compute.stepping import Idle, Input, Overtaken, Step, Wait, hold_at, next_step
from streams.ids import MINIMUM_TIME, Timestamp
from streams.progress import EMPTY, END, Antichain, end_of, frontier

FRONTIER = 0
"""The key of the binding: the event time before which all updates are in the export."""

Rebasing = Ingest | Tick | Rebuild | Follow | Pause | Overtaken


def bound_frontier(bound: Offsets) -> Antichain | None:
    """Return the frontier of event times in a binding, empty at the end; None before any."""
    if FRONTIER not in bound:
        return None
    at = bound[FRONTIER]
    return EMPTY if at == END else frontier(at)


def hold(bound: Offsets) -> Antichain | None:
    """Return the hold on the import; None: leave it unchanged.

    `bound` is the shard's binding as read back (rule 21).
    """
    reached = bound_frontier(bound)
    return None if reached is None else hold_at(reached)


def next_interval(
    own: Position, shard: Position, read: Input, clock: Clock, budget: int
) -> Rebasing:
    """Return the next action, `own` being the position that this replica knows of.

    `read` has the batches of the import from the bound frontier on. Overtaken: its history is
    gone, so that what is to be stamped cannot be told from what was.

    Units: `budget` is in bytes of batches; the snapshot has none.
    """
    if own != shard:
        return decide_lost(own, shard)
    if shard.frontier.is_empty or clock.skew_ms is None:
        return Pause(None)
    reached = bound_frontier(shard.offsets)
    if reached is None:
        return _snapshot(shard, read, clock)
    if reached.is_empty:
        return Tick(shard.frontier, EMPTY, shard.offsets)
    return _next(shard, reached, read, clock, budget)


def _next(
    shard: Position, reached: Antichain, read: Input, clock: Clock, budget: int
) -> Rebasing:
    match next_step(reached, [read], budget=budget):
        case Overtaken() as overtaken:
            return overtaken
        case Step(_, to):
            now = _now(shard, clock)
            return Ingest(shard.frontier, _after(now), now, shard.offsets, _to(to))
        case Idle(_, to):
            return _tick(shard, clock, _to(to))
        case Wait():
            return _tick(shard, clock, shard.offsets)
        case other:
            assert_never(other)


def _snapshot(shard: Position, read: Input, clock: Clock) -> Ingest | Pause:
    """Take all there is, once there is something to read.

    A view has yet to append its first contents while its upper is its since. A source of event
    times begins at the least time, without contents.
    """
    if read.since == read.upper != frontier(MINIMUM_TIME):
        return Pause(None)
    lower, upper = shard.frontier, _after(_now(shard, clock))
    return Ingest(lower, upper, lower.time, shard.offsets, _to(read.upper))


def _tick(shard: Position, clock: Clock, reached: Offsets) -> Tick | Pause:
    """Advance over an interval without updates, if that is due."""
    if clock.skew_ms is None or abs(clock.skew_ms) > MAX_SKEW_MS:
        return Pause(None)
    due_ms = shard.frontier.time + clock.tick_ms
    if clock.earlier_ms < due_ms:
        return Pause(due_ms)
    return Tick(shard.frontier, _after(_now(shard, clock)), shard.offsets, reached)


def _now(shard: Position, clock: Clock) -> Timestamp:
    return Timestamp(max(clock.earlier_ms, shard.frontier.time))


def _after(time: Timestamp) -> Antichain:
    return frontier(time + 1)


def _to(reached: Antichain) -> Offsets:
    return {FRONTIER: end_of(reached)}
