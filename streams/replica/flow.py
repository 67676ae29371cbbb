"""A dataflow as this replica runs it: what it is, where its state stands, what it waits for.

A `Flow` is the one mutable object of a dataflow in the driver; every change of it is made under
the scheduler's lock. Its phases:

    STARTING   its state has not been looked for yet
    BUILDING   a snapshot, or what it missed, is being worked through in slices
    RUNNING    state stands at `own.frontier` and is stepped
    FAILED     for good: only dropping the dataflow helps

`busy` says that a micro-batch or an idle append of it is under way; nothing else is begun then,
which is what rule 22 asks for.
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
from streams.replica.descriptor import Load, Runs
from streams.replica.trouble import NOWHERE, Isolation, Place, Trouble
from streams.storage.events import Offsets
from streams.trace.runs import file_of


class Phase(Enum):
    """Where in its life a dataflow is; the values are those of `protocol.Status`."""

    STARTING = "starting"
    BUILDING = "hydrating"
    RUNNING = "running"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class OwnState:
    """The state at a frontier: runs by bucket, and the binding it was read up to, if any."""

    incarnation: str
    frontier: Antichain
    runs: Mapping[int, Runs]
    offsets: Offsets | None = None

    @property
    def position(self) -> Position:
        """An ingestion's place in time and in its topic."""
        return Position(self.frontier, self.offsets or {})


@dataclass(frozen=True, slots=True)
class Record:
    """A checkpoint with everything needed to go on from it."""

    checkpoint: Checkpoint
    state: OwnState


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Work on one interval in several micro-batches, of which only the last one appends.

    `runs` is the state after the `done` slices; their output are the `staged` chunks under the
    name `stage`, behind which stand `ahead` chunks of the next slice. Without `writes` it is
    thrown away: the shard has it. `ingest` is given for the first interval of a source, whose
    loads are messages; `offsets` is the binding at `upper`, for any source.
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

    `blocked_by` names the imports whose uppers it waits for. `isolation` says whether it is to
    be stepped alone, and `tried` is the last micro-batch in which it was. `cost_ms` is the time
    that its last step took of workers. `read_from` says at which offset of its log each
    import stood when the micro-batch under way was decided.
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
        """The export's, which names the dataflow."""
        return self.description.export

    @property
    def is_source(self) -> bool:
        """Whether it reads a raw topic."""
        return self.description.source is not None

    @property
    def scheduled(self) -> Antichain:
        """The least time at which its output changes though nothing arrives (rule 44)."""
        runs = () if self.own is None else self.own.runs.values()
        times = [next_due(self.plan, each) for each in runs]
        return meet_all(frontier(time) for time in times if time is not None)

    @property
    def place(self) -> Place:
        """How far it has come, for its troubles."""
        if self.own is None:
            return NOWHERE
        at = self.own.frontier
        done = 0 if self.build is None else self.build.done
        return (sys.maxsize if at.is_empty else at.time, done)

    def go_on(self) -> None:
        """Note that a step or a slice counted: a trouble is over when its place is passed."""
        if self.trouble is None or self.trouble.is_over(self.place):
            self.trouble = None
            self.isolation = self.isolation.passed()

    def is_ready(self, phase: Phase, now_ms: int) -> bool:
        """Whether something may be begun with it in this phase."""
        waiting = self.trouble is not None and now_ms < self.trouble.retry_at_ms
        return self.phase is phase and not (self.busy or self.gone or waiting)


def run_names(runs: Mapping[int, Runs]) -> frozenset[str]:
    """The names of all run files of a state."""
    return frozenset(
        file_of(str(name))
        for by_operator in runs.values()
        for listed in by_operator.values()
        for name, *_ in listed
    )
