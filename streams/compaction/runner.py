"""The compaction job: policies, merges, Rollups and garbage collection, round by round.

Several jobs may run at once: the log decides whose merge, Rollup or Reclaim counts. A round may
be killed at any point and run again.

    1. the read policy moves the catalog's holds, and since follows unless others hold it back
    2. merges are planned and executed until none is left
    3. the log is rolled up and truncated if that is due
    4. an idle log with overdue leases gets a record, so that its clock moves
    5. garbage is reclaimed; a group's topics are deleted long after all in it was dropped
    6. a data topic that has grown gets more partitions

Any client may have written what is in a log or a topic. So failures, with any exception, are
isolated: a collection's planning and merge, a group's Rollup, a group's reclaiming. The round
reports what failed and continues with the others; failed work is retried with growing pauses
(`streams.compaction.backoff`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from streams.compaction import partitions, plan, topic_deletion
from streams.compaction.backoff import Backoffs
from streams.compaction.collector import Collector
from streams.compaction.leases import ObservedLeases, sight_of
from streams.compaction.merge_execution import (
    Compacted,
    Failed,
    LostRace,
    Result,
    log_failure,
    reason_of,
)
from streams.compaction.plan import Merge
from streams.compaction.read_ahead import Wanted
from streams.ids import CapabilityId, CollectionId
from streams.kafka.log import ChunkRef
from streams.progress import Antichain
from streams.storage import policy
from streams.storage.client import maintenance
from streams.storage.client.shards import Shards
from streams.storage.log.events import Body, Reclaim, Right
from streams.storage.log.outcomes import RolledUp
from streams.storage.log.state import CollectionState
from streams.storage.policy import Policy, catalog_hold, downgrade

MOST_TURNS = 8
"""Maximum of planning passes in a round; races with other compactors may take some."""


class Merging(Protocol):
    """Executes merges: in process (`merge_execution`) or on Spark (`job.SparkWorker`)."""

    def compact_all(self, wanted: Sequence[Wanted]) -> list[Result | Failed]:
        """Return the result of each merge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRequest:
    """What a round has to do.

    `collections` None means all. `whole` merges everything below upper, whatever it costs.
    `orphans` reclaims all unnamed chunks now, without waiting for writers to link them.
    `patient` leaves the garbage of this round to the next: a floor above recently written
    chunks would make a writer in the middle of an append retry. `wait_ms` is how long others
    have to move their holds after the policy's.
    """

    collections: frozenset[CollectionId] | None = None
    policy: Policy | None = None
    whole: bool = False
    orphans: bool = False
    patient: bool = False
    wait_ms: int = 0

    def covers(self, collection: CollectionId) -> bool:
        """Whether the collection is selected."""
        return self.collections is None or collection in self.collections


@dataclass(frozen=True, slots=True)
class HeldSince:
    """Since is behind the policy's: `by` are the read capabilities that hold it back."""

    collection: CollectionId
    since: Antichain
    wished: Antichain
    by: tuple[CapabilityId, ...]


@dataclass(slots=True)
class RoundResult:
    """The results of a round."""

    held: list[HeldSince] = field(default_factory=list)
    compacted: list[Compacted] = field(default_factory=list)
    lost: list[LostRace] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    rolled_up: list[str] = field(default_factory=list)
    reclaimed: list[ChunkRef] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def note(self, result: Result | Failed) -> None:
        """Add a result."""
        match result:
            case Compacted():
                self.compacted.append(result)
            case LostRace():
                self.lost.append(result)
            case Failed():
                self.failed.append(result)


