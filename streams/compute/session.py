"""The replica's side of the protocol as a pure state machine: commands in, actions out.

    WAITING --CreateTimely--> GREETED --CreateInstance--> INITIALIZING
    --InitializationComplete--> READ_ONLY --AllowWrites--> READ_WRITE;
    CreateTimely leads from every stage to GREETED

Running dataflows keep running while a new iteration is received, but may not write: that right
belongs to an iteration. Before InitializationComplete nothing is answered. On
InitializationComplete the session reconciles: a dataflow stays if the iteration names one of
the same export and structure (`streams.compute.reconciliation`); all others are dropped
*first*, then the missing ones are created. So a replica that reconnects to an unchanged history
does nothing, and to one in which objects were renamed or compacted, nearly nothing.

A configuration that names a value out of bounds is refused and changes nothing: an
UpdateConfiguration as an illegal command is, a CreateTimely with a report.

A dataflow with an empty AllowCompaction does not exist. Commands on unknown exports are not
errors: messages may cross, and a drop of an unknown export is confirmed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import assert_never

from streams.compute.description import DataflowDescription
from streams.compute.parameters import (
    DEFAULTS,
    ComputeParameters,
    ParameterValues,
    unknown_names,
)
from streams.compute.peeks import CancelPeek, Peek
from streams.compute.protocol import (
    AllowCompaction,
    AllowWrites,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    InitializationComplete,
    Schedule,
    UpdateConfiguration,
)
from streams.compute.reconciliation import reconcile
from streams.compute.subscribes import AcknowledgeSubscribe, CancelSubscribe, Subscribe
from streams.errors import InvalidUsage
from streams.ids import MINIMUM_TIME, CollectionId
from streams.progress import Antichain, frontier


class Stage(Enum):
    """The stages of an iteration, seen from the replica."""

    WAITING = "waiting"
    GREETED = "greeted"
    INITIALIZING = "initializing"
    READ_ONLY = "read-only"
    READ_WRITE = "read-write"


START = frontier(MINIMUM_TIME)
"""What an export is compacted to that was never compacted."""

COMPUTING = frozenset({Stage.INITIALIZING, Stage.READ_ONLY, Stage.READ_WRITE})

# The commands that are legal in each stage. A CreateTimely is legal in any.
LEGAL: Mapping[type[Command], frozenset[Stage]] = {
    CreateTimely: frozenset(Stage),
    CreateInstance: frozenset({Stage.GREETED}),
    UpdateConfiguration: COMPUTING,
    CreateDataflow: COMPUTING,
    Schedule: COMPUTING,
    AllowCompaction: COMPUTING,
    Peek: COMPUTING,
    CancelPeek: COMPUTING,
    Subscribe: COMPUTING,
    AcknowledgeSubscribe: COMPUTING,
    CancelSubscribe: COMPUTING,
    InitializationComplete: frozenset({Stage.INITIALIZING}),
    AllowWrites: frozenset({Stage.READ_ONLY}),
}


@dataclass(frozen=True, slots=True)
class Configure:
    """Action: set the instance's settings (sent once)."""

    instance: CreateInstance


@dataclass(frozen=True, slots=True)
class SetParameters:
    """Action: go by these parameters from now on."""

    parameters: ComputeParameters


@dataclass(frozen=True, slots=True)
class ReportParameters:
    """Action: report what became of a configuration, of which not all is in effect."""

    message: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Action: exit this process, because only a new one can take these settings."""

    reason: str


@dataclass(frozen=True, slots=True)
class Create:
    """Action: start this dataflow."""

    description: DataflowDescription


@dataclass(frozen=True, slots=True)
class Drop:
    """Action: stop this dataflow, if it runs; then report empty Frontiers for the export.

    With `silent` nothing is reported: the iteration that asked for it is over.
    """

    export: CollectionId
    silent: bool


@dataclass(frozen=True, slots=True)
class Compact:
    """Action: no external reader reads a computed export before this frontier any more."""

    export: CollectionId
    frontier: Antichain


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Action: answer Reconciled, and report the frontiers of all kept dataflows again."""

    kept: tuple[CollectionId, ...]
    created: int
    dropped: int


Action = (
    Configure | SetParameters | ReportParameters | Restart | Create | Drop | Compact | Reconcile
)


