"""One run of the model: who takes part, what befalls them, and what must hold at the end."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from random import Random

from streams.ids import CapabilityId, EventId, Offset, Timestamp
from streams.storage.log.events import Create, Event
from tests.model.holders import controller, creator
from tests.model.keepers import collector, compactor, roller
from tests.model.mutations import Mutation
from tests.model.readers import Reader
from tests.model.truth import Truth, visible
from tests.model.views import Replica
from tests.model.world import CNT, SRC, TAB, Disk, Process, World, WrongAnswer
from tests.model.writers import KEYS, SRC_WRITE, TAB_WRITE, ingestion, table_writer

Factory = Callable[[World, Disk], Process]


@dataclass(slots=True)
class Member:
    """A process, its disk, and whether it runs now."""

    start: Factory
    disk: Disk = field(default_factory=Disk)
    process: Process | None = None
    again: int = 0
    mortal: bool = True
    weight: int = 1


class Race:
    """A world and its processes."""

    def __init__(
        self,
        seed: int,
        mutation: Mutation | None = None,
        weather: Mapping[str, float | None] | None = None,
    ) -> None:
        self.rng = Random(seed)
        self.world = World(self.rng, mutation, weather or {})
        self.truth = Truth(self.world)
        self._create(TAB, TAB_WRITE)
        self._create(SRC, SRC_WRITE)
        self.members = [
            Member(start, weight=self.rng.choice(weights)) for start, weights in self._cast()
        ]
        self.members.append(Member(creator, mortal=False, weight=4))
        self.weights = list(accumulate(member.weight for member in self.members))
        self.replicas = self.members[4:6]
        self.ticks = 0

    def _create(self, name: str, write: CapabilityId) -> None:
        group = TAB if name == TAB else SRC
        body = Create(
            collection=group,
            description="",
            frontier=Timestamp(0),
            write=write,
            read=CapabilityId(f"{name}.read"),
        )
        event = Event(EventId(f"create-{name}"), name, Offset(-1), body)
        self.world.land(group, event)

    def _cast(self) -> list[tuple[Factory, tuple[int, ...]]]:
        """Who takes part, and how often each may move: another choice in every run."""

        def replica(name: str, version: str = "v1") -> Factory:
            return lambda world, disk: Replica(world, self.truth, disk, name, version).run()

        def reader(announced: bool) -> Factory:
            return lambda world, disk: Reader(
                world, self.truth, disk, announced=announced
            ).run()

        weather = self.world.weather
        return [
            (table_writer, (3, 6)),
            (table_writer, (0, 3)),
            (ingestion, (4, 8)),
            (ingestion, (0, 4)),
            (replica("a"), (weather.replicas,)),
            (replica("b"), (weather.laggard,)),
            (controller, (weather.controller,)),
            (compactor, (weather.compactor,)),
            (compactor, (0, 2)),
            (collector, (weather.collector,)),
            (roller, (0, 1)),
            (reader(announced=True), (weather.reader,)),
            (reader(announced=False), (0, weather.reader)),
            (replica("c", "v2"), (weather.upgrader,)),
        ]

    def run(self, ticks: int, *, settle: bool = True) -> None:
        """Let everything go wrong for a while; let it come to rest, if asked; check it all."""
        self._prologue()
        for _ in range(ticks):
            self._happen()
            place = bisect_right(self.weights, self.rng.random() * self.weights[-1])
            self._move(self.members[place])
        if settle:
            self._settle()
        self.check()

    def _prologue(self) -> None:
        """Some history before anything goes wrong, in some runs with the view already there."""
        world = self.world
        world.calm = True
        weather, world.weather = world.weather, replace(world.weather, busy=3.0, budget=None)
        early = [self.members[0], self.members[2], *self.members[-1:]][
            : self.rng.choice((2, 3))
        ]
        for _ in range(self.rng.choice((4, 12))):
            self._message()
            world.now += self.rng.choice((0, 1, 2))
            for member in early * 2:
                self._move(member)
        world.calm = False
        world.weather = weather

    def check(self) -> None:
        """Every time of every collection, as the logs have it now."""
        for name in (TAB, SRC, CNT):
            self.truth.check(name)
        self.truth.check_acknowledged()

    def _happen(self) -> None:
        """What nobody decides."""
        world, rng = self.world, self.rng
        if rng.random() < 0.4:
            world.now += rng.choice((0, 1, 1, 2, 6))
        if rng.random() < 0.01:
            world.busy = not world.busy
        if world.busy and rng.random() < 0.06 * world.weather.busy:
            self._message()
        if world.in_flight and rng.random() < 0.05:
            world.land(*world.in_flight.pop(rng.randrange(len(world.in_flight))))
        if world.zombies and rng.random() < 0.05:
            world.zombies.pop(rng.randrange(len(world.zombies)))()
        if rng.random() < world.weather.clean:
            world.clean(rng.choice(visible(world)))
        if rng.random() < 0.01:
            self.check()

    def _message(self) -> None:
        """A message comes into the raw topic."""
        key = self.rng.randrange(KEYS)
        value = None if self.rng.random() < 0.25 else self.rng.randrange(5)
        self.world.raw[key % 2].append((key, value))

    def _move(self, member: Member) -> None:
        """Let a process do what it does up to its next yield, or stop it there."""
        self.ticks += 1
        if member.process is None:
            if self.ticks < member.again and not self.world.calm:
                return
            member.process = member.start(self.world, member.disk)
        if member.mortal and not self.world.calm:
            weather = self.world.weather
            if self.rng.random() < (weather.stop if member in self.replicas else weather.crash):
                member.process = None
                if self.world.chance(self.world.weather.wipe):
                    member.disk = Disk()
                member.again = self.ticks + self.rng.choice((0, weather.away))
                return
        next(member.process)

    def _settle(self) -> None:
        """The faults are over: everything catches up, or is stuck for good.

        First there is more to do, for one replica alone perhaps: a state that is wrong shows
        in what is made of it. Then all comes to rest, and what was scheduled comes due. Before
        either everything is stopped and starts again from what it finds.
        """
        world = self.world
        world.calm = world.busy = True
        world.weather = replace(world.weather, budget=None)
        self._stop_all()
        for group, event in world.in_flight:
            world.land(group, event)
        for zombie in world.zombies:
            zombie()
        for name in visible(world):
            world.clean(name)
        absent = self.rng.choice((None, *self.replicas))
        present = [m for m in self.members if m is not absent and m.weight]
        for _ in range(6):
            self._message()
            world.now += self.rng.choice((0, 1))
            self._round(present)
        world.busy = False
        self._stop_all()
        goal = world.now + 26
        for _ in range(100):
            self._round(present)
            if self._arrived(goal):
                return
            world.now += 13 if self._behind(goal) else 0
        uppers = {name: str(world.groups[name].newest.upper) for name in visible(world)}
        raise WrongAnswer(f"stuck: expected uppers beyond {goal}, actual {uppers}")

    def _stop_all(self) -> None:
        for member in self.members:
            if member.mortal:
                member.process = None

    def _round(self, present: list[Member]) -> None:
        self.rng.shuffle(present)
        for member in present:
            for _ in range(4 if member in self.replicas else 1):
                self._move(member)

    def _behind(self, goal: int) -> bool:
        return any(not self._past(name, goal) for name in (TAB, SRC))

    def _past(self, name: str, goal: int) -> bool:
        group = next(
            group for collection, group in self.world.groups.items() if collection == name
        )
        return name in group.states[-1].collections and group.newest.upper.time > goal

    def _arrived(self, goal: int) -> bool:
        bound = dict(self.world.groups[SRC].newest.source or {})
        read = all(
            bound.get(p, 0) == len(messages) for p, messages in enumerate(self.world.raw)
        )
        return read and all(self._past(name, goal) for name in (TAB, SRC, CNT))
