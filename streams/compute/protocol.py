"""The compute protocol: commands from a controller to replicas, responses back.

**Stages.** An iteration of the protocol passes through four, in order:

    creation         CreateTimely, CreateInstance
    initialization   computation commands, then InitializationComplete
    read-only        computation commands, then AllowWrites
    read-write       computation commands

Computation commands are UpdateConfiguration, CreateDataflow, Schedule, AllowCompaction, Peek,
CancelPeek, Subscribe, AcknowledgeSubscribe and CancelSubscribe.

A CreateTimely at any point begins the next iteration: the coordinator came back, or shortened
its history. It names a nonce, the coordinator's epoch and the configuration of replicas
(`streams.compute.parameters`); every message carries the nonce of its iteration and a sequence
number, which counts over all iterations of an epoch. A reader drops
messages of another nonce, copies of a sequence number, and iterations of an epoch lower than
one it has seen: a zombie's (`streams.compute.reader`).

**Order.** The command topic has one partition: commands take effect in the order of their
offsets. Effects are eventual, and both sides tolerate messages that cross.

**Duties of a replica.** `CreateDataflow` answers with `Frontiers`, at or beyond the as_of, each
kind monotone; nothing is written to a shard or a topic before `AllowWrites`, but for leased
holds. Nothing is answered before InitializationComplete.
`InitializationComplete` answers with `Reconciled`: from then on the replica runs exactly what
the iteration asked for. `AllowCompaction` with the empty frontier drops the dataflow, and is
answered with empty `Frontiers` once it no longer runs, also if it never did. A replica without
other responses for some seconds writes `Alive`. Each `Peek` of the iteration is answered once
(`streams.compute.peeks`), also one that came before InitializationComplete. To each `Subscribe`
intervals are delivered until it ends (`streams.compute.subscribes`).

What work costs and what it keeps is reported for display (`streams.compute.activity`).

Bytes are in `streams.compute.codec`.
"""

from dataclasses import dataclass, field

from streams.compute.activity import DataflowActivity, ReplicaActivity, ReplicaMemory
from streams.compute.description import DataflowDescription
from streams.compute.parameters import ParameterValues
from streams.compute.peeks import CancelPeek, Peek, PeekResponse
from streams.compute.subscribes import (
    AcknowledgeSubscribe,
    CancelSubscribe,
    Subscribe,
    SubscribeResponse,
)
from streams.ids import CollectionId
from streams.progress import Antichain


@dataclass(frozen=True, slots=True)
class CreateTimely:
    """A new iteration begins. The nonce is the one of the message that carries it.

    `configuration` has the parameters with other values than the defaults.
    """

    nonce: str
    epoch: int
    configuration: ParameterValues = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateInstance:
    """Settings that all dataflows share: the namespace of topics, the number of buckets."""

    namespace: str
    buckets: int


@dataclass(frozen=True, slots=True)
class UpdateConfiguration:
    """Parameters have other values from now on; those that it does not name stay."""

    configuration: ParameterValues


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
    """No external reader reads the export before the frontier; empty: drop the dataflow."""

    id: CollectionId
    frontier: Antichain


@dataclass(frozen=True, slots=True)
class InitializationComplete:
    """Every dataflow that should exist has been named: the replica reconciles."""


@dataclass(frozen=True, slots=True)
class AllowWrites:
    """The replica may write to shards and output topics for the rest of the iteration."""


Command = (
    CreateTimely
    | CreateInstance
    | UpdateConfiguration
    | CreateDataflow
    | Schedule
    | AllowCompaction
    | InitializationComplete
    | AllowWrites
    | Peek
    | CancelPeek
    | Subscribe
    | AcknowledgeSubscribe
    | CancelSubscribe
)

ShortLived = Peek | CancelPeek | Subscribe | AcknowledgeSubscribe | CancelSubscribe
"""Commands that are no part of a history, and that a loop of their own answers."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The replica runs what was requested: how many were kept, created and dropped."""

    kept: int
    created: int
    dropped: int


@dataclass(frozen=True, slots=True)
class Frontiers:
    """The progress of a dataflow; None is unchanged.

    `write`: the contents before it are final in the shard (or in the output topic, for a sink).
    `output`: the frontier of the replica's own state. `input`: up to here the replica has read
    the logs of the imports; what lies between the two is to be computed. A source and a rebase
    have none, for they read a topic, or another timeline.
    """

    id: CollectionId
    write: Antichain | None = None
    output: Antichain | None = None
    input: Antichain | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The condition of a dataflow, for display; may be lost.

    `state` is one of starting, hydrating, running, stalled, failed; it is standby where another
    replica owns the source or sink. `progress` is free text, such as `3 of 8 slices`.
    """

    id: CollectionId
    state: str
    message: str = ""
    progress: str = ""


@dataclass(frozen=True, slots=True)
class Hydration:
    """The progress of a dataflow's hydration, for display; may be lost.

    Units: stored rows, or messages of a source. `seconds_left` is extrapolated, None before the
    first slice is done.
    """

    id: CollectionId
    done: int
    total: int
    seconds_left: int | None = None


@dataclass(frozen=True, slots=True)
class Alive:
    """The process that writes it is live. Every response says so; this one says only that."""


Response = (
    Reconciled
    | Frontiers
    | Status
    | Hydration
    | DataflowActivity
    | ReplicaActivity
    | ReplicaMemory
    | Alive
    | PeekResponse
    | SubscribeResponse
)


@dataclass(frozen=True, slots=True)
class CommandMessage:
    """A command as encoded on the topic."""

    nonce: str
    sequence: int
    command: Command


@dataclass(frozen=True, slots=True)
class ResponseMessage:
    """A response as encoded on the topic; `replica` names the process that wrote it."""

    nonce: str
    replica: str
    sequence: int
    response: Response


def process_name(replica: str, start: str) -> str:
    """The name of a replica's process; `start` identifies its start and has no hyphen."""
    return f"{replica}-{start}"


def replica_of(process: str) -> str:
    """Return the replica of a process name."""
    return process.rpartition("-")[0] or process
