"""A whole deployment without a clock, a network or a disk: logs, data topics, processes.

Everything that can go otherwise in the real world is a choice of one seeded `Random`:

    a record sent       lands, lands late, lands twice, or is lost; the writer sends it again
    a reader            has folded the log up to some place, seldom to its end
    a process           is stopped between any two of its moves and starts again from its disk
    a task              that was given up writes its chunk or its run file later, once more
    Kafka               compacts a data topic: of a key only the last record stays
    the append time     stands still, jumps and goes back

The fold is the real one. It is pure, so all processes that have folded as far share one state;
only who starts from a Rollup folds for himself.

A process is a generator that yields wherever others may come in between. What it keeps in
local variables is lost when it is stopped; what must survive is in `Disk` and in the logs.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from streams.compute.checkpoints import Checkpoint, HydrationCheckpoint
from streams.ids import CollectionId, EventId, Offset
from streams.kafka.log import ChunkRef
from streams.storage.log import machine
from streams.storage.log.batches import Batch
from streams.storage.log.events import Body, Event, Replace, Rollup
from streams.storage.log.outcomes import BatchesChanged, Outcome, Replaced, Stale
from streams.storage.log.state import CollectionState, State
from tests.model.mutations import Mutation

Row = tuple[int | None, ...]
Update = tuple[Row, int, int]
"""A row, its time, its diff."""

Content = tuple[Update, ...] | State
Process = Generator[None, None, None]

TAB, SRC, CNT = CollectionId("tab"), CollectionId("src"), CollectionId("cnt")


class WrongAnswer(Exception):
    """A reader was given something else than the truth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How often things go wrong in one run, and who is busy: drawn anew for each run.

    Probabilities are for each occasion: `crash` of most processes, `stop` of replicas, which
    stay away for up to `away` ticks; `wipe` is that of their disks. `budget` and `lease` are
    in bytes and in times; `since_lag` is how far users' holds stay behind. The last ones
    weigh the processes; `chained` is how often a replica ingests by itself and steps the view
    in the same micro-batch, and `upgrader` weighs a replica of a second version.
    """

    fresh: float
    late: float
    lost: float
    twice: float
    crash: float
    stop: float
    away: int
    busy: float
    wipe: float
    zombie: float
    clean: float
    budget: int | None
    lease: int
    since_lag: int
    replicas: int
    laggard: int
    controller: int
    compactor: int
    collector: int
    reader: int
    chained: float
    upgrader: int


WEATHERS: dict[str, tuple[float | int | None, ...]] = {
    "fresh": (0.3, 0.7, 1.0),
    "late": (0.0, 0.1, 0.3),
    "lost": (0.0, 0.1),
    "twice": (0.0, 0.1, 0.3),
    "crash": (0.0, 0.02),
    "stop": (0.0, 0.01, 0.04),
    "away": (10, 60),
    "busy": (0.2, 0.5, 1.0),
    "wipe": (0.0, 0.0, 0.3),
    "zombie": (0.0, 0.3, 0.6),
    "clean": (0.0, 0.02, 0.1),
    "budget": (None, 1, 4),
    "lease": (20, 80, 1000),
    "since_lag": (1, 1, 4),
    "replicas": (6, 20),
    "laggard": (2, 20),
    "controller": (2, 8),
    "compactor": (0, 2, 6),
    "collector": (0, 2),
    "reader": (0, 2, 5),
    "chained": (0.0, 0.2, 0.7),
    "upgrader": (0, 0, 4, 12),
}


def weather(rng: Random, overrides: Mapping[str, float | None]) -> Weather:
    """A weather of its own kind; some of it may be given."""
    drawn: dict[str, Any] = {name: rng.choice(choices) for name, choices in WEATHERS.items()}
    return Weather(**(drawn | dict(overrides)))


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a data topic; no content is a tombstone."""

    key: str
    content: Content | None


@dataclass(slots=True)
class Group:
    """A log and its data topic. `states[n]` is the fold of the first n records."""

    name: CollectionId
    entries: list[tuple[Event, int]] = field(default_factory=list)
    states: list[State] = field(default_factory=lambda: [State()])
    decided: dict[EventId, tuple[int, Outcome]] = field(default_factory=dict)
    start: int = 0
    data: list[Record | None] = field(default_factory=list)

    @property
    def newest(self) -> CollectionState:
        """The group's collection as everybody will see it once he has folded so far."""
        return self.states[-1].collections[self.name]


