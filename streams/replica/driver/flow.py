"""A running dataflow in the driver: description, phase, state, build and failures.

A `Flow` is the only mutable object of a dataflow in the driver; it is changed only under the
scheduler's lock. Its phases:

    STARTING   its stored state has not been looked up yet
    BUILDING   a snapshot, or an interval that it missed, is processed in slices
    RUNNING    its state is at `own.frontier` and is stepped
    FAILED     permanently: only dropping the dataflow helps

`busy` means that a micro-batch or an idle append of it is in progress; nothing else begins
then, as rule 22 requires.
"""

import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from streams.compute.checkpoints import Checkpoint
from streams.compute.description import DataflowDescription
from streams.compute.reclocking import Ingest, Position
from streams.ids import CapabilityId, CollectionId, Offset, Timestamp
from streams.operators.engine import next_due
from streams.plan.physical import Dataflow
from streams.progress import Antichain, frontier, meet_all
from streams.replica.driver.trouble import NOWHERE, Isolation, Place, Trouble
from streams.replica.tasks.descriptor import Load, Runs
from streams.storage.log.events import Offsets
from streams.trace.arrange.runs import file_of


class Phase(Enum):
    """The phase of a dataflow; the values are those of `protocol.Status`."""

    STARTING = "starting"
    BUILDING = "hydrating"
    RUNNING = "running"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class OwnState:
    """The state at a frontier: runs by bucket, and for a source the binding at the frontier."""

    incarnation: str
    frontier: Antichain
    runs: Mapping[int, Runs]
    offsets: Offsets | None = None

    @property
    def position(self) -> Position:
        """Return the position of an ingestion: its frontier and its binding."""
        return Position(self.frontier, self.offsets or {})


@dataclass(frozen=True, slots=True)
class Record:
    """A checkpoint with everything needed to continue from it."""

    checkpoint: Checkpoint
    state: OwnState


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One interval processed in several micro-batches, of which only the last one appends.

    `runs` is the state after the `done` slices; their output is the `staged` chunks under the
    name `stage`, followed by `ahead` chunks of the next slice. Without `writes` the output is
    discarded: the shard has it. `ingest` is set for the first interval of a source, whose loads
    are messages; `offsets` is the binding at `upper`, for any source.
    """

    incarnation: str
    lower: Timestamp
    upper: Timestamp
    as_of: bool
    writes: bool
    slices: tuple[tuple[Load, ...], ...]
    sizes: tuple[int, ...]
    done: int = 0
    runs: Mapping[int, Runs] = field(default_factory=dict)
    stage: str = field(default_factory=lambda: uuid.uuid4().hex)
    staged: int = 0
    ahead: int = 0
    ingest: Ingest | None = None
    offsets: Offsets | None = None


@dataclass(slots=True)
class Flow:
    """A dataflow of this replica.

    `blocked_by` names the imports whose uppers it waits for. `isolation` says whether it is
    stepped alone, and `tried` is the last micro-batch in which it was. `cost_ms` is the worker
    time of its last step. `read_from` maps each import to the offset of its log at which the
    current micro-batch was planned.
    """

    description: DataflowDescription
    plan: Dataflow
    plan_name: str
    fingerprint: str
    holds: Mapping[CollectionId, CapabilityId]
    phase: Phase = Phase.STARTING
    own: OwnState | None = None
    build: Build | None = None
    busy: bool = False
    gone: bool = False
    trouble: Trouble | None = None
    records: tuple[Record, ...] = ()
    recorded_ms: int = 0
    blocked_by: tuple[CollectionId, ...] = ()
    isolation: Isolation = field(default_factory=Isolation)
    tried: int = 0
    read_from: Mapping[CollectionId, Offset] = field(default_factory=dict)
    cost_ms: float = 0.0
    groups: frozenset[str] = field(init=False)
    """The groups that it reads and writes."""

    def __post_init__(self) -> None:
        imports = self.description.imports
        self.groups = frozenset({self.description.group, *(each.group for each in imports)})

    @property
    def id(self) -> CollectionId:
        """The export's id, which names the dataflow."""
        return self.description.export

    @property
    def is_source(self) -> bool:
        """Whether it reads a raw topic."""
        return self.description.source is not None

    @property
    def scheduled(self) -> Antichain:
        """The least time at which its output changes without new input (rule 44)."""
        runs = () if self.own is None else self.own.runs.values()
        times = [next_due(self.plan, each) for each in runs]
        return meet_all(frontier(time) for time in times if time is not None)

    @property
    def place(self) -> Place:
        """The progress with which failures are compared."""
        if self.own is None:
            return NOWHERE
        at = self.own.frontier
        done = 0 if self.build is None else self.build.done
        return (sys.maxsize if at.is_empty else at.time, done)

    def go_on(self) -> None:
        """Record that a step or a slice counted: a failure is over once its place is passed."""
        if self.trouble is None or self.trouble.is_over(self.place):
            self.trouble = None
            self.isolation = self.isolation.passed()

    def is_ready(self, phase: Phase, now_ms: int) -> bool:
        """Whether a step may begin in this phase."""
        waiting = self.trouble is not None and now_ms < self.trouble.retry_at_ms
        return self.phase is phase and not (self.busy or self.gone or waiting)


def run_names(runs: Mapping[int, Runs]) -> frozenset[str]:
    """Return the names of all run files of a state."""
    return frozenset(
        file_of(str(name))
        for by_operator in runs.values()
        for listed in by_operator.values()
        for name, *_ in listed
    )
