"""The rules of the compute protocol as assertions over what is on its two topics.

They read records as they were appended, of the live controller and of zombies, of copies and of
what got lost; what counts is decided as readers decide it. A breach names its rule.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streams.compute.description import DataflowDescription
from streams.compute.protocol import (
    AllowCompaction,
    AllowWrites,
    Command,
    CommandMessage,
    CreateDataflow,
    CreateInstance,
    Frontiers,
    Hello,
    Hydration,
    InitializationComplete,
    Reconciled,
    Response,
    ResponseMessage,
    Schedule,
    Status,
)
from streams.compute.reader import CommandReaderState, ResponseReaderState
from streams.ids import CollectionId
from streams.progress import Antichain

LEGAL_NEXT: Mapping[str, Sequence[type[Command]]] = {
    "greeted": (CreateInstance,),
    "initializing": (CreateDataflow, Schedule, AllowCompaction, InitializationComplete),
    "read-only": (CreateDataflow, Schedule, AllowCompaction, AllowWrites),
    "read-write": (CreateDataflow, Schedule, AllowCompaction),
}
NEXT_STAGE: Mapping[type[Command], str] = {
    CreateInstance: "initializing",
    InitializationComplete: "read-only",
    AllowWrites: "read-write",
}


class Breach(AssertionError):
    """A rule of the protocol was broken."""


def insist(holds: object, rule: str, said: object) -> None:
    """A rule has to hold."""
    if not holds:
        raise Breach(f"{rule}: {said}")


@dataclass(slots=True)
class Iteration:
    """What an iteration has said so far."""

    nonce: str
    epoch: int
    stage: str = "greeted"
    created: dict[CollectionId, DataflowDescription] = field(default_factory=dict)
    sinces: dict[CollectionId, Antichain] = field(default_factory=dict)
    dropped: set[CollectionId] = field(default_factory=set)

    def take(self, command: Command) -> None:
        """Check a command against those before it."""
        legal = LEGAL_NEXT[self.stage]
        insist(isinstance(command, tuple(legal)), f"order in the stage {self.stage}", command)
        self.stage = NEXT_STAGE.get(type(command), self.stage)
        match command:
            case CreateDataflow(flow):
                self._create(flow)
            case Schedule(key):
                insist(key in self.created, "Schedule comes after CreateDataflow", command)
                insist(key not in self.dropped, "Schedule comes before the drop", command)
            case AllowCompaction(key, since) if since.is_empty:
                self.dropped.add(key)
            case AllowCompaction(key, since):
                insist(key in self.created, "compaction comes after CreateDataflow", command)
                insist(key not in self.dropped, "compaction comes before the drop", command)
                before = self.sinces[key]
                insist(before.strictly_precedes(since), "a since moves forward", command)
                self.sinces[key] = since
            case _:
                pass

    def _create(self, flow: DataflowDescription) -> None:
        insist(flow.export not in self.created, "an export is created once", flow)
        insist(flow.export not in self.dropped, "what was dropped stays so", flow)
        for read in flow.imports:
            insist(read.collection in self.created, "imports come first", flow)
        self.created[flow.export] = flow
        self.sinces[flow.export] = Antichain((flow.as_of,))


def check_commands(messages: Iterable[CommandMessage]) -> dict[str, Iteration]:
    """Check the commands that count, in the order of the topic; return the iterations."""
    reading = CommandReaderState()
    iterations: dict[str, Iteration] = {}
    sinces: dict[CollectionId, Antichain] = {}
    current = Iteration("", -1)
    for message in messages:
        reading, command = reading.step(message)
        match command:
            case None:
                continue
            case Hello(nonce, epoch):
                insist(nonce not in iterations, "a nonce is of one iteration", nonce)
                current = iterations[nonce] = Iteration(nonce, epoch)
            case CreateDataflow(flow) if flow.is_computed:
                current.take(command)
                before = sinces.get(flow.export, current.sinces[flow.export])
                insist(before.less_equal(flow.as_of), "an as_of does not go back", flow)
                sinces[flow.export] = before.join(current.sinces[flow.export])
            case AllowCompaction(key, since):
                current.take(command)
                sinces[key] = sinces.get(key, since).join(since)
            case _:
                current.take(command)
    return iterations


@dataclass(slots=True)
class Answers:
    """What a process has answered to an iteration so far."""

    iteration: Iteration
    has_reconciled: bool = False
    frontiers: dict[tuple[CollectionId, str], Antichain] = field(default_factory=dict)
    ended: set[CollectionId] = field(default_factory=set)

    def take(self, response: Response) -> None:
        """Check a response against those before it."""
        if isinstance(response, Reconciled):
            insist(not self.has_reconciled, "InitializationComplete has one answer", response)
            self.has_reconciled = True
        insist(self.iteration.stage != "greeted", "nothing is said in creation", response)
        match response:
            case Frontiers(key, write, output):
                self._is_known(key, response)
                for kind, reached in (("write", write), ("output", output)):
                    if reached is not None:
                        self._moved(key, kind, reached)
                if write is not None and write.is_empty and output is not None:
                    self.ended.add(key)
            case Status(key) | Hydration(key):
                self._is_known(key, response)
            case _:
                pass

    def _is_known(self, key: CollectionId, response: Response) -> None:
        insist(self.has_reconciled, "Reconciled comes first", response)
        known = self.iteration.created.keys() | self.iteration.dropped
        insist(key in known, "nothing is said of an old life", response)
        insist(
            key not in self.ended or isinstance(response, Frontiers),
            "nothing is said of what has ended",
            response,
        )

    def _moved(self, key: CollectionId, kind: str, reached: Antichain) -> None:
        before = self.frontiers.get((key, kind))
        flow = self.iteration.created.get(key)
        if before is None and flow is not None:
            before = Antichain((flow.as_of,))
        insist(
            before is None or before.precedes(reached),
            f"a {kind} frontier moves forward, from the as_of on",
            (key, before, reached),
        )
        self.frontiers[key, kind] = reached


def check_responses(
    messages: Iterable[ResponseMessage], iterations: Mapping[str, Iteration]
) -> dict[tuple[str, str], Answers]:
    """Check the responses that count; return them by process and nonce."""
    hearing: dict[str, ResponseReaderState] = {}
    answers: dict[tuple[str, str], Answers] = {}
    for message in messages:
        nonce = message.nonce
        state = hearing.get(nonce, ResponseReaderState(nonce))
        hearing[nonce], counts = state.step(message)
        if counts is None:
            continue
        insist(nonce in iterations, "an answer is to an iteration", message)
        said = answers.setdefault((message.replica, nonce), Answers(iterations[nonce]))
        said.take(message.response)
    return answers
