"""A replica's peeks as a pure state machine: commands and frontiers in, answers out.

    Peek --> WAITING --complete at the time--> READING --finished--> answered
                 |                                |
                 +----- since has passed ---------+---- CancelPeek --> answered

A peek is answered once in its iteration, and is forgotten with it. Nothing is answered before
InitializationComplete. A peek that was on the topic before this replica started may have been
answered by an earlier process, and is passed over: the controller sends it again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from streams.compute.description import DataflowDescription
from streams.compute.parameters import DEFAULTS, ComputeParameters, ParameterValues
from streams.compute.peeks import (
    CancelPeek,
    Peek,
    PeekCanceled,
    PeekError,
    PeekOutcome,
    PeekResponse,
    PeekTarget,
)
from streams.compute.protocol import (
    AllowCompaction,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    InitializationComplete,
    UpdateConfiguration,
)
from streams.errors import InvalidUsage
from streams.ids import CollectionId
from streams.progress import Antichain
from streams.storage.log.persistent_map import Map


@dataclass(frozen=True, slots=True)
class TargetBounds:
    """Since and upper of a target; or why there are none, which `may_pass`."""

    since: Antichain | None = None
    upper: Antichain | None = None
    problem: str = ""
    may_pass: bool = False


@dataclass(frozen=True, slots=True)
class ReadTarget:
    """Action: read the target, and tell `finished`. It is complete at the time of the peek."""

    nonce: str
    peek: Peek


@dataclass(frozen=True, slots=True)
class AnswerPeek:
    """Action: write this response to the iteration."""

    nonce: str
    response: PeekResponse


PeekAction = ReadTarget | AnswerPeek


@dataclass(frozen=True, slots=True)
class PeekSession:
    """The open peeks of an iteration.

    `waiting` and `reading` are disjoint; `seen` has every uuid of the iteration. `due` are
    answers that InitializationComplete lets go. `indexes` are those that the iteration names.
    `parameters` are those of the last configuration that was not refused, which the session of
    dataflows reports.
    """

    replica: str
    nonce: str = ""
    is_initialized: bool = False
    waiting: Map[str, Peek] = field(default_factory=Map)
    reading: Map[str, Peek] = field(default_factory=Map)
    seen: Map[str, None] = field(default_factory=Map)
    due: tuple[PeekResponse, ...] = ()
    indexes: frozenset[CollectionId] = frozenset()
    parameters: ComputeParameters = DEFAULTS
    has_instance: bool = False

    def step(  # noqa: C901, PLR0911, PLR0912  one arm per kind
        self, command: Command, *, is_old: bool = False
    ) -> tuple["PeekSession", tuple[PeekAction, ...]]:
        """Return the session after a command, and the actions.

        `is_old` says that the command was on the topic before this replica started.
        """
        match command:
            case CreateTimely(nonce, _, configuration):
                parameters = self._updated(DEFAULTS, configuration)
                return PeekSession(self.replica, nonce, parameters=parameters), ()
            case CreateInstance():
                return replace(self, has_instance=True), ()
            case UpdateConfiguration(configuration) if self.has_instance:
                parameters = self._updated(self.parameters, configuration)
                return replace(self, parameters=parameters), ()
            case InitializationComplete():
                answers = tuple(AnswerPeek(self.nonce, response) for response in self.due)
                return replace(self, is_initialized=True, due=()), answers
            case CreateDataflow(DataflowDescription(export=export, kind="index")):
                return replace(self, indexes=self.indexes | {export}), ()
            case AllowCompaction(export, frontier) if frontier.is_empty:
                return replace(self, indexes=self.indexes - {export}), ()
            case Peek() if not is_old:
                return self._heard(command), ()
            case CancelPeek(uuid):
                return self._answered(uuid, PeekCanceled())
            case _:
                return self, ()

    def ready(
        self, bounds: Callable[[PeekTarget], TargetBounds]
    ) -> tuple["PeekSession", tuple[PeekAction, ...]]:
        """Return the session with all peeks begun that can be read now, and the actions."""
        if not self.is_initialized:
            return self, ()
        session, actions = self, list[PeekAction]()
        for peek in self.waiting.values():
            session, more = session._decided(peek, bounds(peek.target))
            actions += more
        return session, tuple(actions)

    def finished(
        self, nonce: str, uuid: str, outcome: PeekOutcome
    ) -> tuple["PeekSession", tuple[PeekAction, ...]]:
        """Return the session after a read; without an answer if it is not wanted any more."""
        if not self.is_reading(nonce, uuid):
            return self, ()
        return self._answered(uuid, outcome)

    def is_reading(self, nonce: str, uuid: str) -> bool:
        """Whether the answer of a read is still wanted."""
        return nonce == self.nonce and uuid in self.reading

    def peeks(self) -> Iterable[Peek]:
        """Return the open peeks."""
        return (*self.waiting.values(), *self.reading.values())

    def _updated(
        self, of: ComputeParameters, configuration: ParameterValues
    ) -> ComputeParameters:
        """Return the parameters after a configuration; unchanged if it is refused."""
        try:
            return of.updated(configuration)
        except InvalidUsage:
            return self.parameters

    def _heard(self, peek: Peek) -> "PeekSession":
        if peek.replica not in {"", self.replica} or peek.uuid in self.seen:
            return self
        seen, waiting = self.seen.set(peek.uuid, None), self.waiting.set(peek.uuid, peek)
        return replace(self, seen=seen, waiting=waiting)

    def _decided(
        self, peek: Peek, bounds: TargetBounds
    ) -> tuple["PeekSession", tuple[PeekAction, ...]]:
        index = peek.target.index
        if index is not None and index not in self.indexes:
            return self._answered(peek.uuid, PeekError(f"there is no index {index}"))
        if bounds.problem:
            return self._answered(peek.uuid, PeekError(bounds.problem))
        since, upper = bounds.since, bounds.upper
        if since is None or upper is None or upper.less_equal(peek.time):
            return self, ()
        if not since.less_equal(peek.time):
            return self._answered(peek.uuid, PeekError(_unreadable(peek, since)))
        waiting = self.waiting.remove(peek.uuid)
        reading = self.reading.set(peek.uuid, peek)
        session = replace(self, waiting=waiting, reading=reading)
        return session, (ReadTarget(self.nonce, peek),)

    def _answered(
        self, uuid: str, outcome: PeekOutcome
    ) -> tuple["PeekSession", tuple[PeekAction, ...]]:
        """Close an open peek with its answer; nothing for one that is not open."""
        peek = self.waiting.get(uuid) or self.reading.get(uuid)
        if peek is None:
            return self, ()
        closed = replace(
            self, waiting=self.waiting.remove(uuid), reading=self.reading.remove(uuid)
        )
        response = PeekResponse(uuid, outcome, peek.files is not None)
        if not self.is_initialized:
            return replace(closed, due=(*self.due, response)), ()
        return closed, (AnswerPeek(self.nonce, response),)


def _unreadable(peek: Peek, since: Antichain) -> str:
    why = (
        "it was dropped"
        if since.is_empty
        else f"its history before {since.time} has been compacted"
    )
    return f"{peek.target.collection} cannot be read at {peek.time}: {why}"
