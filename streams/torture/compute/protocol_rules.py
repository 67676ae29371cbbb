"""The rules of the compute protocol as assertions over what is on its two topics.

They check all records as they were appended, also duplicates and those of fenced controllers;
which records are valid is decided in the same way as by readers. A violation names its rule.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streams.compute.description import DataflowDescription
from streams.compute.peeks import CancelPeek, Peek, PeekCanceled, PeekResponse
from streams.compute.protocol import (
    AllowCompaction,
    AllowWrites,
    Command,
    CommandMessage,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Frontiers,
    Hydration,
    InitializationComplete,
    Reconciled,
    Response,
    ResponseMessage,
    Schedule,
    Status,
    UpdateConfiguration,
    replica_of,
)
from streams.compute.reader import CommandReaderState, ResponseReaderState
from streams.compute.subscribes import (
    AcknowledgeSubscribe,
    CancelSubscribe,
    DroppedAt,
    Subscribe,
    SubscribeBatch,
    SubscribeError,
    SubscribeInterrupted,
    SubscribeResponse,
)
from streams.errors import SlackwaterError
from streams.ids import CollectionId, Timestamp
from streams.progress import END, Antichain, end_of

DATAFLOWS = (UpdateConfiguration, CreateDataflow, Schedule, AllowCompaction)
SHORT_LIVED = (Peek, CancelPeek, Subscribe, AcknowledgeSubscribe, CancelSubscribe)

LEGAL_NEXT: Mapping[str, Sequence[type[Command]]] = {
    "greeted": (CreateInstance,),
    "initializing": (*DATAFLOWS, InitializationComplete),
    "read-only": (*DATAFLOWS, *SHORT_LIVED, AllowWrites),
    "read-write": (*DATAFLOWS, *SHORT_LIVED),
}
"""What a controller of ours says in each stage: a reduced history has no peeks."""

NEXT_STAGE: Mapping[type[Command], str] = {
    CreateInstance: "initializing",
    InitializationComplete: "read-only",
    AllowWrites: "read-write",
}


class Breach(SlackwaterError):
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
    peeks: dict[str, list[Peek]] = field(default_factory=dict)
    """Each peek as often as it was sent: again by name, to replicas that have joined."""
    canceled: set[str] = field(default_factory=set)
    subscribes: dict[str, list[Subscribe]] = field(default_factory=dict)
    """Each subscribe as often as it was sent, from where it was still open."""
    taken: dict[str, Timestamp] = field(default_factory=dict)
    """Up to where subscribes were acknowledged, or sent again."""

    def take(self, command: Command) -> None:  # noqa: C901, PLR0912  one arm per kind
        """Check a command against those before it."""
        if self.stage == "initializing":
            is_history = not isinstance(command, SHORT_LIVED)
            insist(is_history, "a peek is not in the reduced history", command)
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
            case Peek():
                self._send(command)
            case Subscribe():
                self._subscribe(command)
            case AcknowledgeSubscribe(uuid, upper):
                insist(uuid in self.subscribes, "what is acknowledged was asked", command)
                self.taken[uuid] = max(upper, self.taken[uuid])
            case CancelPeek(uuid) | CancelSubscribe(uuid):  # one that was refused, too
                self.canceled.add(uuid)
            case _:
                pass

    def _send(self, peek: Peek) -> None:
        insist(peek.uuid not in self.canceled, "a canceled peek is not sent again", peek)
        sent = self.peeks.setdefault(peek.uuid, [])
        if sent:
            first = sent[0]
            is_same = replace(peek, replica=first.replica) == first
            insist(is_same, "a uuid is of one peek", (first, peek))
        sent.append(peek)

    def _subscribe(self, subscribe: Subscribe) -> None:
        uuid, first = subscribe.uuid, subscribe.first
        insist(uuid not in self.canceled, "a canceled subscribe is not sent again", subscribe)
        insist(first >= self.taken.get(uuid, first), "a subscribe goes on", subscribe)
        self.subscribes.setdefault(uuid, []).append(subscribe)
        self.taken[uuid] = first

    def is_asked(self, response: PeekResponse, replica: str) -> bool:
        """Whether a replica was sent the peek of a response."""
        return any(
            peek.replica in {"", replica} and response.is_copy == (peek.files is not None)
            for peek in self.peeks.get(response.uuid, ())
        )

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
    asked: dict[str, int] = {}
    canceled: set[str] = set()
    sinces: dict[CollectionId, Antichain] = {}
    current = Iteration("", -1)
    for message in messages:
        reading, command = reading.step(message)
        match command:
            case None:
                continue
            case CreateTimely(nonce, epoch):
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
            case Peek(uuid=uuid):
                current.take(command)
                epoch = asked.setdefault(uuid, current.epoch)
                insist(epoch == current.epoch, "a peek is of one controller", command)
                insist(uuid not in canceled, "a canceled peek is not sent again", command)
            case CancelPeek(uuid):
                current.take(command)
                canceled.add(uuid)
            case _:
                current.take(command)
    return iterations


@dataclass(slots=True)
class Answers:
    """What a process has answered to an iteration so far."""

    iteration: Iteration
    replica: str = ""
    has_reconciled: bool = False
    frontiers: dict[tuple[CollectionId, str], Antichain] = field(default_factory=dict)
    ended: set[CollectionId] = field(default_factory=set)
    peeks: set[str] = field(default_factory=set)
    """The uuids of those that were answered."""
    delivered: dict[str, Timestamp] = field(default_factory=dict)
    """The uppers of what was delivered to subscribes."""
    over: dict[str, Timestamp] = field(default_factory=dict)
    """Where subscribes have ended."""

    def take(self, response: Response) -> None:  # noqa: C901, PLR0912  one arm per kind
        """Check a response against those before it."""
        if isinstance(response, Reconciled):
            insist(not self.has_reconciled, "InitializationComplete has one answer", response)
            self.has_reconciled = True
        insist(self.iteration.stage != "greeted", "nothing is said in creation", response)
        match response:
            case Frontiers(key, write, output, input_):
                self._is_known(key, response)
                for kind, reached in (
                    ("write", write),
                    ("output", output),
                    ("input", input_),
                ):
                    if reached is not None:
                        self._moved(key, kind, reached)
                if write is not None and write.is_empty and output is not None:
                    self.ended.add(key)
            case Status(key) | Hydration(key):
                self._is_known(key, response)
            case PeekResponse():
                self._answer(response)
            case SubscribeResponse():
                self._deliver(response)
            case _:
                pass

    def _answer(self, response: PeekResponse) -> None:
        iteration, uuid = self.iteration, response.uuid
        is_asked = iteration.is_asked(response, self.replica)
        insist(is_asked, "an answer is to a peek of the iteration", response)
        insist(uuid not in self.peeks, "a peek has one answer", response)
        if isinstance(response.outcome, PeekCanceled):
            insist(uuid in iteration.canceled, "PeekCanceled answers a canceled peek", response)
        self.peeks.add(uuid)

    def _deliver(self, response: SubscribeResponse) -> None:
        uuid, outcome = response.uuid, response.outcome
        asked = self.iteration.subscribes.get(uuid, ())
        firsts = [one.first for one in asked if one.replica in {"", self.replica}]
        insist(firsts, "what is delivered was asked", response)
        ended = self.over.pop(uuid, None)
        insist(ended is None or max(firsts) > ended, "the end is the last", response)
        before = self.delivered.get(uuid, min(firsts))
        reached = max(before, self.iteration.taken[uuid])
        insist(outcome.lower <= reached, "intervals have no gap", response)
        match outcome:
            case SubscribeBatch(_, upper):
                insist(end_of(upper) > before, "intervals move forward", response)
                self.delivered[uuid] = end_of(upper)
                if upper.is_empty:
                    self.over[uuid] = END
            case SubscribeError(lower):
                self.over[uuid] = lower
            case SubscribeInterrupted(lower):  # it may begin again where it was
                self.over[uuid] = Timestamp(lower - 1)
            case DroppedAt():
                canceled = uuid in self.iteration.canceled
                insist(canceled, "DroppedAt answers a canceled subscribe", response)
                self.over[uuid] = END

    def _is_known(self, key: CollectionId, response: Response) -> None:
        insist(self.has_reconciled, "Reconciled comes first", response)
        ever_created = self.iteration.created.keys() | self.iteration.dropped
        insist(key in ever_created, "nothing is said of an old life", response)
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
        process = message.replica
        if (process, nonce) not in answers:
            answers[process, nonce] = Answers(iterations[nonce], replica_of(process))
        answers[process, nonce].take(message.response)
    return answers