@dataclass(frozen=True, slots=True)
class Compaction:
    """Runs rounds over the groups that `shards` has open.

    One thread; or one for merges and one for the rest, which share nothing but the log. `grown`
    has the known partition counts of extended data topics; `sights` the observed leases of
    groups.
    """

    shards: Shards
    merging: Merging
    collector: Collector
    now_ms: Callable[[], int]
    hold_of: Callable[[CollectionId], CapabilityId] = catalog_hold
    rests: Backoffs = field(init=False)
    grown: dict[str, int] = field(default_factory=dict, init=False)
    sights: dict[str, ObservedLeases] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rests", Backoffs(self.now_ms))

    def run_once(self, request: CompactionRequest) -> RoundResult:
        """Run one round.

        Errors: InvalidUsage if a selected collection is in no open group.
        """
        for collection in sorted(request.collections or ()):
            self.shards.group_of(collection)
        done = RoundResult()
        self._attempt(done, "read policies", partial(self._move_holds, request, done))
        duties = [self._merge, self._tidy]
        for duty in reversed(duties) if request.patient else duties:
            duty(request, done)
        return done

    def merge(self, request: CompactionRequest) -> RoundResult:
        """Run the merges of a round; meanwhile another thread may `tidy`."""
        done = RoundResult()
        self._merge(request, done)
        return done

    def tidy(self, request: CompactionRequest) -> RoundResult:
        """Run the Rollups and the garbage collection of a round."""
        done = RoundResult()
        self._tidy(request, done)
        return done

    def _attempt(self, done: RoundResult, what: str, duty: Callable[[], None]) -> None:
        """Run a work item unless it is in backoff; record its failure."""
        if not self.rests.is_due(what):
            return
        try:
            duty()
        except Exception as error:  # noqa: BLE001  its input may come from any client; failures are isolated
            log_failure(what, error)
            done.failed.append(Failed(CollectionId(what), reason_of(error)))
            self.rests.failed(what)
        else:
            self.rests.worked(what)

    def _collections(self, group: str) -> dict[CollectionId, CollectionState]:
        """Return the readable collections of a group; none if it has failed."""
        followed = self.shards.following.groups.get(group)
        if followed is None or followed.failure is not None:
            return {}
        states = followed.state.collections
        return {
            id_: collection for id_, collection in states.items() if not collection.is_dropped
        }

    def _states(self, request: CompactionRequest) -> list[tuple[str, CollectionState]]:
        return [
            (group, state)
            for group in self.shards.groups()
            for id_, state in sorted(self._collections(group).items())
            if request.covers(id_)
        ]

    def _move_holds(self, request: CompactionRequest, done: RoundResult) -> None:
        if request.policy is None:
            return
        now = self.now_ms()
        moves: list[tuple[str, Body]] = []
        for group, state in self._states(request):
            body = downgrade(state, self.hold_of(state.id), request.policy, now)
            if body is not None:
                moves.append((group, body))
        if moves:
            self.shards.submit(moves)
        if request.wait_ms:
            self.shards.wait(lambda: not self._held(request, now), request.wait_ms)
            done.held += self._held(request, now)

    def _held(self, request: CompactionRequest, now_ms: int) -> list[HeldSince]:
        """Return the collections whose since is held back behind the policy's."""
        assert request.policy is not None
        held_back = [
            self._held_back(state, policy.desired_since(request.policy, state.upper, now_ms))
            for _, state in self._states(request)
        ]
        return [hold for hold in held_back if hold is not None]

    def _held_back(self, state: CollectionState, wished: Antichain | None) -> HeldSince | None:
        """Return the read capabilities that hold since behind the desired one."""
        if wished is None or wished.precedes(state.since):
            return None
        by = sorted(
            name
            for name, capability in state.capabilities.items()
            if capability.right is Right.READ and capability.frontier.strictly_precedes(wished)
        )
        others = tuple(name for name in by if name != self.hold_of(state.id))
        return HeldSince(state.id, state.since, wished, others) if others else None

    def _merge(self, request: CompactionRequest, done: RoundResult) -> None:
        """Merge until nothing is worth it; a collection that was merged whole is skipped."""
        over: set[CollectionId] = set()
        for _ in range(MOST_TURNS):
            wanted = self._wanted(request, done, over)
            if not wanted:
                return
            for result in self._merged(wanted):
                done.note(result)
                name = result.collection
                match result:
                    case Failed() if name not in over:
                        over.add(name)
                        self.rests.failed(name)
                    case Compacted():
                        over.update({name} if request.whole else ())
                        self.rests.worked(name)
                    case _:
                        pass

    def _wanted(
        self, request: CompactionRequest, done: RoundResult, over: set[CollectionId]
    ) -> list[Wanted]:
        """The merges to do now, small ones first, so that they do not wait for large ones."""
        wanted: list[Wanted] = []
        for _, state in self._states(request):
            if state.id in over or not self.rests.is_due(state.id):
                continue
            try:
                wanted += [(state.id, merge) for merge in planned(state, request)]
            except Exception as error:  # noqa: BLE001  any client's events make the state
                over.add(state.id)
                log_failure(state.id, error)
                done.note(Failed(state.id, reason_of(error)))
                self.rests.failed(state.id)
        return sorted(wanted, key=lambda entry: entry[1].size)

    def _merged(self, wanted: Sequence[Wanted]) -> list[Result | Failed]:
        """Return the result of each merge; if the worker fails, all of them have failed."""
        try:
            return self.merging.compact_all(wanted)
        except Exception as error:  # noqa: BLE001  of the worker; maintenance continues
            log_failure("merges", error)
            return [Failed(collection, reason_of(error)) for collection, _ in wanted]

    def _tidy(self, request: CompactionRequest, done: RoundResult) -> None:
        """Keep the groups small: roll up logs that are due, reclaim garbage."""
        for group in self.shards.groups():
            if request.collections is None or any(
                map(request.covers, self._collections(group))
            ):
                duties: dict[str, Callable[[], None]] = {
                    "rollup": partial(self._roll_up, group, done),
                    "leases": partial(self._pass_time, group),
                    "garbage": partial(self._reclaim, group, request, done),
                    "partitions": partial(self._grow, group),
                    # last: the group is gone then
                    "removal": partial(self._remove, group, done),
                }
                for name, duty in duties.items():
                    self._attempt(done, f"group {group}: {name}", duty)

    def _roll_up(self, group: str, done: RoundResult) -> None:
        is_due = maintenance.due(self.shards.group_state(group))
        if is_due and isinstance(maintenance.roll_up(self.shards, group), RolledUp):
            done.rolled_up.append(group)

    def _pass_time(self, group: str) -> None:
        """Append a record without effect, if only that can end leases."""
        now = self.now_ms()
        if self._sight(group, now).needs_record(now):
            self.shards.sync_group(group)  # a record in flight may be a renewal
            if self._sight(group, now).needs_record(now):
                self.shards.submit([(group, Reclaim({}))])
                self._sight(group, now)

    def _sight(self, group: str, now_ms: int) -> ObservedLeases:
        """Return the observed leases of the group; saved if there are any."""
        sight = sight_of(self.sights.get(group), self.shards.group_state(group), now_ms)
        if sight.overdue_ms:
            self.sights[group] = sight
        else:
            self.sights.pop(group, None)
        return sight

    def _remove(self, group: str, done: RoundResult) -> None:
        if topic_deletion.remove(self.shards, group, self.now_ms()):
            done.removed.append(group)

    def _reclaim(self, group: str, request: CompactionRequest, done: RoundResult) -> None:
        collector = self.collector
        if request.orphans:
            done.reclaimed += collector.reclaim(group, collector.ends(group))
        else:
            done.reclaimed += collector.collect(group)

    def _grow(self, group: str) -> None:
        """Extend the data topic to the desired partitions; brokers are asked once."""
        wanted = partitions.wanted(self.shards.group_state(group))
        if wanted > self.grown.get(group, 1):
            self.shards.grow(group, wanted)
            self.grown[group] = wanted


def planned(state: CollectionState, request: CompactionRequest) -> tuple[Merge, ...]:
    """Plan the merges of a collection."""
    return plan.whole(state) if request.whole else plan.geometric(state)