@dataclass(slots=True)
class Disk:
    """What a process finds again when it starts anew."""

    records: list[Checkpoint] = field(default_factory=list)
    runs: dict[str, object] = field(default_factory=dict)
    hydration: HydrationCheckpoint | None = None
    plan: dict[CollectionId, int] = field(default_factory=dict)
    offsets: dict[str, tuple[int, dict[int, int], str]] = field(default_factory=dict)
    spark: tuple[int, int] | None = None
    slices: tuple[tuple["Piece", ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk of a collection and the times in it that count."""

    collection: CollectionId
    ref: ChunkRef
    lower: int
    upper: int


class World:
    """The deployment: what processes share, and the fate that befalls them."""

    def __init__(
        self, rng: Random, mutation: Mutation | None, overrides: Mapping[str, float | None]
    ) -> None:
        self.rng, self.mutation = rng, mutation
        self.weather = weather(rng, overrides)
        self.groups = {name: Group(name) for name in (TAB, SRC, CNT)}
        self.raw: tuple[list[tuple[int, int | None]], ...] = ([], [])
        self.now = 10
        self.calm, self.busy = False, True
        self.serial = 0
        self.in_flight: list[tuple[CollectionId, Event]] = []
        self.zombies: list[Callable[[], object]] = []
        self.observers: list[Callable[[Event, Outcome], None]] = []
        self.intents: dict[EventId, tuple[int, tuple[Update, ...]]] = {}
        self.acknowledged: set[int] = set()
        self.seen: set[str] = set()

    @property
    def resting(self) -> bool:
        """Whether nothing new is to begin any more."""
        return self.calm and not self.busy

    def without(self, mutation: Mutation) -> bool:
        """Whether this rule does not hold here."""
        return self.mutation is mutation

    def chance(self, probability: float) -> bool:
        """Whether something happens."""
        return self.rng.random() < probability

    def name(self, kind: str) -> str:
        """A name that was never used."""
        self.serial += 1
        return f"{kind}{self.serial}"

    # Logs

    def send(self, group: CollectionId, event: Event) -> None:
        """Produce a record; nobody is told what became of it."""
        fate = 1.0 if self.calm else self.rng.random()
        if fate < self.weather.lost:
            return
        if fate < self.weather.lost + self.weather.late:
            self.in_flight.append((group, event))
            return
        if fate < self.weather.lost + self.weather.late + self.weather.twice:
            self.in_flight.append((group, event))
        self.land(group, event)

    def land(self, group: CollectionId, event: Event) -> None:
        """The broker appends a record, and whoever reads on will fold it."""
        log = self.groups[group]
        offset, at_ms = Offset(len(log.entries)), self.now
        if not self.calm and self.chance(0.1):
            at_ms += self.rng.randint(-5, 3)
        log.entries.append((event, at_ms))
        state, outcome = self.fold(log.states[-1], event, offset, at_ms)
        log.states.append(state)
        if event.id not in log.decided:
            log.decided[event.id] = (offset, outcome)
            for observe in self.observers:
                observe(event, outcome)

    def fold(
        self, state: State, event: Event, offset: Offset, at_ms: int
    ) -> tuple[State, Outcome]:
        """The real fold, or the real fold with one rule taken out of it."""
        if self.without(Mutation.RULE_7_FLOOR):
            state = replace(state, floor={})
        before = state
        state, outcome = machine.step(state, event, offset, at_ms)
        if self.without(Mutation.RULE_10_PLAN):
            state = replace(state, superseded=())
        if self.without(Mutation.RULE_9_CURRENT) and isinstance(outcome, BatchesChanged):
            assert isinstance(event.body, Replace)
            return forced(before, state, event.body, offset), Replaced()
        return state, outcome

    # Data topics

    def write(self, group: CollectionId, content: Content, meaning: str) -> ChunkRef:
        """Write a chunk, as a task does: perhaps once more, later, when it was given up."""
        key = self.name("k") if not self.without(Mutation.RULE_6_KEY) else meaning
        data = self.groups[group].data
        offset = Offset(len(data))
        data.append(Record(key, content))
        if self.chance(self.weather.zombie):
            again = self.name("k") if not self.without(Mutation.RULE_6_KEY) else meaning
            self.zombies.append(lambda: data.append(Record(again, content)))
        rows = len(content) if isinstance(content, tuple) else 1
        return ChunkRef(0, offset, key, 0, rows, rows)

    def fetch(self, group: CollectionId, ref: ChunkRef) -> Content | None:
        """What lies at the reference; None when it is missing (rule 6)."""
        data = self.groups[group].data
        record = data[ref.offset]
        if self.without(Mutation.RULE_6_CHECK):
            later = (r for r in data[ref.offset :] if r is not None and r.content is not None)
            record = next(later, None)
        elif record is not None and record.key != ref.key:
            return None
        return record.content if record is not None else None

    def clean(self, group: CollectionId) -> None:
        """Kafka's own compaction: the last record of a key stays, a tombstone goes."""
        data = self.groups[group].data
        last = {record.key: place for place, record in enumerate(data) if record is not None}
        for place, record in enumerate(data):
            if record is not None and (last[record.key] != place or record.content is None):
                data[place] = None


class Client:
    """One process's view of all logs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.position: dict[CollectionId, int] = {}
        self.own: dict[CollectionId, State] = {}
        self.told: dict[EventId, Outcome] = {}
        for name in world.groups:
            self._open(name)

    def _open(self, name: CollectionId) -> None:
        """Load the newest Rollup that can be read, and fold on from what it covers (rule 8)."""
        log = self.world.groups[name]
        self.position[name] = min(1, len(log.entries))
        for offset in range(len(log.entries) - 1, log.start - 1, -1):
            body = log.entries[offset][0].body
            if not isinstance(body, Rollup):
                continue
            state = self.world.fetch(name, body.chunks[0])
            if not isinstance(state, State) or state.upto != body.upto:
                continue
            first = body.upto + 1
            if self.world.without(Mutation.RULE_8_UPTO):
                first = offset + 1
            if first < log.start:
                continue
            self.own[name], self.position[name] = state, first
            return
        if log.start > 0:
            raise WrongAnswer(f"log {name} begins at {log.start} and no Rollup covers the rest")

    def sync(self, name: CollectionId) -> None:
        """Fold on, to the end or only some way."""
        log, world = self.world.groups[name], self.world
        end, here = len(log.entries), self.position[name]
        if not world.calm and not world.chance(world.weather.fresh):
            end = world.rng.randint(here, end)
        if name in self.own:
            self._fold(name, end)
        self.position[name] = end

    def _fold(self, name: CollectionId, end: int) -> None:
        """Fold for oneself, until the state is the one that everybody has."""
        log, state = self.world.groups[name], self.own[name]
        for offset in range(self.position[name], end):
            event, at_ms = log.entries[offset]
            state, outcome = self.world.fold(state, event, Offset(offset), at_ms)
            self.told.setdefault(event.id, outcome)
        self.own[name] = state
        if state == log.states[end]:
            del self.own[name]
        elif self.world.mutation is not Mutation.RULE_8_UPTO:
            raise WrongAnswer(f"log {name} folds to something else from a Rollup")

    def state(self, name: CollectionId) -> State:
        """The group's state as far as it was folded here."""
        own = self.own.get(name)
        return self.world.groups[name].states[self.position[name]] if own is None else own

    def collection(self, name: CollectionId) -> CollectionState:
        """The collection as far as its log was folded here."""
        return self.state(name).collections[name]

    def knows(self, name: CollectionId) -> bool:
        """Whether the collection's Create was folded."""
        return name in self.state(name).collections

    def outcome(self, name: CollectionId, id_: EventId) -> Outcome | None:
        """What became of an event, once it was read back."""
        if name in self.own:
            return self.told.get(id_)
        decided = self.world.groups[name].decided.get(id_)
        if decided is None or decided[0] >= self.position[name]:
            return None
        return decided[1]

    def event(self, name: CollectionId, body: Body) -> Event:
        """An attempt under a new id."""
        seen = Offset(self.position[name] - 1)
        return Event(EventId(self.world.name("e")), name, seen, body)

    def submit(
        self, name: CollectionId, body: Body, event: Event | None = None
    ) -> Generator[None, None, Outcome]:
        """Send an event and wait until it is read back; in doubt send it again as it is."""
        attempt = event or self.event(name, body)
        self.world.send(name, attempt)
        while True:
            yield
            self.sync(name)
            outcome = self.outcome(name, attempt.id)
            if isinstance(outcome, Stale) and event is None:
                attempt = self.event(name, body)
                self.world.send(name, attempt)
            elif outcome is not None:
                return outcome
            elif self.world.calm or self.world.chance(0.2):
                self.world.send(name, attempt)


def pieces(collection: CollectionState, lower: int, upper: int) -> list[Piece]:
    """The chunks of [lower, upper), each clipped to it and to its batch."""
    runs = []
    for batch in collection.batches.ordered():
        low = max(lower, batch.lower)
        high = upper if batch.upper.is_empty else min(upper, batch.upper.time)
        if low < high:
            runs += [Piece(collection.id, ref, low, high) for ref in batch.chunks]
    return runs


def clipped(content: Content, piece: Piece) -> tuple[Update, ...]:
    """The updates of a chunk that count."""
    if isinstance(content, State):
        return ()  # a Rollup, taken for a chunk by a reader who does not check
    return tuple(update for update in content if piece.lower <= update[1] < piece.upper)


def forced(before: State, after: State, body: Replace, offset: Offset) -> State:
    """What a Replace makes of a collection when nobody asks whether its batches are current."""
    collection = before.collections[body.collection]
    names = set(body.replaced)
    removed = [batch for batch in collection.batches if batch.name in names]
    lower = min(name.lower for name in names)
    upper = max(name.upper.time for name in names)
    new = Batch(
        lower, type(body.replaced[0].upper)((upper,)), body.chunks, offset, 0, body.since, None
    )
    changed = replace(collection, batches=collection.batches.replace(removed, new))
    return replace(after, collections=after.collections.set(changed))
