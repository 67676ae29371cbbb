"""The controller of one instance: sends commands to its replicas and reads their progress.

It keeps the history of its commands. When the history has grown long it begins a new iteration
with the reduced history, and deletes records older than the previous iteration: a reader that
is still there restarts at the newest iteration (`streams.compute.reader`). A new controller
begins a new iteration too, so that replicas never act on an earlier one's unfinished iteration;
and so does a controller whose last command is in doubt. That command is in the history and is
sent again. Peeks are no part of the history: what is open is sent again
(`streams.compute.open_peeks`, `streams.compute.open_subscribes`).

It knows nothing of catalogs: dataflows are given as descriptions, imports before the dataflows
that import them.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue

from streams.compute.description import DataflowDescription
from streams.compute.history import is_long, live, reduce
from streams.compute.iteration_starts import iteration_starts, last_start
from streams.compute.open_peeks import OpenPeeks
from streams.compute.open_subscribes import OpenSubscribes
from streams.compute.parameters import (
    BOUNDS,
    DEFAULTS,
    ComputeParameters,
    ParameterValues,
    check_names,
    check_values,
    differing,
)
from streams.compute.peeks import Peek, PeekOutcome, PeekResponse
from streams.compute.protocol import (
    AllowCompaction,
    AllowWrites,
    Command,
    CreateDataflow,
    CreateInstance,
    InitializationComplete,
    Response,
    ResponseMessage,
    Schedule,
    Status,
    UpdateConfiguration,
)
from streams.compute.reader import ResponseReader
from streams.compute.replica_responses import InstanceStatus
from streams.compute.subscribes import (
    Subscribe,
    SubscribeError,
    SubscribeInterrupted,
    SubscribeOutcome,
    SubscribeResponse,
)
from streams.compute.writer import CommandWriter
from streams.errors import Determinate, Indeterminate
from streams.ids import CollectionId, Offset, Timestamp, Topic
from streams.kafka.log import Logs, Truncated
from streams.kafka.topics import TopicKind, Topics, TopicSpec
from streams.progress import EMPTY, Antichain, frontier

log = logging.getLogger(__name__)

HEARD = 10_000
"""Number of responses that are kept after they were read."""

LARGEST_BYTES = BOUNDS["max_result_bytes"][1]
"""Bytes by which one response may go beyond what is delivered ahead."""

AHEAD = 8
"""What may wait for a subscriber, in units of what one process delivers ahead: several do."""

MOST_PASSING = 10_000
"""Number of peeks and cancellations in an iteration: a replica that starts reads them all."""


Deliveries = SimpleQueue[SubscribeOutcome]
"""What a subscribe delivers; what goes too far beyond acknowledgements ends it."""


def command_topic(namespace: str, instance: str) -> Topic:
    """Return the topic of an instance's commands."""
    return Topic(f"{namespace}.compute.{instance}.commands")


def response_topic(namespace: str, instance: str) -> Topic:
    """Return the topic of the responses of an instance's replicas."""
    return Topic(f"{namespace}.compute.{instance}.responses")


def create_topics(topics: Topics, namespace: str, instance: str) -> None:
    """Create the instance's topics if they are missing."""
    names = (command_topic(namespace, instance), response_topic(namespace, instance))
    topics.create([TopicSpec(name, 1, TopicKind.LOG) for name in names])


