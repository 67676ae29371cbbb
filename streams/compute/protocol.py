"""The compute protocol: commands from a controller to replicas, responses back.

**Stages.** An iteration of the protocol passes through four, in order:

    creation         Hello, CreateInstance
    initialization   CreateDataflow*, Schedule*, AllowCompaction*, then InitializationComplete
    read-only        CreateDataflow*, Schedule*, AllowCompaction*, then AllowWrites
    read-write       CreateDataflow*, Schedule*, AllowCompaction*

A Hello at any point begins the next iteration: the coordinator came back, or shortened its
history. It names a nonce and the coordinator's epoch; every message carries the nonce of its
iteration and a sequence number, which counts over all iterations of an epoch. A reader drops
messages of another nonce, copies of a sequence number, and iterations of an epoch lower than
one it has seen: a zombie's (`streams.compute.reader`).

**Order.** The command topic has one partition: commands take effect in the order in which they
stand there. Effects are eventual, and both sides bear messages that cross.

**Duties of a replica.** `CreateDataflow` answers with `Frontiers`, at or beyond the as_of, each
kind monotone; nothing is written to a shard or a topic before `AllowWrites`.
`InitializationComplete` answers with `Reconciled`: from then on the replica runs exactly what
the iteration asked for. `AllowCompaction` with the empty frontier drops the dataflow, and is
answered with empty `Frontiers` when it no longer runs, also when it never did. A replica that
has nothing else to say for some seconds writes `Alive`.

Bytes are in `streams.compute.codec`.
"""

from dataclasses import dataclass

from streams.compute.description import DataflowDescription
from streams.ids import CollectionId
from streams.progress import Antichain


@dataclass(frozen=True, slots=True)
class Hello:
    """A new iteration begins. The nonce is the one of the message that carries it."""

    nonce: str
    epoch: int


@dataclass(frozen=True, slots=True)
class CreateInstance:
    """What all dataflows share: the namespace of our topics and the number of buckets."""

    namespace: str
    buckets: int


@dataclass(frozen=True, slots=True)
class CreateDataflow:
    """Maintain an export. Its imports exist and are readable at the as_of."""

    description: DataflowDescription


@dataclass(frozen=True, slots=True)
class Schedule:
    """The dataflow may start: its inputs will be readable at its as_of."""

    id: CollectionId


@dataclass(frozen=True, slots=True)
class AllowCompaction:
    """Nobody outside reads the export below the frontier any more; empty: drop the dataflow."""

    id: CollectionId
    frontier: Antichain


@dataclass(frozen=True, slots=True)
class InitializationComplete:
    """Every dataflow that should exist has been named: the replica reconciles."""


@dataclass(frozen=True, slots=True)
class AllowWrites:
    """The replica may write to shards and output topics, for good in this iteration."""


Command = (
    Hello
    | CreateInstance
    | CreateDataflow
    | Schedule
    | AllowCompaction
    | InitializationComplete
    | AllowWrites
)


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The replica runs what was asked for: so many kept as they were, created, dropped."""

    kept: int
    created: int
    dropped: int


@dataclass(frozen=True, slots=True)
class Frontiers:
    """How far a dataflow has come; None is unchanged.

    `write`: the contents below it are sealed in the shard (or in the output topic, for a
    sink). `output`: the replica's own state has come this far.
    """

    id: CollectionId
    write: Antichain | None = None
    output: Antichain | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The condition of a dataflow, for people; may be lost.

    `state` is one of starting, hydrating, running, stalled, failed; `progress` is free text,
    such as `3 of 8 slices`.
    """

    id: CollectionId
    state: str
    message: str = ""
    progress: str = ""


@dataclass(frozen=True, slots=True)
class Hydration:
    """How far a dataflow's hydration has come, for people; may be lost.

    Units: rows as they are stored, of a source messages. `seconds_left` is at the pace so far,
    None before the first slice is done.
    """

    id: CollectionId
    done: int
    total: int
    seconds_left: int | None = None


@dataclass(frozen=True, slots=True)
class Alive:
    """The process that writes it lives. Every response says so; this one says nothing else."""


Response = Reconciled | Frontiers | Status | Hydration | Alive


@dataclass(frozen=True, slots=True)
class CommandMessage:
    """A command as it stands on the topic."""

    nonce: str
    sequence: int
    command: Command


@dataclass(frozen=True, slots=True)
class ResponseMessage:
    """A response as it stands on the topic; `replica` names the process that wrote it."""

    nonce: str
    replica: str
    sequence: int
    response: Response


def process_name(replica: str, start: str) -> str:
    """How a process of a replica signs; `start` tells its starts apart and has no hyphen."""
    return f"{replica}-{start}"


def replica_of(process: str) -> str:
    """The replica that a process belongs to, by the name that it signs with."""
    return process.rpartition("-")[0] or process
