"""A view's dataflow in a replica of the model: the real machine, its attempts and effects.

What a mutation breaks in the machine it breaks here, around `Dataflow.step`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from streams.compute.checkpoints import HydrationCheckpoint
from streams.compute.description import DataflowDescription
from streams.compute.stepping import Idle, Step
from streams.ids import Timestamp
from streams.kafka.log import ChunkRef
from streams.plan import physical
from streams.progress import Antichain, Interval, frontier
from streams.replica.driver import append_attempt, work_units
from streams.replica.driver.append_attempt import Attempt, ShardState
from streams.replica.driver.checkpoint_store import record_of
from streams.replica.driver.dataflow import Dataflow, Phase
from streams.replica.driver.dataflow_state import Build, OwnState, Record
from streams.replica.driver.events import (
    Built,
    Event,
    Forget,
    ForgetBuild,
    ForgetRecords,
    Hydrates,
    Known,
    Log,
    Recorded,
    Recovered,
    Released,
    Ring,
    Stepped,
    Taken,
    Void,
)
from streams.replica.driver.work_units import IdleUnit, SliceUnit, Unit, ViewUnit
from streams.replica.tasks.descriptor import Runs
from streams.replica.tasks.report import Result
from streams.storage.log.state import CollectionState
from tests.model.holders import WRITE
from tests.model.mutations import Mutation
from tests.model.world import CNT, Disk, World

PLAN = physical.Dataflow((), (physical.Source(0),), ((),), (1,), ())
"""One node, whose state has one level, in one bucket."""

BUCKETS = 1

ROUND = (0, 1)


class Lost(Exception):
    """Something this process relied on is gone: it starts again."""


def runs_of(names: Iterable[str]) -> Mapping[int, Runs]:
    """A state of these run files."""
    return {0: {"0.runs": [[name, 0] for name in names]}}


@dataclass
class Life:
    """A dataflow of a process, from its start on."""

    world: World
    disk: Disk
    version: str
    incarnation: str
    flow: Dataflow = field(init=False)

    def __post_init__(self) -> None:
        described = DataflowDescription(
            export=CNT,
            kind="view",
            name="cnt",
            group="cnt",
            columns=(),
            as_of=Timestamp(0),
            capability=WRITE,
        )
        self.flow = Dataflow(described, PLAN, "plan", self.version, {})

    @property
    def own(self) -> OwnState:
        """The state that is stepped."""
        assert self.flow.own is not None
        return self.flow.own

    @property
    def build(self) -> Build:
        """The build that is under way."""
        assert self.flow.build is not None
        return self.flow.build

    # Events

    def tell(self, event: Event) -> None:
        """Step the machine. Errors: Lost when the state has to be looked up again."""
        before = self.flow
        self.flow, effects = before.step(self._broken(event), self.world.now)
        for effect in effects:
            match effect:
                case ForgetRecords(records, build):
                    dropped = {record.checkpoint.frontier for record in records}
                    remaining = [r for r in self.disk.records if r.frontier not in dropped]
                    self.disk.records = remaining
                    self.disk.hydration = None if build else self.disk.hydration
                case Forget():
                    self.disk.records, self.disk.hydration = [], None
                case ForgetBuild():
                    self.disk.hydration = None
                case Ring() | Log():
                    pass
                case _:
                    assert_never(effect)
        was_working = before.phase in {Phase.RUNNING, Phase.BUILDING}
        if was_working and self.flow.phase in {Phase.STARTING, Phase.FAILED}:
            raise Lost

    def _broken(self, event: Event) -> Event:
        """What a mutated machine takes an event for."""
        match event:
            case Built(build) if self.world.without(Mutation.MACHINE_BUILT):
                return Built(replace(build, upper=build.lower))
            case Stepped(own) if self.world.without(Mutation.MACHINE_STEPPED):
                return Stepped(replace(own, frontier=self.own.frontier))
            case _:
                return event

    def begins(self) -> None:
        """Work begins."""
        self.tell(Taken())

    def ends(self) -> None:
        """The work has ended."""
        if self.flow.busy:
            self.tell(Released())

    def recovers(self, at: int, names: Iterable[str]) -> None:
        """The state of a checkpoint is there."""
        self._knows()
        self.tell(Recovered(self._state_of(at, names)))

    def hydrates(self, as_of: int, hydration: HydrationCheckpoint | None = None) -> None:
        """A build begins, or goes on where it stands; its last slice reads nothing more."""
        reads, done = (0, 0) if hydration is None else (hydration.slices, hydration.done)
        build = Build(
            incarnation=self.incarnation,
            lower=Timestamp(as_of),
            upper=Timestamp(as_of + 1),
            as_of=True,
            writes=True,
            slices=((),) * (reads + 1),
            sizes=(1,) * (reads + 1),
            done=done,
            runs=runs_of(() if hydration is None else sorted(hydration.runs)),
            stage=self.world.name("stage"),
        )
        self._knows()
        self.tell(Hydrates(self._state_of(as_of, ()), build))

    def _knows(self) -> None:
        states = [
            (record, self._state_of(record.frontier, record.runs))
            for record in self.disk.records
        ]
        self.tell(Known(tuple(Record(record, state, BUCKETS) for record, state in states)))

    def jumps(self, at: int) -> None:
        """The state is taken for one at another frontier, as no event says."""
        self.flow = replace(self.flow, own=replace(self.own, frontier=frontier(at)))

    def records(self, state: OwnState, upper: Antichain) -> None:
        """Write the checkpoint record of a state, in place of another at its frontier."""
        record = record_of(self.version, state, BUCKETS)
        at = state.frontier.time
        self.disk.records = [r for r in self.disk.records if r.frontier != at]
        self.disk.records.append(record.checkpoint)
        self.tell(Recorded(record, upper))

    def _state_of(self, at: int, names: Iterable[str]) -> OwnState:
        return OwnState(self.incarnation, frontier(at), runs_of(sorted(names)))

    # Attempts

    def seen(self, shard: CollectionState) -> ShardState:
        """The shard as this replica sees it."""
        mutated = self.world.mutation in {Mutation.RULE_24_UNDO, Mutation.RULE_24_RACE}
        return ShardState(shard.upper, self.version if mutated else shard.fingerprint, {})

    def stepped(
        self, step: Step, names: Iterable[str], chunks: tuple[ChunkRef, ...], shard: ShardState
    ) -> Attempt:
        """The attempt of a step, or of the slice of a build that is under way."""
        result = Result(runs={ROUND: runs_of(names)[0]}, chunks=list(chunks))
        return append_attempt.of_unit(self._unit(step), result, shard)

    def _unit(self, step: Step) -> Unit:
        interval = Interval(step.lower.time, step.upper.time)
        share = work_units.share(self.flow, interval, {}, None)
        if self.flow.build is not None:
            return SliceUnit(flow=self.flow, share=share, loads=(), build=self.flow.build)
        return ViewUnit(flow=self.flow, share=share, loads=())

    def idle(self, idle: Idle, shard: ShardState) -> Attempt:
        """The attempt of an idle interval."""
        return append_attempt.of_quiet(IdleUnit(self.flow, idle), shard)

    def ended(self, attempt: Attempt) -> bool:
        """Step the machine with an attempt's end; whether it counted. Errors: Lost."""
        assert attempt.end is not None
        self.tell(attempt.end)
        return attempt.counts

    def awaited_in_vain(self, attempt: Attempt) -> None:
        """What the attempt awaits is void."""
        if self.world.without(Mutation.MACHINE_VOID):
            self.ended(attempt.ended(attempt.counted))
        else:
            self.tell(Void())


def names_of(state: OwnState) -> tuple[str, ...]:
    """The run files of a state, oldest first."""
    return tuple(str(name) for name, *_ in state.runs.get(0, {}).get("0.runs", ()))


def after(attempt: Attempt) -> OwnState:
    """The state if an attempt counts."""
    match attempt.counted:
        case Stepped(own):
            return own
        case Built(build):
            return OwnState(build.incarnation, frontier(build.upper), build.runs, None)
        case _:
            raise AssertionError(attempt.counted)
