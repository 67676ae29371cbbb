"""Decides the next step of a dataflow on a replica, from frontiers alone. Pure.

A dataflow's *state* on a replica reflects all updates of its imports before a frontier `s`. A
*step* takes the imports' updates of `[s, u)`, derives the output's updates of `[s, u)` and
leaves state at `u`. The output is appended to the output's shard, whose upper `U` other
replicas of the dataflow move as well. The invariants that make every interleaving exact:

    s is the replica's own, U is shared             a step starts at s, never at U (rule 16)
    appended = [max(s, U), u), or nothing          the step is whole, the append is clipped
    u <= meet of the imports' uppers               what is read is final
    since of every import <= s - 1                 history stays apart from change (rule 5)
    restart at a checkpoint f <= U                 nothing above U is known to be appended

If an import's since were `s`, its history would be advanced to `s`, where the next step would
read it again as changes: hence `s - 1`.

Times are ordered totally, so frontiers are compared through their one element. The empty
frontier stands for "complete": of an upper, that all is final; of a since, that nothing can
be read; of `scheduled`, that nothing is due.

This module reads no shard, runs no step and has no clock. Ingestion, whose input is a raw topic
and not a shard, has its own decisions in `reclocking`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from streams.compute.checkpoints import Checkpoint, HydrationCheckpoint, newest
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp
from streams.progress import EMPTY, END, Antichain, frontier, meet_all


@dataclass(frozen=True, slots=True)
class InputBatch:
    """One batch of an import as in its shard; `size` is in bytes, 0 if empty."""

    lower: Antichain
    upper: Antichain
    size: int


@dataclass(frozen=True, slots=True)
class Input:
    """An import as far as this replica has folded its log.

    `batches` holds at least every batch with updates that overlaps `[s, upper)`; older ones and
    empty ones may be left out. `since` is from the same state as `batches`.
    """

    collection: CollectionId
    since: Antichain
    upper: Antichain
    batches: tuple[InputBatch, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Run the dataflow over `[lower, upper)` of all its imports."""

    lower: Antichain
    upper: Antichain


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing changes in `[lower, upper)`: move state and output there without a step."""

    lower: Antichain
    upper: Antichain


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done; `blocked_by` names the imports that block it, if any."""

    blocked_by: tuple[CollectionId, ...] = ()


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Some import can no longer be read at `as_of`: its since is beyond it.

    From `next_step`: a hold was lost, for example because a lease expired while this process
    was suspended; the state is useless, so resume as after a restart. From `resume`: the
    output's upper as folded here is older than the other replicas' Appends, so fold its log to
    the end and retry; if that does not help, the dataflow's own hold on its imports was lost,
    which is an error to report.
    """

    as_of: Timestamp
    since: Antichain


Next = Step | Idle | Wait | Overtaken


@dataclass(frozen=True, slots=True)
class FromCheckpoint:
    """Continue from the stored state at this frontier."""

    frontier: Timestamp


@dataclass(frozen=True, slots=True)
class Hydrate:
    """Drop any state, and build it from the imports' snapshots at `as_of`.

    `done` slices of the stored plan are in state already (rule 20); 0 starts from nothing. The
    state is then at `as_of + 1`.
    """

    as_of: Timestamp
    done: int = 0


Resume = FromCheckpoint | Hydrate | Overtaken


def next_step(
    own: Antichain,
    inputs: Sequence[Input],
    *,
    scheduled: Antichain = EMPTY,
    in_flight: bool = False,
    budget: int | None = None,
    limit: Antichain = EMPTY,
) -> Next:
    """Return the next action of a dataflow whose state is at `own`.

    `scheduled` is the earliest time at which the output may change without input (rule 44).
    While a step is in flight there is nothing to decide, above all no idle append (rule 22):
    its state would overtake the step's. Nothing is computed beyond `limit`, which is the
    output's upper for a replica that may not write.

    Units: `budget` is in bytes of import batches to read; None reads all there is.
    """
    target = meet_all((*(source.upper for source in inputs), limit))
    if in_flight or own.is_empty:
        return Wait()
    before, since = hold_at(own).time, _join_all(source.since for source in inputs)
    if not _readable(since, before):
        return Overtaken(before, since)
    if not own.strictly_precedes(target):
        return Wait(tuple(source.collection for source in inputs if source.upper == target))
    news = [b for source in inputs for b in source.batches if _has_news(b, own, target)]
    if not news and not scheduled.strictly_precedes(target):
        return Idle(own, target)
    end = frontier(END) if target.is_empty else target  # every change has a time
    return Step(own, _within_budget(end, news, budget))


def can_hydrate(as_of: Timestamp, inputs: Iterable[Input]) -> bool:
    """Whether every import is final at `as_of`, so that the snapshot can be read."""
    return not any(source.upper.less_equal(as_of) for source in inputs)


def clip(step: Step | Idle, shard_upper: Antichain) -> tuple[Antichain, Antichain] | None:
    """Return the part of a step that is still open in the output's shard; None if none is.

    The whole step was computed, and its state is kept, whatever part is appended (rule 16).
    """
    lower = step.lower.join(shard_upper)
    return (lower, step.upper) if lower.strictly_precedes(step.upper) else None


def resume(
    checkpoints: Iterable[Checkpoint],
    shard_upper: Antichain,
    input_sinces: Iterable[Antichain],
    birth_as_of: Timestamp,
    hydration: HydrationCheckpoint | None = None,
) -> Resume:
    """Return where a replica that has just started finds its state (rule 17).

    `checkpoints` are those of the dataflow's present fingerprint. The greatest one at or below
    the shard's upper is used, unless some import's since has reached it. Otherwise state is
    rebuilt at the last time that is already appended, or at the first one if nothing is;
    `hydration` is the stored progress of such a rebuild, or None.
    """
    since = _join_all(input_sinces)
    best = newest(checkpoints, shard_upper)
    if best is not None and _readable(since, hold_at(frontier(best.frontier)).time):
        return FromCheckpoint(best.frontier)
    if hydration is not None and _readable(since, hydration.as_of):
        return Hydrate(hydration.as_of, hydration.done)
    as_of = hydration_time(shard_upper, birth_as_of)
    return Hydrate(as_of) if _readable(since, as_of) else Overtaken(as_of, since)


def hydration_time(shard_upper: Antichain, birth_as_of: Timestamp) -> Timestamp:
    """Return the as_of to build state at: the last appended time, or the first time ever."""
    if shard_upper.is_empty:
        return birth_as_of
    return max(birth_as_of, Timestamp(shard_upper.time - 1))


def hold_at(consumed: Antichain) -> Antichain:
    """Return the hold after all times before `consumed` were consumed: one less (rule 5)."""
    if consumed.is_empty:
        return consumed
    return frontier(max(MINIMUM_TIME, consumed.time - 1))


def holds(
    checkpoints: Iterable[Checkpoint],
    shard_upper: Antichain,
    hydration: HydrationCheckpoint | None = None,
) -> Antichain | None:
    """Return this replica's hold on each of its imports; None: leave it unchanged.

    It is one less than the oldest state that a restart could still need, which is the greatest
    checkpoint at or below the shard's upper *as read back* (rules 17 and 21), and not beyond
    the as_of of a hydration in progress.
    """
    times = [] if hydration is None else [frontier(hydration.as_of)]
    needed = newest(checkpoints, shard_upper)
    if needed is not None:
        times.append(hold_at(frontier(needed.frontier)))
    return meet_all(times) if times else None


def _readable(since: Antichain, as_of: Timestamp) -> bool:
    return since.less_equal(as_of)


def _has_news(batch: InputBatch, own: Antichain, target: Antichain) -> bool:
    overlaps = own.strictly_precedes(batch.upper) and batch.lower.strictly_precedes(target)
    return batch.size > 0 and overlaps


def _within_budget(
    target: Antichain, news: Sequence[InputBatch], budget: int | None
) -> Antichain:
    """Return the last batch upper up to which the input fits the budget (rule 26).

    Steps end at uppers of batches, so that a step takes whole batches, at least one, however
    large. A cut through a merged batch of another import is still exact: its times from since
    on are distinct.
    """
    if budget is None or not news:
        return target
    ordered = sorted(news, key=lambda batch: batch.lower.time)
    lowers = [batch.lower.time for batch in ordered]
    filled = [0, *accumulate(batch.size for batch in ordered)]
    if filled[-1] <= budget:
        return target
    within = {b.upper.time for b in news if b.upper.strictly_precedes(target)}
    cuts = [frontier(time) for time in sorted(within)] or [target]
    fitting = bisect_right(cuts, budget, key=lambda cut: filled[bisect_left(lowers, cut.time)])
    return cuts[max(0, fitting - 1)]


def _join_all(sinces: Iterable[Antichain]) -> Antichain:
    result = frontier(MINIMUM_TIME)
    for since in sinces:
        result = result.join(since)
    return result
