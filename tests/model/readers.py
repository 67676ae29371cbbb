"""Who reads: snapshots at a time, then what changes from there on, each compared at once.

One reader announces itself: a leased hold with a plan, so that neither its times nor its
chunks are taken from under it. Another just reads what it has folded; when a chunk is missing
it starts that read anew, and it never gives a wrong answer either.
"""

from collections import Counter
from collections.abc import Generator

from streams.compute.stepping import hold_at
from streams.ids import CapabilityId, CollectionId, Offset, Timestamp
from streams.progress import frontier
from streams.storage.log.events import Acquire, Downgrade, Drop, Right
from streams.storage.log.outcomes import Acquired
from streams.storage.log.state import CollectionState
from tests.model.mutations import Mutation
from tests.model.truth import Truth, visible
from tests.model.world import (
    Client,
    Disk,
    Process,
    Row,
    Update,
    World,
    WrongAnswer,
    clipped,
    pieces,
)


class Reader:
    """One reader, from one start to the next."""

    def __init__(self, world: World, truth: Truth, disk: Disk, *, announced: bool) -> None:
        self.world, self.truth, self.announced = world, truth, announced
        self.client = Client(world)
        self.hold = CapabilityId(world.name("r"))

    def run(self) -> Process:
        """Read one collection after the other."""
        while True:
            yield
            name = self.world.rng.choice(visible(self.world))
            self.client.sync(name)
            if self.world.resting or not self.client.knows(name):
                continue
            if self.announced:
                yield from self._announced(name)
            else:
                yield from self._snapshot(name)

    def _announced(self, name: CollectionId) -> Process:
        self.hold = CapabilityId(self.world.name("r"))
        body = Acquire(
            collection=name,
            capability=self.hold,
            right=Right.READ,
            lease_ms=self.world.weather.lease,
            plan=Offset(self.client.position[name] - 1),
        )
        if isinstance((yield from self.client.submit(name, body)), Acquired):
            snapshot = yield from self._snapshot(name)
            if snapshot is not None:
                yield from self._listen(name, *snapshot)
        yield from self.client.submit(name, Drop(collection=name, capability=self.hold))

    def _snapshot(
        self, name: CollectionId
    ) -> Generator[None, None, tuple[int, list[Update]] | None]:
        """Read at some time and compare."""
        collection = self.client.collection(name)
        since, upper = collection.since.time, collection.upper.time
        if since >= upper:
            return None
        as_of = self.world.rng.randint(since, upper - 1)
        updates = yield from self._read(name, collection, 0, as_of + 1)
        if updates is None:
            return None
        contents: Counter[Row] = Counter()
        for row, _, diff in updates:
            contents[row] += diff
        self.truth.equal(name, contents, as_of)
        return as_of, updates

    def _listen(self, name: CollectionId, as_of: int, updates: list[Update]) -> Process:
        """Follow a few intervals, and compare at each of their times."""
        lower = as_of + 1
        for _ in range(3):
            yield
            self.client.sync(name)
            collection = self.client.collection(name)
            upper = collection.upper.time
            ignored = self.world.without(Mutation.RULE_5_HOLD)
            if not ignored and not collection.since.less_equal(Timestamp(lower - 1)):
                return
            if upper <= lower:
                continue
            more = yield from self._read(name, collection, lower, upper)
            if more is None:
                return
            updates = [*updates, *more]
            self.truth.compare(name, updates, range(lower, upper))
            lower = upper
            consumed = frontier(lower)
            body = Downgrade(
                collection=name,
                capability=self.hold,
                frontier=consumed if ignored else hold_at(consumed),
                plan=Offset(self.client.position[name] - 1),
            )
            yield from self.client.submit(name, body)

    def _read(
        self, name: CollectionId, collection: CollectionState, lower: int, upper: int
    ) -> Generator[None, None, list[Update] | None]:
        """The updates of an interval; None when a chunk was gone, as it may be unannounced."""
        selected = pieces(collection, lower, upper)
        updates: list[Update] = []
        number = 0
        slow = self.world.chance(0.3)
        while number < len(selected):
            for _ in range(6 if slow else 1):
                yield
            if self.world.without(Mutation.RULE_10_SWITCH):
                self.client.sync(name)
                selected = pieces(self.client.collection(name), lower, upper)
                if number >= len(selected):
                    break
            content = self.world.fetch(name, selected[number].ref)
            if content is None:
                self._missing(name)
                return None
            updates += clipped(content, selected[number])
            number += 1
        return updates

    def _missing(self, name: CollectionId) -> None:
        """Rule 10 promises an announced reader his chunks, as long as his lease runs."""
        live = self.world.groups[name].newest.capabilities
        if self.announced and self.hold in live:
            raise WrongAnswer(f"{name}: a chunk is missing under the plan of a reader")
