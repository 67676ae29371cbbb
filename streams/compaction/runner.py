"""The compaction job: policies, merges, Rollups and garbage of the open groups, round by round.

Anybody may run one beside any other: the log decides whose merge, Rollup or Reclaim counts. A
round leaves nothing half done that matters, so it may be killed anywhere and run again.

    1. the read policy moves the catalog's holds, and since follows if nobody holds less
    2. what the planner names is merged, again until nothing is left to merge
    3. the log is rolled up and truncated where that is due
    4. an idle log with leases that are overdue gets a record, so that its clock moves
    5. garbage is reclaimed; the topics of a group go when all in it was dropped long ago
    6. a data topic that has come to hold much gets more partitions

What is in a log or a topic may come from anybody. So whatever fails, with whatever exception,
fails alone: a collection's planning and merge, a group's Rollup, a group's reclaiming. The
round says what failed; it rests for longer each time, the others go on, and it is tried again
when its pause is over (`streams.compaction.rests`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from streams.compaction import partitions, plan, removal
from streams.compaction.collector import Collector
from streams.compaction.leases import Sight, sight_of
from streams.compaction.plan import Merge
from streams.compaction.rests import Rests
from streams.compaction.work import (
    Compacted,
    Failed,
    LostRace,
    Result,
    Wanted,
    log_failure,
    reason_of,
)
from streams.ids import CapabilityId, CollectionId
from streams.kafka.log import ChunkRef
from streams.progress import Antichain
from streams.storage import policy, upkeep
from streams.storage.events import Body, Reclaim, Right
from streams.storage.outcomes import RolledUp
from streams.storage.policy import Policy, catalog_hold, downgrade
from streams.storage.shards import Shards
from streams.storage.state import CollectionState

MOST_TURNS = 8
"""How often a round plans anew; races with other compactors may take some of them."""


class Merging(Protocol):
    """Carries out merges: in process (`work.Worker`) or on Spark (`job.SparkWorker`)."""

    def compact_all(self, wanted: Sequence[Wanted]) -> list[Result | Failed]:
        """What became of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a round is to do.

    `collections` are all when None. `whole` merges everything below upper, whatever it costs.
    `orphans` reclaims all that nothing names now, without waiting for writers to link it.
    `patient` leaves the garbage of this round to the next: a floor above chunks that were
    written a moment ago would make a writer in the middle of an append try again.
    `wait_ms` is how long others get to move their holds after the policy's.
    """

    collections: frozenset[CollectionId] | None = None
    policy: Policy | None = None
    whole: bool = False
    orphans: bool = False
    patient: bool = False
    wait_ms: int = 0

    def covers(self, collection: CollectionId) -> bool:
        """Whether the collection is meant."""
        return self.collections is None or collection in self.collections


@dataclass(frozen=True, slots=True)
class Held:
    """Since is not where the policy wishes it: `by` are the read capabilities in between."""

    collection: CollectionId
    since: Antichain
    wished: Antichain
    by: tuple[CapabilityId, ...]


@dataclass(slots=True)
class Round:
    """What a round has done."""

    held: list[Held] = field(default_factory=list)
    compacted: list[Compacted] = field(default_factory=list)
    lost: list[LostRace] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    rolled_up: list[str] = field(default_factory=list)
    reclaimed: list[ChunkRef] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def note(self, result: Result | Failed) -> None:
        """Take a result in."""
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

    One thread; or one for merges and one for the rest, which know nothing of one another but
    what the log says.
    `grown` has the partitions that data topics were seen to have, beyond one; `sights` what was
    seen of the groups that have leases.
    """

    shards: Shards
    merging: Merging
    collector: Collector
    now_ms: Callable[[], int]
    hold_of: Callable[[CollectionId], CapabilityId] = catalog_hold
    rests: Rests = field(init=False)
    grown: dict[str, int] = field(default_factory=dict, init=False)
    sights: dict[str, Sight] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rests", Rests(self.now_ms))

    def run_once(self, wish: Wish) -> Round:
        """One round.

        Errors: InvalidUsage when a collection that is asked for is in no open group.
        """
        for each in sorted(wish.collections or ()):
            self.shards.group_of(each)
        done = Round()
        self._attempt(done, "read policies", partial(self._move_holds, wish, done))
        duties = [self._merge, self._tidy]
        for duty in reversed(duties) if wish.patient else duties:
            duty(wish, done)
        return done

    def merge(self, wish: Wish) -> Round:
        """The merges of a round; however long they take, another thread may `tidy` beside."""
        done = Round()
        self._merge(wish, done)
        return done

    def tidy(self, wish: Wish) -> Round:
        """The Rollups and the garbage of a round."""
        done = Round()
        self._tidy(wish, done)
        return done

    def _attempt(self, done: Round, what: str, duty: Callable[[], None]) -> None:
        """Do it unless it rests, or note why it could not be done, and let it rest."""
        if not self.rests.is_due(what):
            return
        try:
            duty()
        except Exception as error:  # noqa: BLE001  what it reads may come from anybody; it fails alone
            log_failure(what, error)
            done.failed.append(Failed(CollectionId(what), reason_of(error)))
            self.rests.failed(what)
        else:
            self.rests.worked(what)

    def _collections(self, group: str) -> dict[CollectionId, CollectionState]:
        """The collections of a group that can be read; none when it has failed."""
        followed = self.shards.following.groups.get(group)
        if followed is None or followed.failure is not None:
            return {}
        states = followed.state.collections
        return {id_: each for id_, each in states.items() if not each.is_dropped}

    def _states(self, wish: Wish) -> list[tuple[str, CollectionState]]:
        return [
            (group, state)
            for group in self.shards.groups()
            for id_, state in sorted(self._collections(group).items())
            if wish.covers(id_)
        ]

    def _move_holds(self, wish: Wish, done: Round) -> None:
        if wish.policy is None:
            return
        now = self.now_ms()
        moves: list[tuple[str, Body]] = []
        for group, state in self._states(wish):
            body = downgrade(state, self.hold_of(state.id), wish.policy, now)
            if body is not None:
                moves.append((group, body))
        if moves:
            self.shards.submit(moves)
        if wish.wait_ms:
            self.shards.wait(lambda: not self._held(wish, now), wish.wait_ms)
            done.held += self._held(wish, now)

    def _held(self, wish: Wish, now_ms: int) -> list[Held]:
        """The collections of which somebody holds what the policy would let go."""
        assert wish.policy is not None
        found = [
            self._held_back(state, policy.wish(wish.policy, state.upper, now_ms))
            for _, state in self._states(wish)
        ]
        return [each for each in found if each is not None]

    def _held_back(self, state: CollectionState, wished: Antichain | None) -> Held | None:
        """Who else keeps since from where it is wished."""
        if wished is None or wished.precedes(state.since):
            return None
        by = sorted(
            name
            for name, each in state.capabilities.items()
            if each.right is Right.READ and each.frontier.strictly_precedes(wished)
        )
        others = tuple(name for name in by if name != self.hold_of(state.id))
        return Held(state.id, state.since, wished, others) if others else None

    def _merge(self, wish: Wish, done: Round) -> None:
        """Merge until nothing is worth it; what was merged whole is not looked at again."""
        over: set[CollectionId] = set()
        for _ in range(MOST_TURNS):
            wanted = self._wanted(wish, done, over)
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
                        over.update({name} if wish.whole else ())
                        self.rests.worked(name)
                    case _:
                        pass

    def _wanted(self, wish: Wish, done: Round, over: set[CollectionId]) -> list[Wanted]:
        """What to merge now; the small ones first, so that they wait for no large one."""
        wanted: list[Wanted] = []
        for _, state in self._states(wish):
            if state.id in over or not self.rests.is_due(state.id):
                continue
            try:
                wanted += [(state.id, merge) for merge in planned(state, wish)]
            except Exception as error:  # noqa: BLE001  a state comes of what anybody appended
                over.add(state.id)
                log_failure(state.id, error)
                done.note(Failed(state.id, reason_of(error)))
                self.rests.failed(state.id)
        return sorted(wanted, key=lambda each: each[1].size)

    def _merged(self, wanted: Sequence[Wanted]) -> list[Result | Failed]:
        """What became of each; all have failed when those who carry them out have."""
        try:
            return self.merging.compact_all(wanted)
        except Exception as error:  # noqa: BLE001  of whatever carries merges out; upkeep goes on
            log_failure("merges", error)
            return [Failed(collection, reason_of(error)) for collection, _ in wanted]

    def _tidy(self, wish: Wish, done: Round) -> None:
        """Keep the groups small: the log rolled up where that is due, garbage reclaimed."""
        for group in self.shards.groups():
            if wish.collections is None or any(map(wish.covers, self._collections(group))):
                duties: dict[str, Callable[[], None]] = {
                    "rollup": partial(self._roll_up, group, done),
                    "leases": partial(self._pass_time, group),
                    "garbage": partial(self._reclaim, group, wish, done),
                    "partitions": partial(self._grow, group),
                    "removal": partial(self._remove, group, done),  # the last: it is gone then
                }
                for name, duty in duties.items():
                    self._attempt(done, f"group {group}: {name}", duty)

    def _roll_up(self, group: str, done: Round) -> None:
        is_due = upkeep.due(self.shards.group_state(group))
        if is_due and isinstance(upkeep.roll_up(self.shards, group), RolledUp):
            done.rolled_up.append(group)

    def _pass_time(self, group: str) -> None:
        """Append a record that changes nothing, if only that can end leases."""
        now = self.now_ms()
        if self._sight(group, now).needs_record(now):
            self.shards.sync_group(group)  # what is on its way may be a renewal
            if self._sight(group, now).needs_record(now):
                self.shards.submit([(group, Reclaim({}))])
                self._sight(group, now)

    def _sight(self, group: str, now_ms: int) -> Sight:
        """What is seen of the group's leases now; kept if there are any."""
        sight = sight_of(self.sights.get(group), self.shards.group_state(group), now_ms)
        if sight.overdue_ms:
            self.sights[group] = sight
        else:
            self.sights.pop(group, None)
        return sight

    def _remove(self, group: str, done: Round) -> None:
        if removal.remove(self.shards, group, self.now_ms()):
            done.removed.append(group)

    def _reclaim(self, group: str, wish: Wish, done: Round) -> None:
        collector = self.collector
        if wish.orphans:
            done.reclaimed += collector.reclaim(group, collector.ends(group))
        else:
            done.reclaimed += collector.collect(group)

    def _grow(self, group: str) -> None:
        """Give the data topic the partitions that it should have; brokers are asked once."""
        wanted = partitions.wanted(self.shards.group_state(group))
        if wanted > self.grown.get(group, 1):
            self.shards.grow(group, wanted)
            self.grown[group] = wanted


def planned(state: CollectionState, wish: Wish) -> tuple[Merge, ...]:
    """What to merge of a collection."""
    return plan.whole(state) if wish.whole else plan.geometric(state)
