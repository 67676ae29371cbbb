"""The soak in memory, in one thread: a seed decides everything, so a seed reproduces it.

Each actor has its own client, which is interrupted at each call to the broker. There another
actor may run, at most three levels deep, or the actor dies and restarts as a new incarnation
without state. Produce requests fail before or after they take effect, or instead of it; they
are duplicated, partial, or late, even after their sender died. The broker's clock jumps in both
directions, and each client's clock is hours off.
"""

import uuid
from dataclasses import dataclass, field
from random import Random

from streams.errors import Determinate, Indeterminate, SlackwaterError
from streams.kafka.client.retries import PatientChunks, RetryLimits
from streams.kafka.memory.faulty import Fault, FaultyBroker
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryRawReader
from streams.storage import Storage
from streams.storage.client.shards import Shards
from streams.torture.actor_context import ActorPlace, Target
from streams.torture.actors import SIMPLE, Actor, create, janitor, seeded_name
from streams.torture.final_check import last_looks
from streams.torture.journal import Event, MemoryJournal, Wrong
from streams.torture.oracle import Verdict, judge
from streams.trace.kernel.kernel import Kernel

ROLES = ("writer", "writer", "writer", "guest", "guest", "reader", "reader", "reader")
KEEPERS = ("keeper", "janitor", "janitor")
DEEPEST = 3
RESEND_MS = (5, 5, 5, 5)
KILLED, INTERRUPTED, RIVALRY, FAULTY, LATE = 0.002, 0.2, 0.4, 0.1, 0.05
SKEW_MS = 6 * 3_600_000
"""Clients' clocks are at most so far off."""


class Killed(Exception):
    """The actor died where it touched the broker."""


@dataclass(slots=True)
class RoleHolder:
    """A role, and the actor that plays it now."""

    role: str
    actor: Actor
    way: FaultyBroker
    busy: bool = False


@dataclass(slots=True)
class Simulation:
    """One run. `step` may be called any number of times before `verdict`."""

    seed: int
    kernel: Kernel = field(default_factory=Kernel)
    rng: Random = field(init=False)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    broker: MemoryBroker = field(init=False)
    targets: tuple[Target, ...] = ()
    players: list[RoleHolder] = field(default_factory=list)
    ghosts: list[FaultyBroker] = field(default_factory=list)
    now: int = 1_000_000
    born: int = 0
    depth: int = 0
    acting: str = ""

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)  # noqa: S311  chance to be repeated, no secret
        self.broker = MemoryBroker(self._tick, lambda: uuid.UUID(int=self.rng.getrandbits(128)))
        self.targets = create(self._client(FaultyBroker(self.broker)))
        self.players = [self._born(role) for role in ROLES + KEEPERS]

    def step(self) -> None:
        """One step of one player, with all that comes between."""
        self._play(self.rng.choice(self.players))

    def verdict(self) -> Verdict:
        """Let everything late surface, read all to the end, and compare."""
        for way in [*self.ghosts, *(player.way for player in self.players)]:
            way.logs.surface()
        seat = self._seat("judge", self._client(FaultyBroker(self.broker)))
        last_looks(seat, self.journal.entries, self._pass_time)
        return judge(self.journal.entries)

    def _pass_time(self) -> None:
        self.now += 60_000

    def _tick(self) -> int:
        """The broker's clock: it advances slowly, and sometimes it jumps."""
        jump = self.rng.choice([40_000, -40_000]) if self.rng.random() < 0.004 else 0  # noqa: PLR2004
        self.now += self.rng.randint(1, 20) + jump
        return self.now

    def _client(self, way: FaultyBroker) -> Storage:
        skew = self.rng.randint(-SKEW_MS, SKEW_MS)
        shards = Shards(
            way.logs,
            PatientChunks(way.chunks, RetryLimits(pause_ms=0)),
            way.topics,
            now_ms=lambda: self.now + skew,
            new_id=self._name,
            data_partitions=2,
            resend_ms=RESEND_MS,
        )
        return Storage(shards, new_id=self._name)

    def _name(self) -> str:
        return seeded_name(self.rng)

    def _seat(self, role: str, storage: Storage) -> ActorPlace:
        self.born += 1
        return ActorPlace(f"{role}{self.born}", storage, self.rng, self.journal, self.targets)

    def _born(self, role: str) -> RoleHolder:
        way = FaultyBroker(self.broker, self._between)
        return RoleHolder(role, self._actor(role, self._seat(role, self._client(way))), way)

    def _actor(self, role: str, seat: ActorPlace) -> Actor:
        if role != "janitor":
            return SIMPLE[role](seat)
        records = MemoryRawReader(self.broker.store)
        return janitor(seat, records, lambda: self.now, self._name, self.kernel)

    def _play(self, player: RoleHolder) -> None:
        """A step of a player, who may die of it."""
        if player.busy:
            return
        self._weather(player.way)
        player.busy, outer, self.acting = True, self.acting, player.role
        self.depth += 1
        try:
            player.actor.step()
        except (Determinate, Indeterminate):
            self.journal.note(Event(player.role, "commands failed"))
        except SlackwaterError as error:
            what = f"{type(error).__name__}: {error}"
            self.journal.note(Wrong(player.role, what))
        except Killed:
            self._replace(player)
        finally:
            player.busy, self.acting = False, outer
            self.depth -= 1

    def _replace(self, player: RoleHolder) -> None:
        """Start another incarnation; requests in flight of the dead one may still land."""
        self.journal.note(Event(player.role, "kills"))
        self.ghosts.append(player.way)
        fresh = self._born(player.role)
        player.actor, player.way = fresh.actor, fresh.way

    def _weather(self, way: FaultyBroker) -> None:
        """The faults of the player's next writes; writes in doubt may surface."""
        if self.rng.random() < FAULTY:
            plan = self._some_faults(list(Fault))
            way.logs.plan(plan)
        if self.rng.random() < FAULTY:
            way.chunks.plan(self._some_faults(list(Fault)))
        if self.rng.random() < LATE:
            old = self.rng.choice([way, *self.ghosts])
            old.logs.surface(self.rng.randint(1, 2))

    def _some_faults(self, kinds: list[Fault]) -> list[Fault]:
        return self.rng.choices(kinds, k=self.rng.randint(1, 6))

    def _between(self) -> None:
        """At each touch of the broker: death, another actor's turn, or nothing."""
        if not self.depth:
            return
        if self.rng.random() < KILLED:
            raise Killed
        if self.depth < DEEPEST and self.rng.random() < INTERRUPTED:
            is_race = self.rng.random() < RIVALRY
            rivals = [
                player for player in self.players if is_race and player.role == self.acting
            ]
            self._play(self.rng.choice(rivals or self.players))


def simulate(seed: int, steps: int) -> Verdict:
    """The verdict on a run of so many steps."""
    run = Simulation(seed)
    for _ in range(steps):
        run.step()
    return run.verdict()