class Controller:
    """The controller of one instance. Any thread may call commands; `poll` belongs to one."""

    def __init__(  # noqa: PLR0913  dependencies
        self,
        logs: Logs,
        settings: CreateInstance,
        instance: str,
        epoch: int,
        new_id: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        *,
        parameters: ComputeParameters = DEFAULTS,
    ) -> None:
        self._logs, self._settings, self._new_id = logs, settings, new_id
        self._clock, self._most_ahead = clock, parameters.max_unacknowledged_bytes
        self._commands = command_topic(settings.namespace, instance)
        self._epoch, self._is_succeeded = epoch, False
        self._writer = CommandWriter(logs, self._commands, epoch, differing(parameters))
        self._lock = threading.RLock()
        self._history: list[Command] = []
        self._is_unsettled = False
        self._live: dict[CollectionId, DataflowDescription] = {}
        self._reduced_to, self._compactions = 0, 0
        self._last_start = last_start(logs, self._commands)
        self._observed = InstanceStatus().begin(clock())
        self._response_topic = response_topic(settings.namespace, instance)
        self._responses = ResponseReader(logs, self._response_topic, nonce="")
        self._forgotten = self._responses.position
        self._peeks = OpenPeeks()
        self._results: dict[str, Future[PeekOutcome]] = {}
        self._subscribes = OpenSubscribes()
        self._deliveries: dict[str, Deliveries] = {}
        self._asking = threading.Lock()
        self._asked: list[tuple[Peek, Future[PeekOutcome]]] = []
        self._unsent: list[Command] = []
        self._passing = 0

    @property
    def observed(self) -> InstanceStatus:
        """The state that replicas have reported, as of the last `poll`."""
        return self._observed

    @property
    def plans(self) -> Mapping[CollectionId, str]:
        """The plans of live dataflows, in JSON; empty for those that replicas know."""
        with self._lock:
            return {export: flow.plan for export, flow in self._live.items()}

    @property
    def open_peeks(self) -> tuple[Peek, ...]:
        """The peeks without an answer."""
        return tuple(self._peeks.peeks.values())

    def start(
        self, dataflows: Sequence[DataflowDescription], dropping: Sequence[CollectionId]
    ) -> None:
        """Begin: run exactly these dataflows, and report the end of those in `dropping`."""
        with self._lock:
            self._history = [self._settings]
            for dataflow in dataflows:
                self._history += [CreateDataflow(dataflow), Schedule(dataflow.export)]
            self._history += [InitializationComplete(), AllowWrites()]
            self._history += [AllowCompaction(collection, EMPTY) for collection in dropping]
            self._live = live(self._history)
            self._reduced_to = len(self._history)
            self._begin(self._history)

    def resettle(self, settings: CreateInstance) -> None:
        """Give the instance these settings: replicas with other ones start again.

        Errors: Determinate, Indeterminate; then it is to be called again.
        """
        with self._lock:
            if settings == self._settings and not self._is_unsettled:
                return
            self._settings, self._is_unsettled = settings, True  # until an iteration has them
            self._history = [
                settings if isinstance(command, CreateInstance) else command
                for command in self._history
            ]
            self._begin_reduced()
            self._is_unsettled = False

    def update_configuration(self, values: ParameterValues) -> None:
        """Give parameters of the replicas other values, in later iterations too.

        Errors: InvalidUsage for a value out of bounds or an unknown name; else as `create`.
        """
        check_names(values)
        check_values(values)
        with self._lock:
            ahead = values.get("max_unacknowledged_bytes", 0)
            self._most_ahead = max(self._most_ahead, ahead)
            self._write([UpdateConfiguration(values)])

    def create(self, dataflow: DataflowDescription) -> None:
        """Maintain one more dataflow; durable on return. Idempotent.

        A dataflow whose description has changed is dropped and created by the replicas, in a
        new iteration.

        Errors: Determinate; Indeterminate: it will be sent as soon as brokers answer.
        """
        with self._lock:
            before = self._live.get(dataflow.export)
            if before is not None:
                now = dataflow.compacted(frontier(before.as_of))
                if now == before:
                    self._write([])
                else:
                    self._change(now)
                return
            self._observed = self._observed.forget(dataflow.export)
            self._live[dataflow.export] = dataflow
            self._write([CreateDataflow(dataflow), Schedule(dataflow.export)])

    def drop(self, export: CollectionId) -> None:
        """Stop maintaining a dataflow. `observed.dropped` names it once a replica confirms.

        Errors: as `create`.
        """
        with self._lock:
            self._live.pop(export, None)
            self._write([AllowCompaction(export, EMPTY)])

    def allow_compaction(self, sinces: Mapping[CollectionId, Antichain]) -> None:
        """Compact the history of live views before these sinces; other ids are ignored.

        Errors: as `create`.
        """
        with self._lock:
            moved = {
                export: flow.compacted(since)
                for export, since in sinces.items()
                if (flow := self._live.get(export)) is not None and not since.is_empty
            }
            moved = {key: flow for key, flow in moved.items() if flow != self._live[key]}
            self._live.update(moved)
            self._compactions += len(moved)
            self._write(
                [AllowCompaction(key, frontier(flow.as_of)) for key, flow in moved.items()]
            )

    def peek(self, peek: Peek) -> "Future[PeekOutcome]":
        """Have a peek answered by a replica, also by one that joins later.

        The result is there once `poll` has read it; it is a Determinate error if the peek
        could not be sent. The caller holds since at the peek's time, and cancels what it no
        longer waits for. Peeks of several threads go together.
        """
        result = Future[PeekOutcome]()
        with self._asking:
            self._asked.append((peek, result))
        with self._lock:
            with self._asking:  # what came while another caller was sending
                asked, self._asked = self._asked, []
            self._send_peeks(asked)
        return result

    def _send_peeks(self, asked: Sequence[tuple[Peek, "Future[PeekOutcome]"]]) -> None:
        for peek, result in asked:
            self._peeks = self._peeks.ask(peek)
            self._results[peek.uuid] = result
        try:
            self._pass([peek for peek, _ in asked])
        except Determinate as failure:
            for peek, result in asked:
                self._peeks, _ = self._peeks.cancel(peek.uuid)
                del self._results[peek.uuid]
                result.set_exception(failure)
        except Indeterminate as doubt:  # a new iteration sends them
            log.warning("peeks may not have been sent", extra={"cause": str(doubt)})

    def cancel_peek(self, uuid: str) -> None:
        """Say that no caller waits for a peek; ignored if it is answered.

        Errors: as `create`.
        """
        with self._lock:
            self._results.pop(uuid, None)
            self._peeks, commands = self._peeks.cancel(uuid)
            self._pass(commands)

    def subscribe(self, subscribe: Subscribe) -> "Deliveries":
        """Have a collection delivered by replicas, also by those that join later.

        What is returned gets contiguous intervals, each once, then perhaps an error; the last
        interval has the empty upper. The caller holds since at one less than what it has
        acknowledged, and at the as_of before.

        Errors: Determinate if it could not be sent.
        """
        deliveries: Deliveries = SimpleQueue()
        with self._lock:
            self._subscribes = self._subscribes.ask(subscribe)
            self._deliveries[subscribe.uuid] = deliveries
            try:
                self._pass([subscribe])
            except Determinate:
                self._subscribes, _ = self._subscribes.cancel(subscribe.uuid)
                del self._deliveries[subscribe.uuid]
                raise
            except Indeterminate as doubt:  # a new iteration sends it
                log.warning("a subscribe may not have been sent", extra={"cause": str(doubt)})
        return deliveries

    def acknowledge(self, uuid: str, upper: Timestamp) -> None:
        """Say that the caller has taken all before upper; replicas deliver so much more.

        Errors: as `create`.
        """
        with self._lock:
            self._subscribes, commands = self._subscribes.acknowledge(uuid, upper)
            self._pass(commands)

    def cancel_subscribe(self, uuid: str) -> None:
        """Say that no caller takes a subscribe any more; ignored if it has ended.

        Errors: as `create`.
        """
        with self._lock:
            self._deliveries.pop(uuid, None)
            self._subscribes, commands = self._subscribes.cancel(uuid)
            self._pass(commands)

    def forget(self, export: CollectionId) -> None:
        """Forget a dropped export that no caller waits for any more."""
        with self._lock:
            self._observed = self._observed.forget(export)

    def poll(self, wait_ms: int) -> bool:
        """Read the replicas' responses; return whether there were any."""
        with self._lock:
            self._write([])
        messages = self._responses.poll(wait_ms)
        with self._lock:
            now = self._clock()
            for message in messages:
                self._note(message.response)
                self._observed = self._observed.step(message, now)
            self._observed = self._observed.at(now)
            self._hear_peeks(messages)
        self._truncate_responses()
        return bool(messages)

    def _note(self, response: Response) -> None:
        """Log a replica's report of a command that it skipped (named after the topic)."""
        if isinstance(response, Status) and response.id == CollectionId(self._commands):
            log.error("a replica did not take a command", extra={"why": response.message})

    def _hear_peeks(self, messages: Sequence[ResponseMessage]) -> None:
        """Hand over answers, and send what is open to replicas that have joined."""
        for message in messages:
            if isinstance(message.response, SubscribeResponse):
                self._hear_subscribe(message.replica, message.response)
            self._subscribes, rest = self._subscribes.heard(message.replica)
            self._unsent += rest
            if isinstance(message.response, PeekResponse):
                self._peeks, results, more = self._peeks.answered(message.response)
                self._unsent += more
                for uuid, outcome in results.items():
                    self._results.pop(uuid).set_result(outcome)
            self._peeks, more = self._peeks.heard(message.replica)
            self._unsent += more
        self._pass(())

    def _hear_subscribe(self, process: str, response: SubscribeResponse) -> None:
        """Hand over what is new in a response."""
        if isinstance(response.outcome, SubscribeInterrupted):
            facts = {"replica": process, "cause": response.outcome.message}
            log.warning("a replica cannot read what is subscribed", extra=facts)
        most = AHEAD * (self._most_ahead + LARGEST_BYTES)
        self._subscribes, outcome, more = self._subscribes.delivered(process, response, most)
        self._unsent += more
        if outcome is not None:
            self._deliveries[response.uuid].put(outcome)
            if response.uuid not in self._subscribes.subscribes:
                del self._deliveries[response.uuid]

    def _is_due(self, command: Command) -> bool:
        """Whether what was to be sent is wanted still: a refused write may lie between."""
        if isinstance(command, Subscribe):
            return command.uuid in self._subscribes.subscribes
        return not isinstance(command, Peek) or command.uuid in self._peeks.peeks

    def close(self) -> None:
        """Stop writing and reading; no open peek is answered any more."""
        with self._lock:
            results, self._results = self._results, {}
            self._peeks, self._unsent = OpenPeeks(), []
            subscribes, self._subscribes = self._subscribes, OpenSubscribes()
            deliveries, self._deliveries = self._deliveries, {}
        for uuid, queue in deliveries.items():
            reached = subscribes.subscribes[uuid].reached
            queue.put(SubscribeError(reached, "the controller has ended"))
        for result in results.values():
            result.set_exception(Determinate("the controller has ended"))
        self._responses.close()

    def _pass(self, commands: Sequence[Command]) -> None:
        """Write commands of short life, behind those still to be sent. Errors: as `_write`."""
        self._unsent = [*filter(self._is_due, self._unsent)]
        due = [*self._unsent, *commands]
        if not due:
            return
        if self._writer.is_in_doubt or self._passing >= MOST_PASSING:
            self._begin_reduced()  # which sends what is open
            return
        self._writer.write(due)
        self._unsent = []
        self._passing += len(due)

    def _truncate_responses(self) -> None:
        """Delete read responses from time to time; a later controller asks replicas again."""
        if self._responses.position - self._forgotten >= HEARD:
            self._forgotten = self._responses.position
            self._logs.truncate(self._response_topic, self._forgotten)

    def _write(self, commands: Sequence[Command]) -> None:
        """Write commands; or a new iteration with all of them if an earlier write is in doubt.

        Errors: Determinate, Indeterminate; in the latter case the commands are sent later.
        """
        self._history += commands
        if self._writer.is_in_doubt:
            log.warning("a command's outcome is unknown; starting a new iteration")
            self._begin_reduced()
            return
        try:
            self._writer.write(commands)
        except Determinate:
            del self._history[len(self._history) - len(commands) :]
            self._live = live(self._history)
            raise
        if is_long(len(self._history), self._compactions, self._reduced_to):
            self._begin_reduced()

    def _change(self, dataflow: DataflowDescription) -> None:
        """Replace the description of a live dataflow, in its place among the commands."""
        self._history = [
            CreateDataflow(dataflow)
            if isinstance(command, CreateDataflow)
            and command.description.export == dataflow.export
            else command
            for command in self._history
        ]
        self._begin_reduced()

    def _begin_reduced(self) -> None:
        # A drop that no replica has confirmed yet would be lost with the old history.
        awaited = [
            compaction
            for compaction in self._history
            if isinstance(compaction, AllowCompaction)
            and compaction.frontier.is_empty
            and compaction.id not in self._observed.dropped
        ]
        self._history = [*reduce(self._history), *awaited]
        self._live = live(self._history)
        self._reduced_to, self._compactions = len(self._history), 0
        self._begin(self._history)
        self._peeks, commands = self._peeks.begin()
        self._subscribes, rest = self._subscribes.begin()
        self._unsent, self._passing = [*commands, *rest], 0
        with suppress(Determinate):  # the iteration has begun; `poll` sends them
            self._pass(())

    def _begin(self, commands: Sequence[Command]) -> None:
        nonce = self._new_id()
        self._responses.restart(nonce)
        self._observed = self._observed.begin(self._clock())
        start = self._writer.begin(nonce, commands)
        log.info("compute iteration", extra={"nonce": nonce, "commands": len(commands)})
        if self._last_start is not None:
            self._truncate(self._last_start, start)
        self._last_start = start

    def _truncate(self, last: Offset, start: Offset) -> None:
        """Delete what is before the last iteration, unless a later epoch has begun one since.

        Replicas that start would miss that one, and follow this controller.
        """
        with suppress(Truncated):  # by the later one
            between = iteration_starts(self._logs, self._commands, last, start)
            if any(epoch > self._epoch for _, epoch in between):
                self._is_succeeded = True
                log.warning("a later controller has begun", extra={"topic": self._commands})
            if not self._is_succeeded:
                self._logs.truncate(self._commands, last)
