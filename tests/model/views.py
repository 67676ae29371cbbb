"""Who derives: replicas of one view, stepping by the real machine."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace

from streams.compute.checkpoints import (
    Checkpoint,
    HydrationCheckpoint,
    newest,
    removable,
    slices,
    usable_hydration,
)
from streams.compute.stepping import (
    FromCheckpoint,
    Hydrate,
    Idle,
    Input,
    InputBatch,
    Overtaken,
    Step,
    Wait,
    can_hydrate,
    hold_at,
    holds,
    next_step,
    resume,
)
from streams.ids import CapabilityId, CollectionId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import EMPTY, Antichain, frontier
from streams.replica.driver.append_attempt import SEES_SHARD, Attempt, OpenInterval, ShardState
from streams.replica.driver.dataflow import Phase
from streams.replica.driver.dataflow_state import run_names
from streams.storage.log.batches import Batch
from streams.storage.log.events import Acquire, Create, Right, Stage
from streams.storage.log.outcomes import (
    Staged,
)
from tests.model import chained, versions
from tests.model.counting import Contribution, State, changes, contributions, shown
from tests.model.holders import IMPORTS, downgrade
from tests.model.life import Life, Lost, after, names_of, runs_of
from tests.model.mutations import Mutation
from tests.model.truth import Truth
from tests.model.world import (
    CNT,
    Client,
    Disk,
    Piece,
    Process,
    Update,
    World,
    WrongAnswer,
    clipped,
    pieces,
)


class Replica:
    """One replica of the view, from one start to the next."""

    def __init__(
        self, world: World, truth: Truth, disk: Disk, name: str, version: str = "v1"
    ) -> None:
        self.world, self.truth, self.disk, self.name = world, truth, disk, name
        self.version = version
        self.client = Client(world)
        self.incarnation = world.name("i")
        self.life = Life(world, disk, version, self.incarnation)

    def run(self) -> Process:
        """Find state, then step for ever; who lost what he relied on starts again."""
        while True:
            yield
            self.client.sync(CNT)
            if not self.client.knows(CNT):
                continue
            self.life = Life(self.world, self.disk, self.version, self.incarnation)
            try:
                yield from self._acquire()
                self.life.begins()
                yield from self._resume()
                self.life.ends()
                while True:
                    yield from self._turn()
            except Lost:
                continue

    def _hold(self, name: CollectionId) -> CapabilityId:
        return CapabilityId(f"{self.name}.{name}")

    def _acquire(self) -> Process:
        for name in IMPORTS:
            self.client.sync(name)
            here = self.client.position[name] - 1
            body = Acquire(
                collection=name,
                capability=self._hold(name),
                right=Right.READ,
                lease_ms=self.world.weather.lease,
                plan=Offset(min(here, self.disk.plan.get(name, here))),
            )
            yield from self.client.submit(name, body)

    def _upper(self) -> Antichain:
        return self.client.collection(CNT).upper

    def seen(self) -> ShardState:
        """The view's shard as far as this replica has folded its log."""
        return self.life.seen(self.client.collection(CNT))

    @property
    def state(self) -> State:
        """The state that is stepped, as its run files have it now."""
        own = self.life.own
        return self._load(own.frontier.time, names_of(own))

    # Restart

    def _resume(self) -> Process:
        disk, world = self.disk, self.world
        disk.records = [r for r in disk.records if r.runs <= disk.runs.keys()]
        live = {chunk.key for name in IMPORTS for chunk in self.client.state(name).chunks()}
        disk.hydration = usable_hydration(disk.hydration, self.version, live, disk.runs)
        self.client.sync(CNT)
        undoes = not world.without(Mutation.RULE_24_UNDO)
        if undoes and versions.is_foreign(self, self.client.collection(CNT)):
            yield from versions.upgrade(self)
            return
        birth, upper = self._birth(), self._upper()
        if world.without(Mutation.RULE_17_UPPER):
            upper = frontier(max([upper.time, *(r.frontier for r in disk.records)]))
        sinces = [self._since(name) for name in IMPORTS]
        if (yield from self._replay()):
            return
        match resume(disk.records, upper, sinces, birth, disk.hydration):
            case FromCheckpoint(at):
                record = next(r for r in disk.records if r.frontier == at)
                self.life.recovers(record.frontier, record.runs)
            case Hydrate(as_of, done):
                yield from self._hydrate(as_of, done)
            case Overtaken():
                yield
                self.client.sync(CNT)
                raise Lost

    def _birth(self) -> Timestamp:
        for event, _ in self.world.groups[CNT].entries[:1]:
            assert isinstance(event.body, Create)
            return event.body.frontier
        raise Lost

    def _since(self, name: CollectionId) -> Antichain:
        ignored = (Mutation.RULE_5_HOLD, Mutation.RULE_17_SINCE, Mutation.RULE_21_REPLAY)
        if self.world.mutation in (*ignored, Mutation.RULE_21_HOLDS):
            return frontier(0)
        return self.client.collection(name).since

    def _load(self, at: int, runs: Iterable[str]) -> State:
        collected: list[Contribution] = []
        for run in runs:
            content = self.disk.runs[run]
            assert isinstance(content, tuple)
            collected += content
        return State(at, tuple(runs), tuple(collected))

    def _replay(self) -> Generator[None, None, bool]:
        """With rule 21 nothing is taken from Spark's checkpoint of an earlier life."""
        if not self.world.without(Mutation.RULE_21_REPLAY) or self.disk.spark is None:
            return False
        lower, upper = self.disk.spark
        record = next((r for r in self.disk.records if r.frontier == lower), None)
        if record is None or self._upper().time < lower:
            return False
        self.life.recovers(record.frontier, record.runs)
        yield from self._step(Step(frontier(lower), frontier(upper)))
        return True

    # Hydration

    def _hydrate(self, as_of: Timestamp, done: int) -> Process:
        disk = self.disk
        while not can_hydrate(as_of, self.inputs(as_of)):
            yield
            yield from self.fold_imports()
        if done == 0 or self.world.without(Mutation.RULE_20_PLAN):
            self._divide(as_of, done)
        hydration = disk.hydration
        assert hydration is not None
        self.life.hydrates(as_of, hydration)
        snapshot = Step(frontier(as_of), frontier(as_of + 1))
        for part in disk.slices[hydration.done :]:
            collected: list[Contribution] = []
            for piece in part:
                updates = yield from self.fetch(piece)
                collected += contributions((row, as_of, diff) for row, _, diff in updates)
            run = self.write_run(f"slice-{hydration.done}", collected)
            yield
            names = (*sorted(hydration.runs), run)
            self.life.ended(self.life.stepped(snapshot, names, (), self.seen()))
            build = self.life.build
            hydration = replace(hydration, done=build.done, runs=run_names(build.runs))
            disk.hydration = hydration
            yield
        state = self._load(as_of + 1, sorted(hydration.runs))
        fetched = [row for row in state.counts().items() if row[1]]
        rows = [(shown(self.version, row), as_of, 1) for row in fetched]
        while not (yield from self.commit(snapshot, rows, state)):
            yield

    def _divide(self, as_of: Timestamp, done: int) -> None:
        """Store the division of the snapshot before its first slice runs (rule 20)."""
        disk = self.disk
        if any(not self._since(name).less_equal(as_of) for name in IMPORTS):
            raise Lost
        loaded: list[Piece] = []
        for name in IMPORTS:
            loaded += pieces(self.client.collection(name), 0, as_of + 1)
        divided = slices([piece.ref.size for piece in loaded], self.world.weather.budget or 2)
        disk.slices = tuple(tuple(loaded[i] for i in part) for part in divided)
        keys = frozenset(piece.ref.key for piece in loaded)
        if done and disk.hydration is not None:
            disk.hydration = replace(disk.hydration, slices=len(divided), chunks=keys)
            return
        disk.plan = {name: self.client.position[name] - 1 for name in IMPORTS}
        disk.hydration = HydrationCheckpoint(
            self.version, self.incarnation, as_of, len(divided), 0, frozenset(), keys
        )
        disk.records = []

    # Steps

    def fold_imports(self) -> Process:
        for name in IMPORTS:
            self.client.sync(name)
            if self._hold(name) not in self.client.collection(name).capabilities:
                raise Lost
        yield

    def inputs(self, own: int, news_of: Sequence[CollectionId] = IMPORTS) -> list[Input]:
        sources = []
        for name in IMPORTS:
            collection = self.client.collection(name)
            batches = collection.batches.overlapping(Timestamp(own), collection.upper.time)
            described = tuple(_described(b) for b in batches if b.chunks and name in news_of)
            sources.append(Input(name, self._since(name), collection.upper, described))
        return sources

    def _next(self, own: int, *, in_flight: bool = False) -> Step | Idle | None:
        scheduled, news_of = self.state.scheduled, IMPORTS
        if self.world.without(Mutation.RULE_22_SCHEDULED):
            scheduled = EMPTY
        if self.world.without(Mutation.RULE_22_EMPTY):
            news_of = IMPORTS[:1]
        step = next_step(
            frontier(own),
            self.inputs(own, news_of),
            scheduled=scheduled,
            in_flight=in_flight,
            budget=self.world.weather.budget,
        )
        match step:
            case Step() | Idle():
                return step
            case Overtaken():
                raise Lost
            case Wait():
                return None

    def _turn(self) -> Process:
        yield
        yield from self.fold_imports()
        self.client.sync(CNT)
        self._peek()
        shard = self._upper().time
        if self.world.without(Mutation.RULE_16_JUMP) and shard > self.state.frontier:
            self.life.jumps(shard)
        if self.world.without(Mutation.RULE_22_OWN) and shard > self.state.frontier:
            idle = self._next(shard)
            if isinstance(idle, Idle):
                self.life.jumps(shard)
        if self.world.chance(self.world.weather.chained) and (yield from chained.step(self)):
            return
        match self._next(self.state.frontier):
            case Step() as step:
                self.disk.spark = (step.lower.time, step.upper.time)
                yield from self._step(step)
            case Idle() as idle:
                self.life.begins()
                counted = yield from self._idle(idle)
                self.life.ends()
                if counted and self.world.chance(0.3):
                    self._move_checkpoint(idle.lower.time, idle.upper.time)
            case None:
                yield from self._follow()

    def _peek(self) -> None:
        """Whoever reads this replica's state reads the view's contents just before it."""
        time = self.state.frontier - 1
        version = self.truth.version_at(time)
        counts = {shown(version, row): 1 for row in self.state.counts().items() if row[1]}
        self.truth.equal(CNT, counts, time)

    def _step(self, step: Step) -> Process:
        if not self.life.flow.busy:
            self.life.begins()
        lower, upper = step.lower.time, step.upper.time
        selected = [
            piece
            for name in IMPORTS
            for piece in pieces(self.client.collection(name), lower, upper)
        ]
        if self.world.without(Mutation.RULE_21_HOLDS):
            for name in IMPORTS:
                for hold in (self._hold(name), CapabilityId(f"cnt.on.{name}")):
                    yield from downgrade(self.client, name, hold, hold_at(step.upper))
            yield from self.fold_imports()
            selected = [
                piece
                for name in IMPORTS
                for piece in pieces(self.client.collection(name), lower, upper)
            ]
        output, state = yield from self.derive(step, selected)
        for _ in range(self.world.rng.choice((1, 1, 10))):
            yield from self._idle_in_flight(upper)
        yield from self.commit(step, output, state)

    def derive(
        self, step: Step, selected: Sequence[Piece], in_hand: Sequence[Update] = ()
    ) -> Generator[None, None, tuple[list[Update], State]]:
        """The view's updates in the step, and its state after it, run file and all."""
        news = contributions(in_hand)
        for piece in selected:
            news += contributions((yield from self.fetch(piece)))
        upper = step.upper.time
        state = State(upper, self.state.runs, (*self.state.contributions, *news))
        output = [(shown(self.version, r), t, d) for r, t, d in changes(self.state, state)]
        if news:
            run = self.write_run(str(step.lower.time), news)
            state = replace(state, runs=(*state.runs, run))
        return output, state

    def fetch(self, piece: Piece) -> Generator[None, None, tuple[Update, ...]]:
        yield
        content = self.world.fetch(piece.collection, piece.ref)
        if content is not None:
            return clipped(content, piece)
        newest_state = self.world.groups[piece.collection].newest
        if self._hold(piece.collection) in newest_state.capabilities:
            raise WrongAnswer(f"{self.name}: a chunk is missing under a plan: {piece}")
        self.disk.hydration = None
        raise Lost

    def write_run(self, meaning: str, output: list[Contribution]) -> str:
        """Write a run file, as a task does: perhaps once more, later (rule 19)."""
        run, content = self.world.name("run"), tuple(output)
        if self.world.without(Mutation.RULE_19_NAMES):
            run = meaning
        if self.world.chance(self.world.weather.zombie):
            self.world.zombies.append(lambda: self.disk.runs.__setitem__(run, content))
        self.disk.runs[run] = content
        return run

    def commit(
        self, step: Step, output: Sequence[Update], state: State, *, may_be_early: bool = True
    ) -> Generator[None, None, bool]:
        """Chunks, then the checkpoint record, then the Append, then what is not needed goes.

        Whether it counted. The record of a step may be written before its Append.
        """
        if not self.life.flow.busy:
            self.life.begins()
        yield
        early = may_be_early and self.world.chance(0.5) and self.life.flow.build is None
        if early:
            planned = self.life.stepped(step, state.runs, (), self.seen())
            self.life.records(after(planned), self._upper())
        yield
        chunks = self._write_chunks(step, tuple(output))
        stages: tuple[str, ...] = ()
        if chunks and self.world.chance(0.3):
            stages = yield from self._stage(chunks)
        yield
        record = self.life.stepped(step, state.runs, chunks, self.seen())
        if stages and isinstance(record.now, OpenInterval):
            record = replace(record, now=replace(record.now, chunks=(), stages=stages))
        counted = yield from self._append(record)
        if counted and not early:
            self.life.records(self.life.own, self._upper())
        self.life.ends()
        if counted:
            self.disk.hydration = None
            self.disk.plan = {}
            yield from self._follow()
        return counted

    def _follow(self) -> Process:
        """Let go of what a restart will not need; holds follow what was read back (rule 21)."""
        disk, upper = self.disk, self._upper()
        runs = list(disk.runs)
        records: list[Checkpoint | HydrationCheckpoint] = [*disk.records]
        if disk.hydration is not None:
            records.append(disk.hydration)
        for run in removable(runs, records, [self.state.runs]):
            del disk.runs[run]
        hold = holds(disk.records, upper, disk.hydration)
        if self.world.without(Mutation.RULE_5_HOLD):
            needed = newest(disk.records, upper)
            hold = None if needed is None else frontier(needed.frontier)
        if hold is None or not self.world.chance(0.5):
            return
        for name in IMPORTS:
            yield from downgrade(self.client, name, self._hold(name), hold)

    def _move_checkpoint(self, lower: int, upper: int) -> None:
        """An idle interval leaves the state as it is: its record may say so (rule 22)."""
        for record in [r for r in self.disk.records if r.frontier == lower]:
            moved = replace(self.life.own, frontier=frontier(upper), runs=runs_of(record.runs))
            self.life.records(moved, self._upper())

    def _idle_in_flight(self, planned: int) -> Process:
        """The idle path asks while a step is on its way."""
        yield from self.fold_imports()
        self.client.sync(CNT)
        if not self.world.without(Mutation.RULE_22_FLIGHT):
            assert not self.life.flow.is_ready(Phase.RUNNING, self.world.now)
            assert self._next(self.state.frontier, in_flight=True) is None
            return
        idle = self._next(planned)
        if isinstance(idle, Idle) and self._upper().time >= planned:
            own = self.life.own
            yield from self._idle(idle)
            self.life.jumps(own.frontier.time)
            self._move_checkpoint(self.state.frontier, idle.upper.time)

    # Appends

    def _idle(self, idle: Idle) -> Generator[None, None, bool]:
        yield
        return (yield from self._append(self.life.idle(idle, self.seen())))

    def _append(self, attempt: Attempt) -> Generator[None, None, bool]:
        """Submit what the attempt has to, until it has ended; whether it counted."""
        while attempt.body() is not None:
            if self.world.without(Mutation.RULE_17_UPPER) and isinstance(
                attempt.now, OpenInterval
            ):
                bounds = (self._upper(), attempt.now.bounds[1])
                attempt = replace(attempt, now=replace(attempt.now, bounds=bounds))
            body = attempt.body()
            assert body is not None
            outcome = yield from self.client.submit(CNT, body)
            if isinstance(outcome, SEES_SHARD):
                attempt = replace(attempt, shard=self.seen())
            attempt = attempt.answered(outcome)
            yield
        return self.life.ended(attempt)

    def _write_chunks(
        self, step: Step | Idle, output: tuple[Update, ...]
    ) -> tuple[ChunkRef, ...]:
        if not output:
            return ()
        half = len(output) // 2 if self.world.chance(0.3) else 0
        parts = [part for part in (output[:half], output[half:]) if part]
        return tuple(
            self.world.write(CNT, part, f"{CNT}-{step.lower}-{step.upper}-{number}")
            for number, part in enumerate(parts)
        )

    def _stage(self, chunks: tuple[ChunkRef, ...]) -> Generator[None, None, tuple[str, ...]]:
        body = Stage(
            stage=self.world.name("s"), chunks=chunks, lease_ms=self.world.weather.lease
        )
        outcome = yield from self.client.submit(CNT, body)
        return (body.stage,) if isinstance(outcome, Staged) else ()


def _described(batch: Batch) -> InputBatch:
    size = sum(chunk.size for chunk in batch.chunks)
    return InputBatch(frontier(batch.lower), batch.upper, size)
