"""The descriptor of a micro-batch: the instructions for its tasks.

The scheduler keeps one for each micro-batch before it returns the offset; each worker reads it
once (`streams.replica.tasks.workplace`). So blobs carry names only, the functions given to
Spark depend only on the place of tasks, and a replayed task does the same again.

Driver and tasks have one version, so descriptors are pickled. They are deleted when the
micro-batch is done.
"""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from streams.compute.description import IngestionDescription
from streams.compute.skipped_offsets import Skipped
from streams.errors import Determinate
from streams.files import write_whole
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp, Topic
from streams.kafka.log import Chunks
from streams.operators.engine import RunsByOperator
from streams.plan.physical import Column
from streams.progress import Interval
from streams.replica.crash_injection import Crash
from streams.replica.ingest.event_times import FRESH, ReadMode
from streams.replica.ingest.ranges import Slice
from streams.replica.ingest.source import TopicReader
from streams.storage.read.reader import Piece

Runs = RunsByOperator
"""The runs of one bucket."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A source's own updates as messages of its envelope."""

    source: IngestionDescription
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class ChunkLoad:
    """Updates of one import of a dataflow, to be read from a shard.

    With `as_of` they are part of a snapshot: all of them happen then, and with `cancels` those
    that cancel each other then are left out. With `replay` they are the history of an
    ingestion's own shard, to be read as messages of its envelope.
    """

    dataflow: CollectionId
    index: int
    topic: Topic
    pieces: tuple[Piece, ...]
    as_of: Timestamp | None = None
    replay: Replay | None = None
    cancels: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RawLoad:
    """Messages of a raw topic, to be decoded, all at `time`.

    With a watermark it is the shard's upper, and rows are late before it. `skipped` are rows of
    the dead letters besides.
    """

    dataflow: CollectionId
    source: IngestionDescription
    columns: tuple[Column, ...]
    slices: tuple[Slice, ...]
    time: Timestamp
    manner: ReadMode = FRESH
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True)
class Undo:
    """The export's former contents, to be retracted at `time` by an upgrade."""

    dataflow: CollectionId
    topic: Topic
    pieces: tuple[Piece, ...]
    time: Timestamp


Load = ChunkLoad | RawLoad | Undo


@dataclass(frozen=True, slots=True)
class Output:
    """The destination of a dataflow's output: data topic, column names, headers.

    Updates before `floor` are in the shard already and are not written again.
    """

    topic: Topic
    names: tuple[str, ...]
    headers: Mapping[str, bytes]
    floor: Timestamp = MINIMUM_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A dataflow's share of a micro-batch: one interval, or a slice of a snapshot.

    `plan` names the plan's file. `runs` is the state at the interval's lower by bucket. At the
    dataflow's birth every bucket is advanced. Without an `output` only state is
    produced: the updates are in the shard already.

    `in_hand` names the imports that the micro-batch itself produces, with their index: their
    updates reach this dataflow in the tasks that produce them, up to round `base`. Its own
    level k is round `base + k`. `letters` is where a source writes its dead letters.
    """

    dataflow: CollectionId
    plan: str
    interval: Interval
    runs: Mapping[int, Runs]
    output: Output | None
    base: int = 0
    in_hand: Mapping[CollectionId, int] = field(default_factory=dict)
    letters: Output | None = None


class Clients(Protocol):
    """Opens what tasks read from and write to; a hashable value that pickles."""

    def chunks(self) -> Chunks:
        """Return a client of data topics."""

    def messages(self) -> TopicReader:
        """Return a reader of raw topics."""

    def __hash__(self) -> int:
        """Return the same for equal values: a worker keeps the clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A micro-batch: its dataflows, and the loads of each task of round 0."""

    step: str
    buckets: int
    clients: Clients
    shares: Mapping[CollectionId, Share]
    tasks: tuple[tuple[Load, ...], ...]
    crash: Crash
    candidate_ms: int | None = None
    """The event time that the lane's watermark may follow."""
    merge_factor: int = 2
    """The size ratio above which a run file is not merged with a newer one."""


def path_of(state: Path, step: str) -> Path:
    """Return the path of a micro-batch's descriptor."""
    return state / "steps" / f"{step}.pickle"


def write(state: Path, descriptor: Descriptor) -> None:
    """Write the descriptor atomically."""
    path = path_of(state, descriptor.step)
    write_state(path, pickle.dumps(descriptor, protocol=pickle.HIGHEST_PROTOCOL))


def write_state(path: Path, content: bytes) -> None:
    """Write a file of the state directory atomically.

    Errors: Determinate if the disk is full.
    """
    try:
        write_whole(path, content)
    except OSError as cause:
        raise Determinate(f"state file {path}: {cause}") from cause