@dataclass(frozen=True, slots=True)
class Session:
    """The stage of the protocol and the dataflows that it has asked for.

    `running` has each dataflow as it can be read now: the as_of of one that is computed has
    followed its AllowCompaction.
    """

    stage: Stage = Stage.WAITING
    nonce: str = ""
    instance: CreateInstance | None = None
    parameters: ComputeParameters = DEFAULTS
    running: Mapping[CollectionId, DataflowDescription] = field(default_factory=dict)
    told: Mapping[CollectionId, DataflowDescription] = field(default_factory=dict)
    compactions: Mapping[CollectionId, Antichain] = field(default_factory=dict)

    @property
    def is_initialized(self) -> bool:
        """Whether the iteration has named all that should run: responses are due."""
        return self.stage in {Stage.READ_ONLY, Stage.READ_WRITE}

    @property
    def may_write(self) -> bool:
        """Whether the iteration allows writes; a new one begins without."""
        return self.stage is Stage.READ_WRITE

    def step(  # noqa: C901, PLR0911, PLR0912  one arm per kind of command
        self, command: Command
    ) -> tuple["Session", tuple[Action, ...]]:
        """Return the session after the command, and the actions in order.

        Errors: InvalidUsage if the stage forbids the command; the session is unchanged.
        """
        if self.stage not in LEGAL[type(command)]:
            raise InvalidUsage(
                f"compute command {type(command).__name__} is not legal in the stage "
                f"{self.stage.value}"
            )
        match command:
            case CreateTimely(nonce, _, configuration):
                return self._greet(nonce, configuration)
            case CreateInstance():
                return self._configure(command)
            case UpdateConfiguration(configuration):
                parameters, actions = self._updated(self.parameters, configuration)
                return replace(self, parameters=parameters), actions
            case CreateDataflow(description):
                return self._create(description)
            case AllowCompaction(export, since):
                return self._compact(export, since)
            case Schedule():
                return self, ()  # a dataflow itself waits for its inputs
            case Peek() | CancelPeek():
                return self, ()  # a loop of their own answers them
            case Subscribe() | AcknowledgeSubscribe() | CancelSubscribe():
                return self, ()
            case InitializationComplete():
                return self._reconcile()
            case AllowWrites():
                return replace(self, stage=Stage.READ_WRITE), ()
            case _:
                assert_never(command)

    def _greet(
        self, nonce: str, configuration: ParameterValues
    ) -> tuple["Session", tuple[Action, ...]]:
        fresh = replace(self, stage=Stage.GREETED, nonce=nonce, told={}, compactions={})
        try:
            parameters, actions = self._updated(DEFAULTS, configuration)
        except InvalidUsage as refused:
            report = f"the configuration of CreateTimely changes nothing: {refused}"
            return fresh, (ReportParameters(report),)
        return replace(fresh, parameters=parameters), actions

    def _updated(
        self, of: ComputeParameters, configuration: ParameterValues
    ) -> tuple[ComputeParameters, tuple[Action, ...]]:
        """Errors: InvalidUsage for a value out of bounds."""
        parameters, unknown = of.updated(configuration), unknown_names(configuration)
        actions: list[Action] = []
        if parameters != self.parameters:
            actions.append(SetParameters(parameters))
        if unknown:
            names = ", ".join(unknown)
            actions.append(ReportParameters(f"parameters {names} are unknown: ignored"))
        return parameters, tuple(actions)

    def _configure(self, command: CreateInstance) -> tuple["Session", tuple[Action, ...]]:
        if self.instance is not None and self.instance != command:
            return self, (
                Restart(
                    f"the compute instance has changed from {_shown(self.instance)}"
                    f" to {_shown(command)}: a replica takes that when it starts"
                ),
            )
        actions = () if self.instance == command else (Configure(command),)
        return replace(self, stage=Stage.INITIALIZING, instance=command), actions

    def _create(self, wanted: DataflowDescription) -> tuple["Session", tuple[Action, ...]]:
        export = wanted.export
        if export in self.told:
            raise InvalidUsage(f"compute dataflow {export} was created twice in one iteration")
        session = replace(self, told={**self.told, export: wanted})
        if self.stage is Stage.INITIALIZING:
            return session, ()
        return replace(session, running={**self.running, export: wanted}), (Create(wanted),)

    def _compact(
        self, key: CollectionId, to: Antichain
    ) -> tuple["Session", tuple[Action, ...]]:
        since = self.compactions.get(key, to).join(to)  # forward only
        compactions = {**self.compactions, key: since}
        session = replace(self, compactions=compactions)
        if self.stage is Stage.INITIALIZING:
            return session, ()
        if since.is_empty:
            running = {other: flow for other, flow in self.running.items() if other != key}
            return replace(session, running=running), (Drop(key, silent=False),)
        before = self.running.get(key)
        after = None if before is None else before.compacted(since)
        if after is None or after == before:
            return session, ()
        running = {**self.running, key: after}
        return replace(session, running=running), (Compact(key, frontier(after.as_of)),)

    def _reconcile(self) -> tuple["Session", tuple[Action, ...]]:
        dropped_now = {key for key, since in self.compactions.items() if since.is_empty}
        wanted = {
            key: description.compacted(self.compactions.get(key, START))
            for key, description in self.told.items()
            if key not in dropped_now
        }
        change = reconcile(self.running, wanted)
        actions: tuple[Action, ...] = (
            *(Drop(key, silent=key not in dropped_now) for key in change.dropped),
            *(Drop(key, silent=False) for key in sorted(dropped_now - set(change.dropped))),
            *(Create(description) for description in change.created),
            *(Compact(flow.export, frontier(flow.as_of)) for flow in change.compacted),
            Reconcile(tuple(change.kept), len(change.created), len(change.dropped)),
        )
        return replace(self, stage=Stage.READ_ONLY, running=wanted), actions


def _shown(instance: CreateInstance) -> str:
    return f"{instance.buckets} buckets in namespace {instance.namespace}"
