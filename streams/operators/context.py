"""The inputs and outputs of every operator: kernel and files, the interval, packets."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from streams.plan.physical import Dataflow, NodeId
from streams.progress import Interval
from streams.trace.arrange.runs import PIECE, RunCache, RunFiles, RunName, SharedFile
from streams.trace.kernel.kernel import Kernel

RunsByOperator = Mapping[str, list[RunName]]
"""An operator's runs in one bucket, as a checkpoint keeps them in JSON:
`{"<node>.<arrangement>": [[run name, rows], ...]}`, oldest first."""

NEGATIVE = "group has a negative number of rows"
"""The error of a key of which some row is there a negative number of times."""

ERRORS = pa.schema([("error", pa.string()), ("time", pa.int64()), ("diff", pa.int64())])


def _unwatched(node: NodeId) -> AbstractContextManager[None]:  # noqa: ARG001 - a watch needs it
    return nullcontext()


def _uncounted(node: NodeId, rows_in: int, rows_out: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Context:
    """A worker's resources: the directory of run files, its DuckDB, and names for new files.

    `cache` holds the open runs; one cache a worker process serves all dataflows. `watch` is
    entered around the work for each node, for profiles: the node's own work, and the work of
    the sender that prepares its input. `count` is called with the numbers of input and output
    rows of a node that was stepped.
    """

    directory: Path
    kernel: Kernel
    new_name: Callable[[], str]
    cache: RunCache = field(default_factory=RunCache)
    merge_factor: int = 2
    piece: int = PIECE
    shared: SharedFile = field(default_factory=SharedFile)
    watch: Callable[[NodeId], AbstractContextManager[None]] = _unwatched
    count: Callable[[NodeId, int, int], None] = _uncounted

    @property
    def files(self) -> RunFiles:
        """The run files of the directory."""
        return RunFiles(
            self.directory,
            self.new_name,
            self.cache,
            self.merge_factor,
            self.shared,
            self.piece,
        )

    def of_task(self, merge_factor: int | None = None) -> "Context":
        """The same context for a new task, which writes its runs to separate files."""
        factor = self.merge_factor if merge_factor is None else merge_factor
        return replace(self, shared=SharedFile(), merge_factor=factor)


@dataclass(frozen=True, slots=True)
class Packet:
    """Updates on their way to a node in a bucket of a later level."""

    bucket: int
    level: int
    node: NodeId
    port: str
    table: pa.Table


@dataclass(frozen=True, slots=True)
class EngineOutput:
    """The results of a call: packets for later levels, output updates, error updates.

    `output` has columns c0 .. cn, time, diff; `errors` has error, time, diff. None is nothing.
    """

    packets: tuple[Packet, ...]
    output: pa.Table | None
    errors: pa.Table | None


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One call of the engine: a dataflow, stepped in one place over one interval."""

    dataflow: Dataflow
    interval: Interval
    buckets: int
    context: Context

    @property
    def kernel(self) -> Kernel:
        """The worker's DuckDB."""
        return self.context.kernel


Ports = Mapping[str, list[pa.Table | pa.RecordBatch]]
"""The input batches of a node, by port."""


@dataclass(frozen=True, slots=True)
class NodeOutput:
    """The results of a node: updates, errors, and its new runs."""

    output: pa.RecordBatch | None
    errors: tuple[pa.RecordBatch, ...] = ()
    runs: Mapping[str, list[RunName]] = field(default_factory=dict)
