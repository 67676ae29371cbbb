"""The replica process: maintains the dataflows of an instance on Spark.

It reads the instance's command topic, maintains the dataflows named there, and answers on the
response topic. Any number of replicas of an instance may run at once: they compute the same and
write to the same shards, and the faster one's Append counts (rules 16 to 18). One of them owns
the sources and sinks, and another one takes over within seconds if it falls silent
(`streams.kafka.client.ownership`).

It may be killed at any moment without loss: the shards hold all results, and its state
directory is a cache.
"""

import fcntl
import logging
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import assert_never

from pyspark.sql import SparkSession

from streams.compute.description import DataflowDescription
from streams.compute.protocol import Reconciled, ShortLived, process_name
from streams.compute.reader import CommandReader, ReceivedCommand, UnreadableCommand
from streams.compute.session import (
    Action,
    Compact,
    Configure,
    Create,
    Drop,
    Reconcile,
    ReportParameters,
    Restart,
    Session,
    SetParameters,
)
from streams.compute.writer import ResponseWriter
from streams.errors import Indeterminate, InvalidUsage
from streams.ids import CollectionId, Offset, Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.ownership import Ownership
from streams.kafka.topics import Topics
from streams.replica.config import ReplicaConfig
from streams.replica.driver.activity_reports import ActivityReporter
from streams.replica.driver.assembly import ReplicaParts, assemble, followed_shards
from streams.replica.driver.checkpoint_store import CheckpointStore
from streams.replica.driver.error_causes import cause_of
from streams.replica.driver.heartbeat import pulse
from streams.replica.driver.measures import ReplicaMeasures, measure
from streams.replica.driver.status_reports import StatusReporter
from streams.replica.driver.stored_state import state_in_store
from streams.replica.peeks.loop import PeekLoop
from streams.replica.spark.session import spark_session

log = logging.getLogger(__name__)

POLL_MS = 100
INSTANCE_EVERY_S = 0.5

SPARK = "Spark is starting"
INSTANCE = "the coordinator has not created the topics of the instance yet"


class Replica:
    """One replica; `run` blocks until `stop` is called from another thread.

    A `spark` session that is given is used and left open: tests share one.
    """

    def __init__(self, config: ReplicaConfig, spark: SparkSession | None = None) -> None:
        self.config = config
        self._spark = spark
        self._stopping = threading.Event()
        self.waits_for = SPARK
        """What it waits for before it serves; empty once it does."""
        self._server: _Server | None = None

    @property
    def is_owner(self) -> bool:
        """Whether it advances the sources and runs the sinks. Called by any thread."""
        return self._server is not None and self._server.ownership.is_owner

    def measures(self) -> ReplicaMeasures | None:
        """What it measures of itself; None before it serves. Called by any thread."""
        parts = None if self._server is None else self._server.machinery
        return None if parts is None else measure(parts.scheduler, parts.timings)

    def run(self) -> None:
        """Serve until stopped. Errors: InvalidUsage if the state directory is in use."""
        config = self.config
        with ExitStack() as stack:
            stack.enter_context(_exclusive(config.state))
            store = CheckpointStore(config.state)
            broker = KafkaBroker(config.kafka)
            stack.callback(broker.close)
            ownership = _ownership(config, broker.topics)
            stack.callback(ownership.close)
            spark = self._spark
            if spark is None:
                spark = stack.enter_context(spark_session(config.spark, config.state))
            self.waits_for = INSTANCE
            if not self._await_instance(broker.topics):
                return
            if config.store is not None:
                instance = _id_of(config.commands, broker.topics)
                remote = state_in_store(config, instance, spark.sparkContext)
                store = stack.enter_context(remote)
            name = process_name(config.name, uuid.uuid4().hex[:8])
            answers = StatusReporter(ResponseWriter(broker.logs, config.responses, name))
            peeks = _peeks(config, broker, answers.writer)  # before the first sign of life
            stack.callback(peeks.close)
            reader = CommandReader(broker.logs, config.commands)
            stack.callback(reader.close)
            stack.enter_context(pulse(answers))
            server = self._server = _Server(
                config, store, broker, spark, answers, ownership, peeks
            )
            stack.callback(server.close)
            log.info("replica serves", extra={"replica": name})
            self.waits_for = ""
            while not self._stopping.is_set():
                server.hear(reader)

    def _await_instance(self, topics: Topics) -> bool:
        """Wait for the instance, which its coordinator creates; False if stopped before."""
        wanted = (self.config.commands, self.config.responses)
        has_told = False
        while not self._stopping.is_set():
            missing = [topic for topic in wanted if topics.describe(topic) is None]
            if not missing:
                return True
            if not has_told:
                extra = {"topic": missing[0]}
                log.warning("no such instance yet: waiting for its coordinator", extra=extra)
                has_told = True
            self._stopping.wait(INSTANCE_EVERY_S)
        return False

    @property
    def has_begun(self) -> bool:
        """Whether Spark has started: before that a stop has nothing to finish."""
        return self.waits_for != SPARK

    def stop(self) -> None:
        """Ask `run` to return."""
        self._stopping.set()


