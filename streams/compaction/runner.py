"""The compaction job: policies, merges, Rollups and garbage of the open groups, round by round.

Anybody may run one beside any other: the log decides whose merge, Rollup or Reclaim counts. A
round leaves nothing half done that matters, so it may be killed anywhere and run again.

    1. the read policy moves the catalog's holds, and since follows if nobody holds less
    2. what the planner names is merged, again until nothing is left to merge
    3. the log is rolled up and truncated where that is due
    4. garbage is reclaimed

A group that fails is passed over, and so is a collection of which a chunk is damaged; others go
on, and the round says what failed.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from streams.compaction import plan
from streams.compaction.collector import Collector
from streams.compaction.plan import Merge
from streams.compaction.work import Compacted, Failed, LostRace, Result, Wanted
from streams.errors import SlackwaterError
from streams.ids import CapabilityId, CollectionId
from streams.kafka.log import ChunkRef
from streams.progress import Antichain
from streams.storage import policy, upkeep
from streams.storage.events import Body, Right
from streams.storage.outcomes import RolledUp
from streams.storage.policy import Policy, catalog_hold, downgrade
from streams.storage.shards import Shards
from streams.storage.state import CollectionState

log = logging.getLogger(__name__)

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
    `wait_ms` is how long others get to move their holds after the policy's.
    `patient` leaves the garbage of this round to the next: a floor above chunks that were
    written a moment ago would make a writer in the middle of an append try again.
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
    """Runs rounds over the groups that `shards` has open; one thread."""

    shards: Shards
    merging: Merging
    collector: Collector
    now_ms: Callable[[], int]
    hold_of: Callable[[CollectionId], CapabilityId] = catalog_hold

    def run_once(self, wish: Wish) -> Round:
        """One round.

        Errors: InvalidUsage when a collection that is asked for is in no open group.
        """
        for each in sorted(wish.collections or ()):
            self.shards.group_of(each)
        done = Round()
        attempt(done, "read policies", partial(self._move_holds, wish, done))
        duties = [self._merge, self._tidy]
        for duty in reversed(duties) if wish.patient else duties:
            duty(wish, done)
        return done

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
        resting: set[CollectionId] = set()
        for _ in range(MOST_TURNS):
            wanted = [
                (state.id, merge)
                for _, state in self._states(wish)
                if state.id not in resting
                for merge in planned(state, wish)
            ]
            if not wanted:
                return
            for result in self.merging.compact_all(wanted):
                done.note(result)
                if isinstance(result, Failed) or (wish.whole and isinstance(result, Compacted)):
                    resting.add(result.collection)

    def _tidy(self, wish: Wish, done: Round) -> None:
        """Keep the groups small, each alone."""
        for group in self.shards.groups():
            if wish.collections is None or any(map(wish.covers, self._collections(group))):
                attempt(done, group, partial(self._tidy_group, group, wish, done))

    def _tidy_group(self, group: str, wish: Wish, done: Round) -> None:
        """Roll the log up where it is due, then reclaim garbage."""
        if upkeep.due(self.shards.group_state(group)) and isinstance(
            upkeep.roll_up(self.shards, group), RolledUp
        ):
            done.rolled_up.append(group)
        collector = self.collector
        if wish.orphans:
            done.reclaimed += collector.reclaim(group, collector.ends(group))
        else:
            done.reclaimed += collector.collect(group)


def planned(state: CollectionState, wish: Wish) -> tuple[Merge, ...]:
    """What to merge of a collection."""
    return plan.whole(state) if wish.whole else plan.geometric(state)


def attempt(done: Round, what: str, duty: Callable[[], None]) -> None:
    """Do it, or note why it could not be done. A defect of ours still raises."""
    try:
        duty()
    except SlackwaterError as error:
        log.warning("compaction will try again", extra={"of": what, "cause": str(error)})
        done.failed.append(Failed(CollectionId(what), str(error)))
