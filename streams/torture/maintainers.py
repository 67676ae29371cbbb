"""Actors that maintain collections: advance since, merge batches, collect garbage."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from streams.compaction.runner import Compaction, CompactionRequest, RoundResult
from streams.progress import frontier
from streams.storage.client import maintenance
from streams.storage.client.handles import NotForward, ReadCapability
from streams.storage.log.events import Right
from streams.storage.log.outcomes import RolledUp
from streams.storage.log.state import CollectionState
from streams.torture.actor_context import ActorPlace, Target
from streams.torture.journal import Event, Wrong

DAMAGE = (" is missing", " is a tombstone", "expected checksum", "expected key")
"""The message of a merge about a damaged chunk; nothing here damages any."""


@dataclass(slots=True)
class CapabilityMover:
    """Moves the shared read capabilities on; looks whether frontiers are as they must be."""

    seat: ActorPlace
    since: dict[str, int] = field(default_factory=dict)
    upper: dict[str, int] = field(default_factory=dict)

    def step(self) -> None:
        """Look at a collection, and let its history go. Errors: Determinate, Indeterminate."""
        target, storage = self.seat.some_target(), self.seat.storage
        shared = ReadCapability(target.id, frontier(0), target.read)
        shared = storage.heartbeat(shared)
        storage.shards.sync(target.id)
        state = storage.shards.state(target.id)
        for what in self.oddities(target, state):
            self.seat.journal.note(Wrong(self.seat.name, f"{target.id}: {what}"))
        lower, upper = int(shared.frontier.time), int(state.upper.time)
        if upper - 1 <= lower:
            return
        try:
            storage.downgrade(shared, self.seat.rng.randint(lower, upper - 1))
        except NotForward:
            return  # another keeper was faster

    def oddities(self, target: Target, state: CollectionState) -> Iterator[str]:
        """The violation in a collection's frontiers."""
        since, upper = int(state.since.time), int(state.upper.time)
        for name, seen, now in (
            ("since", self.since.get(target.id, 0), since),
            ("upper", self.upper.get(target.id, 0), upper),
        ):
            if now < seen:
                yield f"{name} went back from {seen} to {now}"
        self.since[target.id], self.upper[target.id] = since, upper
        for capability in state.capabilities.values():
            stands = int(capability.frontier.time)
            name, mine = (
                ("since", since) if capability.right is Right.READ else ("upper", upper)
            )
            if mine > stands:
                yield f"{name} {mine} has passed a capability at {stands}"


@dataclass(slots=True)
class Compactor:
    """Compacts in any of the ways there are, politely or not; rolls logs up and collects."""

    seat: ActorPlace
    compaction: Compaction

    def step(self) -> None:
        """One round, of one kind. Errors: Determinate, Indeterminate."""
        shards, rng = self.compaction.shards, self.seat.rng
        groups = sorted({target.group for target in self.seat.targets})
        shards.open(*groups)
        shards.sync()
        if rng.random() < 0.3:  # noqa: PLR2004  now and then
            self._roll_up(rng.choice(groups))
            return
        request = CompactionRequest(
            whole=rng.random() < 0.3,  # noqa: PLR2004  mostly what is worth it
            orphans=rng.random() < 0.4,  # noqa: PLR2004  often what writers hate
            patient=rng.random() < 0.5,  # noqa: PLR2004  either way
        )
        self._note(self.compaction.run_once(request))

    def _roll_up(self, group: str) -> None:
        """Roll a log up, due or not, and reclaim."""
        shards = self.compaction.shards
        if isinstance(maintenance.roll_up(shards, group), RolledUp):
            self.seat.journal.note(Event(self.seat.name, "rollups"))
        freed = maintenance.collect(shards, group)
        self.seat.journal.note(Event(self.seat.name, "chunks reclaimed", len(freed)))

    def _note(self, done: RoundResult) -> None:
        """Count the work done, and record impossible results."""
        who, journal = self.seat.name, self.seat.journal
        journal.note(Event(who, "compactions", len(done.compacted)))
        journal.note(Event(who, "compactions lost", len(done.lost)))
        journal.note(Event(who, "chunks reclaimed", len(done.reclaimed)))
        for failed in done.failed:
            if any(word in failed.reason for word in DAMAGE):
                journal.note(Wrong(who, f"{failed.collection}: {failed.reason}"))
