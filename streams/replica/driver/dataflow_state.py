"""A replica's state of a dataflow: its checkpoint, its records, the progress of a build."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from streams.compute.checkpoints import Checkpoint
from streams.compute.event_time import Progress
from streams.compute.reclocking import Ingest, Position
from streams.ids import Timestamp
from streams.progress import Antichain
from streams.replica.tasks.descriptor import Load, Runs
from streams.storage.log.events import Offsets
from streams.trace.arrange.runs import file_of


@dataclass(frozen=True, slots=True)
class OwnState:
    """The state at a frontier: runs by bucket, and for a source the binding at the frontier.

    `progress` is how far a source with a watermark has read beyond it; its runs hold the rows
    that are pending there.
    """

    incarnation: str
    frontier: Antichain
    runs: Mapping[int, Runs]
    offsets: Offsets | None = None
    progress: Progress | None = None

    @property
    def position(self) -> Position:
        """Return the position of an ingestion: its frontier and its binding."""
        return Position(self.frontier, self.offsets or {})


@dataclass(frozen=True, slots=True)
class Record:
    """A checkpoint with everything needed to continue from it, over so many buckets."""

    checkpoint: Checkpoint
    state: OwnState
    buckets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One interval processed in several micro-batches, of which only the last one appends.

    `runs` is the state after the `done` slices; their output is the `staged` chunks under the
    name `stage`, followed by `ahead` chunks of the next slice. Without `writes` the output is
    discarded: the shard has it. `ingest` is set for the first interval of a source, whose loads
    are messages; `offsets` is the binding at `upper`, for any source. The chunks of its dead
    letters are staged under a name of their own (`stage_of_letters`).
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
    staged_letters: int = 0
    ahead: int = 0
    ingest: Ingest | None = None
    offsets: Offsets | None = None

    @property
    def stage_of_letters(self) -> str:
        """The name under which the chunks of dead letters are staged."""
        return f"{self.stage}.errors"


def run_names(runs: Mapping[int, Runs]) -> frozenset[str]:
    """Return the names of all run files of a state."""
    return frozenset(
        file_of(str(name))
        for by_operator in runs.values()
        for listed in by_operator.values()
        for name, *_ in listed
    )