def _id_of(commands: Topic, topics: Topics) -> str:
    """The id that Kafka gave to the topic of the instance's commands."""
    info = topics.describe(commands)
    if info is None:
        raise Indeterminate(f"topic {commands} was deleted")
    return "".join(c if c.isalnum() else "-" for c in str(info.id))


@dataclass(slots=True)
class _Server:
    """The session of the protocol, and the parts that it has started."""

    config: ReplicaConfig
    store: CheckpointStore
    broker: KafkaBroker
    spark: SparkSession
    answers: StatusReporter
    ownership: Ownership
    peeks: PeekLoop
    session: Session = field(default_factory=Session)
    machinery: ReplicaParts | None = None
    activity: ActivityReporter | None = None
    may_write: bool = False
    """What dataflows were last allowed; the session says what they are."""
    owned: tuple[bool, str] | None = None
    """Whether this replica owns sources and sinks, and why it cannot; None: not begun yet."""
    next_look: float = 0.0
    """When dataflows are looked at, however many peeks come; by the monotonic clock."""
    has_reconciled: bool = False
    """Time of the last commands; later ones may create dataflows whose state is stored."""

    def hear(self, reader: CommandReader) -> None:
        """Execute new commands, and report what is new.

        Errors: the failure of a thread of ours, from which only a new process recovers.
        """
        scheduler = None if self.machinery is None else self.machinery.scheduler
        broken = self.peeks.broken or (None if scheduler is None else scheduler.broken)
        if broken is not None:
            raise broken
        self._own()
        received = reader.poll(POLL_MS)
        for heard in received:
            actions = self._step(heard)
            self._answer()
            for action in actions:
                self._act(action, heard.offset)
        if self._is_for_others(received):
            return
        self._allow()
        if self.has_reconciled:
            self._forget_others()
            self.has_reconciled = False
        if self.machinery is not None:
            responses = self.machinery.sinks.responses()
            of_indexes = self.peeks.indexes.responses() if self.answers.nonce else ()
            self.answers.tell(self.machinery.scheduler, (*responses, *of_indexes))
            if self.activity is not None and self.answers.nonce:
                self.answers.add(self.activity.responses())

    def _is_for_others(self, received: Sequence[ReceivedCommand]) -> bool:
        """Whether there is nothing to do but peeks, soon after the last look at dataflows."""
        if time.monotonic() < self.next_look and all(
            isinstance(heard.command, ShortLived) for heard in received
        ):
            return bool(received)
        self.next_look = time.monotonic() + POLL_MS / 1000
        return False

    def _answer(self) -> None:
        """Respond to an iteration from its InitializationComplete on; not before."""
        if not self.session.is_initialized:
            self.answers.pause()
        elif self.answers.nonce != self.session.nonce:
            self.answers.begin(self.session.nonce)
            self.peeks.indexes.repeat()
            if self.machinery is not None:
                self.machinery.sinks.repeat()
            if self.activity is not None:
                self.activity.repeat()

    def _allow(self) -> None:
        """Let dataflows write, or not, as soon as that has changed.

        An iteration that came in one piece, as they do, interrupts nobody.
        """
        if self.machinery is not None and self.session.may_write != self.may_write:
            self.may_write = self.session.may_write
            self.machinery.allow(writes=self.may_write)

    def _own(self) -> None:
        """Run sources and sinks, or stand by, as soon as ownership has changed."""
        present = (self.ownership.is_owner, self.ownership.trouble)
        if self.machinery is None or present == self.owned:
            return
        self.owned = is_owner, obstacle = present
        log.info("owns sources and sinks" if is_owner else "stands by for sources and sinks")
        self.machinery.own(is_owner=is_owner, obstacle=obstacle)

    def _step(self, heard: ReceivedCommand) -> tuple[Action, ...]:
        """Return a command's actions: none if it is unreadable or illegal in this stage."""
        if isinstance(heard.command, UnreadableCommand):
            reason = heard.command.reason
        else:
            try:
                self.session, actions = self.session.step(heard.command)
            except InvalidUsage as illegal:
                reason = str(illegal)
            else:
                return actions
        self.answers.passed_over(self.config.commands, heard.offset, reason)
        return ()

    def _act(  # noqa: C901, PLR0912  one arm per kind of action
        self, action: Action, offset: Offset
    ) -> None:
        match action:
            case SetParameters(parameters):
                self.answers.set_parameters(parameters)
            case ReportParameters(message):
                self.answers.taken_in_part(self.config.commands, offset, message)
            case Restart(reason):
                raise InvalidUsage(reason)
            case Configure(instance):
                self.machinery = assemble(
                    self.config, instance, self.store, self.broker, self.spark
                )
                self.machinery.allow(writes=False)
                self.activity = ActivityReporter(
                    self.machinery.scheduler,
                    self.machinery.timings,
                    self.peeks.indexes.sizes,
                    self.answers.clock,
                )
                self._own()
            case Create(description):
                self._create(description)
            case Drop(export, silent):
                self._drop(export, silent=silent)
            case Compact(export, since):
                assert self.machinery is not None
                self.machinery.scheduler.table.compact(export, since)
            case Reconcile(retained, created, dropped):
                self.has_reconciled = True
                self.answers.reconciled(Reconciled(len(retained), created, dropped))
            case _:
                assert_never(action)

    def _create(self, description: DataflowDescription) -> None:
        assert self.machinery is not None
        try:
            if description.kind == "index":
                self.peeks.indexes.create(description)
            else:
                self.machinery.create(description)
        except Exception as refused:
            extra = {"dataflow": description.export}
            log.warning("dataflow refused", extra=extra, exc_info=True)
            self.answers.refused(description.export, cause_of(str(refused)))

    def _forget_others(self) -> None:
        """Delete the stored state of dataflows that were dropped while this replica was down.

        Not before all commands on the topic were read: dataflows created after the iteration's
        initialization run as well.
        """
        for dataflow in self.store.stored() - set(self.session.running):
            self.store.forget(dataflow)

    def _drop(self, export: CollectionId, *, silent: bool) -> None:
        assert self.machinery is not None
        if not self.peeks.indexes.drop(export):
            self.machinery.drop(export)
        if not silent:
            self.answers.dropped(export)

    def close(self) -> None:
        """Stop everything."""
        if self.machinery is not None:
            self.machinery.close()


def _peeks(config: ReplicaConfig, broker: KafkaBroker, writer: ResponseWriter) -> PeekLoop:
    """Start to answer peeks, of those that are sent from now on."""
    _, started = broker.logs.bounds(config.commands)
    reader = CommandReader(broker.logs, config.commands)
    shards_of = partial(followed_shards, broker)
    most = config.budgets.index_bytes
    return PeekLoop(
        reader, started, writer, config.name, shards_of, most, copy_to=config.copy_to
    )


def _ownership(config: ReplicaConfig, topics: Topics) -> Ownership:
    """Join the replicas of the instance; one of them owns its sources and sinks."""
    ownership = Ownership(
        config.kafka,
        topic=config.commands,
        group=f"{config.commands}.owner",
        member=config.name,
        exists=lambda: topics.describe(config.commands) is not None,
    )
    ownership.start()
    return ownership


@contextmanager
def _exclusive(state: Path) -> Iterator[None]:
    """Lock the state directory; the lock ends with the process."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as cause:
            raise InvalidUsage(f"state directory {state}: another replica uses it") from cause
        yield
