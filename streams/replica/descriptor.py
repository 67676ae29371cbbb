"""The descriptor of a micro-batch: all that its tasks need to know beside the data.

The scheduler writes one file for each micro-batch before it gives the offset out; tasks read
it once a worker and find their dataflows in it. So blobs carry names only, the functions given
to Spark know nothing but the state directory, and a replayed task does the same again.

The files are the driver's word to its own tasks, in its own directory and of its own version:
they are pickled, and deleted when the micro-batch is done.
"""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streams.compute.description import IngestionDescription
from streams.errors import Determinate
from streams.files import write_whole
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp, Topic
from streams.kafka.settings import ClientSettings
from streams.operators.engine import RunsByOperator
from streams.plan.physical import Column
from streams.replica.crash import Crash
from streams.replica.ingest.ranges import Slice
from streams.storage.read import Piece

Runs = RunsByOperator
"""The runs of one bucket."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What a source's own updates mean as messages of its envelope."""

    source: IngestionDescription
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class ChunkLoad:
    """Updates of one import of a dataflow, to be read from a shard.

    With `as_of` they are part of a snapshot: all of them happen then. With `replay` they are
    the history of an ingestion's own shard, to be read as messages of its envelope.
    """

    dataflow: CollectionId
    index: int
    topic: Topic
    pieces: tuple[Piece, ...]
    as_of: Timestamp | None = None
    replay: Replay | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RawLoad:
    """Messages of a raw topic, to be decoded; all of them happen at `time`."""

    dataflow: CollectionId
    source: IngestionDescription
    columns: tuple[Column, ...]
    slices: tuple[Slice, ...]
    time: Timestamp


@dataclass(frozen=True, slots=True)
class Undo:
    """What an export said so far, to be taken back at `time`: an upgrade says it anew."""

    dataflow: CollectionId
    topic: Topic
    pieces: tuple[Piece, ...]
    time: Timestamp


Load = ChunkLoad | RawLoad | Undo


@dataclass(frozen=True, slots=True)
class Output:
    """Where a dataflow's output goes: a data topic, the names of columns, the headers.

    What lies before `floor` is in the shard already, and is not written again.
    """

    topic: Topic
    names: tuple[str, ...]
    headers: Mapping[str, bytes]
    floor: Timestamp = MINIMUM_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A dataflow's share of a micro-batch: one interval, or a slice of a snapshot.

    `plan` names the plan's file. `runs` is the state at `lower` by bucket. With `as_of` this
    is the dataflow's birth, and every bucket is advanced. Without an `output` only state
    comes of it: what it would write is in the shard already.

    `in_hand` names the imports that the micro-batch makes itself, with their index: their
    updates reach this dataflow in the tasks that make them, up to round `base`. Its own level
    k is round `base + k`.
    """

    dataflow: CollectionId
    plan: str
    lower: Timestamp
    upper: Timestamp
    as_of: bool
    runs: Mapping[int, Runs]
    output: Output | None
    base: int = 0
    in_hand: Mapping[CollectionId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A micro-batch: its dataflows, and what each task of round 0 loads."""

    step: str
    buckets: int
    kafka: ClientSettings
    shares: Mapping[CollectionId, Share]
    tasks: tuple[tuple[Load, ...], ...]
    crash: Crash


def path_of(state: Path, step: str) -> Path:
    """Where the descriptor of a micro-batch lies."""
    return state / "steps" / f"{step}.pickle"


def write(state: Path, descriptor: Descriptor) -> None:
    """Put the descriptor in its place, whole or not at all."""
    path = path_of(state, descriptor.step)
    write_state(path, pickle.dumps(descriptor, protocol=pickle.HIGHEST_PROTOCOL))


def read(state: Path, step: str) -> Descriptor:
    """The descriptor of a micro-batch."""
    found = pickle.loads(path_of(state, step).read_bytes())  # noqa: S301  our own driver's
    assert isinstance(found, Descriptor)
    return found


def make_folder(path: Path) -> None:
    """Make a folder of the state directory, unless it is there.

    Errors: Determinate when the disk takes no more.
    """
    try:
        path.mkdir(exist_ok=True)
    except OSError as cause:
        raise Determinate(f"state folder {path}: {cause}") from cause


def write_state(path: Path, content: bytes) -> None:
    """Write a file of the state directory under its name at once.

    Errors: Determinate when the disk takes no more.
    """
    try:
        write_whole(path, content)
    except OSError as cause:
        raise Determinate(f"state file {path}: {cause}") from cause
