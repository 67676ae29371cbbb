"""Controllers and replicas of one instance in a world where messages are late, doubled or lost.

The protocol's code is the real one on both sides: controller, readers, writers, session, the
replica's server with its reports and its table of dataflows. What dataflows compute is not
there: a dataflow is at a frontier that moves at random, and a shard is its upper.

    a record sent   lands, lands twice, lands in part, or is lost; the writer is told or not
    a controller    is replaced by a successor, and may go on for a while
    a replica       hears late, dies and comes back as another process, or is doubled
    a peek          is answered once, or nobody waits for it any more
    a subscribe     is delivered without a gap or a copy, or nobody wants it any more; reads of
                    it fail for a while
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any

from streams.compute.codec import decode_command, decode_response
from streams.compute.controller import (
    Controller,
    command_topic,
    create_topics,
    response_topic,
)
from streams.compute.description import (
    DataflowDescription,
    ImportDescription,
    IngestionDescription,
)
from streams.compute.peek_session import PeekSession
from streams.compute.protocol import (
    CommandMessage,
    CreateInstance,
    ResponseMessage,
    process_name,
)
from streams.compute.reader import CommandReader
from streams.compute.subscribe_session import SubscribeSession
from streams.compute.writer import ResponseWriter
from streams.errors import Determinate, Indeterminate
from streams.ids import CapabilityId, CollectionId, Offset, Timestamp, Topic
from streams.kafka.memory.logs import MemoryBroker
from streams.plan import json as plan_json
from streams.plan.physical import Column
from streams.progress import Antichain, frontier
from streams.replica.driver import rebase_planner
from streams.replica.driver.assembly import ReplicaParts
from streams.replica.driver.batch_timings import Timings
from streams.replica.driver.clock_skew import Skew
from streams.replica.driver.dataflow import Dataflow, Phase
from streams.replica.driver.dataflow_state import OwnState
from streams.replica.driver.dataflow_table import DataflowTable
from streams.replica.driver.events import Recovered, Released, Restarted, Stepped, Taken
from streams.replica.driver.status_reports import StatusReporter
from streams.replica.driver.work_counts import WorkCounts
from streams.replica.main import _Server
from tests.model.protocol_peeks import PeekClients, PeekReplica, peek_at_random
from tests.model.protocol_subscribes import (
    SubscribeClients,
    SubscribeReplica,
    subscribe_at_random,
)
from tests.support.controlled import ALONE, NO_PEEKS, NO_SINKS, NO_WATCH, ignored

NAMESPACE, INSTANCE = "sw", "x"
COMMANDS = command_topic(NAMESPACE, INSTANCE)
RESPONSES = response_topic(NAMESPACE, INSTANCE)
COLUMNS = (Column("a", "BIGINT"),)
PROMPT = 0.6
"""How often the loop of peeks hears as early as that of dataflows."""


NOTHING: Any = SimpleNamespace()


@dataclass(slots=True)
class Weather:
    """How often an append is in doubt or refused, and a replica hears nothing."""

    doubt: float
    refused: float
    deaf: float
    zombie: float


@dataclass(slots=True)
class FlakyLogs:
    """Logs that store what they are given once, twice, in part or not, and say so or not."""

    logs: Any
    rng: Random
    weather: Weather
    records: list[tuple[Topic, bytes]] = field(default_factory=list)
    """All that was ever stored, whatever was deleted since."""
    doubtful: int = 0
    part: float = 1.0
    """What lands of an append that is in doubt."""
    is_calm: bool = False

    def append(self, records: Sequence[tuple[Topic, bytes]]) -> tuple[Offset, ...]:
        if self.is_calm:
            return self._store(records)
        if not self.doubtful and self.rng.random() < self.weather.doubt:
            self.doubtful = self.rng.choice((1, 2, 10, 25))
            self.part = self.rng.choice((0.0, 0.3, 0.7, 1.0))
        if self.doubtful:
            self.doubtful -= 1
            self._store(records[: int(self.part * len(records))])
            raise Indeterminate("no answer")
        if self.rng.random() < self.weather.refused:
            raise Determinate("refused")
        return self._store(records)

    def _store(self, records: Sequence[tuple[Topic, bytes]]) -> tuple[Offset, ...]:
        self.records += records
        offsets: tuple[Offset, ...] = self.logs.append(records) if records else ()
        return offsets

    def __getattr__(self, name: str) -> Any:
        return getattr(self.logs, name)


class World:
    """What controllers and replicas share."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now = 0.0
        weather = Weather(
            doubt=rng.choice((0.0, 0.02, 0.1)),
            refused=rng.choice((0.0, 0.05)),
            deaf=rng.choice((0.2, 0.8)),
            zombie=rng.choice((0.0, 0.3)),
        )
        broker = MemoryBroker(lambda: int(self.now * 1000))
        create_topics(broker.topics, NAMESPACE, INSTANCE)
        self.logs = FlakyLogs(broker.logs, rng, weather)
        self.weather = weather
        self.uppers: dict[CollectionId, int] = {}
        self.sinces: dict[str, int] = {}
        """What subscribes hold, by uuid."""
        self.numbers = iter(range(1_000_000))

    def name(self, kind: str) -> str:
        return f"{kind}{next(self.numbers)}"

    def commands(self) -> list[CommandMessage]:
        return [
            decode_command(value) for topic, value in self.logs.records if topic == COMMANDS
        ]

    def responses(self) -> list[ResponseMessage]:
        return [
            decode_response(value) for topic, value in self.logs.records if topic == RESPONSES
        ]


def source(world: World) -> DataflowDescription:
    """A new source, whose shard is born with it."""
    export = CollectionId(world.name("s"))
    world.uppers[export] = as_of = world.rng.randrange(10, 100)
    return DataflowDescription(
        export=export,
        kind="ingestion",
        name=export,
        group=export,
        columns=COLUMNS,
        as_of=Timestamp(as_of),
        source=IngestionDescription(topic=Topic("raw"), topic_id="i", envelope="none"),
    )


def view(world: World, imports: Sequence[CollectionId]) -> DataflowDescription:
    """A new view of some imports, at a time that they have."""
    export = CollectionId(world.name("u"))
    world.uppers[export] = as_of = min(world.uppers[read] for read in imports)
    flow = DataflowDescription(
        export=export,
        kind="view",
        name=export,
        group=export,
        columns=COLUMNS,
        as_of=Timestamp(as_of),
        imports=tuple(
            ImportDescription(read, read, CapabilityId(f"{export}.{read}")) for read in imports
        ),
        capability=CapabilityId(f"{export}.write"),
    )
    first = replace(flow, imports=flow.imports[:1])
    return replace(flow, plan=plan_json.dumps(rebase_planner.plan_of(first)))


@dataclass
class Coordinator:
    """A controller, and what its catalog says: that outlives it."""

    world: World
    catalog: dict[CollectionId, DataflowDescription]
    dropped: set[CollectionId]
    sinces: dict[CollectionId, int]
    epoch: int
    controller: Controller = field(init=False)
    clients: PeekClients = field(init=False)
    subscribers: SubscribeClients = field(init=False)
    late: list[Callable[[], None]] = field(default_factory=list)
    """What was refused and has to be said again."""
    is_told: bool = False
    reached: dict[tuple[CollectionId, str], Antichain] = field(default_factory=dict)

    def __post_init__(self) -> None:
        world = self.world
        self.controller = Controller(
            world.logs,
            CreateInstance(NAMESPACE, 2),
            INSTANCE,
            self.epoch,
            lambda: world.name(f"n{self.epoch}."),
            lambda: world.now,
        )
        self.clients = PeekClients(world.rng, self.controller)
        self.subscribers = SubscribeClients(world.rng, self.controller, world.sinces)

    def start(self) -> None:
        """Say all there is; again until it is said."""
        flows = [
            flow.compacted(frontier(self.sinces.get(key, 0)))
            for key, flow in self.catalog.items()
        ]
        try:
            self.controller.start(flows, sorted(self.dropped))
        except (Determinate, Indeterminate):
            return
        self.is_told = True

    def act(self) -> None:
        """One thing of what coordinators do, at random."""
        if not self.is_told:
            self.start()
            return
        late, self.late = self.late, []
        for again in late:
            self._say(again)
        rng = self.world.rng
        kinds = (
            *(self._create, self._create, self._create, self._drop),
            *(self._compact, self._compact, self._change, self.poll),
            *(self._peek, self._peek, self._peek, self.clients.cancel),
            *(self._subscribe, self._subscribe, self.subscribers.cancel),
            *(self.subscribers.acknowledge, self.subscribers.acknowledge),
        )
        rng.choice(kinds)()

    def _say(self, command: Callable[[], None]) -> None:
        try:
            command()
        except Indeterminate:
            pass  # it is sent as soon as brokers answer
        except Determinate:
            self.late.append(command)

    def _create(self) -> None:
        rng, world = self.world.rng, self.world
        if len(self.catalog) > 8:
            return
        reads = rng.sample(sorted(self.catalog), k=min(len(self.catalog), rng.randrange(3)))
        flow = view(world, reads) if reads else source(world)
        self.catalog[flow.export] = flow
        self._say(lambda: self._describe(flow.export))

    def _describe(self, key: CollectionId) -> None:
        if key in self.catalog:
            self.controller.create(self.catalog[key])

    def _drop(self) -> None:
        needed = {read.collection for flow in self.catalog.values() for read in flow.imports}
        free = sorted(self.catalog.keys() - needed)
        if not free:
            return
        gone = self.world.rng.choice(free)
        del self.catalog[gone]
        self.dropped.add(gone)
        self._say(lambda: self.controller.drop(gone))

    def _peek(self) -> None:
        if self.catalog:
            read = self.world.rng.choice(sorted(self.catalog))
            upper = self.world.uppers[read]
            self.clients.ask(peek_at_random(self.world.rng, self.world.name("p"), read, upper))

    def _subscribe(self) -> None:
        if self.catalog:
            rng, read = self.world.rng, self.world.rng.choice(sorted(self.catalog))
            uuid, upper = self.world.name("z"), self.world.uppers[read]
            with suppress(Indeterminate):
                self.subscribers.ask(subscribe_at_random(rng, uuid, read, upper))

    def _compact(self) -> None:
        for key in self.catalog:
            newest = self.world.uppers[key] - 1
            before = self.sinces.get(key, 0)
            if newest > before and self.world.rng.random() < 0.5:
                self.sinces[key] = self.world.rng.randrange(before, newest + 1)
        self._say(self._tell_sinces)

    def _tell_sinces(self) -> None:
        sinces = {key: frontier(since) for key, since in self.sinces.items()}
        self.controller.allow_compaction(sinces)

    def _change(self) -> None:
        """A new name, or seldom another plan."""
        if not self.catalog:
            return
        key = self.world.rng.choice(sorted(self.catalog))
        flow = self.catalog[key]
        is_renamed = self.world.rng.random() < 0.7
        changed = (
            replace(flow, name=self.world.name("name"))
            if is_renamed
            else replace(flow, plan=flow.plan + " ", group=self.world.name("group"))
        )
        self.catalog[key] = changed
        self._say(lambda: self._describe(key))

    def poll(self) -> None:
        """Hear replicas; what is observed only moves forward."""
        try:
            self.controller.poll(0)
        except (Determinate, Indeterminate):
            return
        observed = self.controller.observed
        for key, condition in observed.conditions.items():
            for kind in ("write", "output", "input"):
                now, before = getattr(condition, kind), self.reached.get((key, kind))
                if before is not None:
                    assert now is not None, f"{kind} of {key} is forgotten"
                    assert before.precedes(now), f"{kind} of {key}: {before} to {now}"
                if now is not None:
                    self.reached[key, kind] = now
        for gone in sorted(self.dropped & observed.dropped):
            self.dropped.discard(gone)
            self.controller.forget(gone)
            for kind in ("write", "output", "input"):
                self.reached.pop((gone, kind), None)


@dataclass
class Scheduler:
    """What reports and parts ask of a scheduler."""

    world: World
    table: DataflowTable
    may_write: bool = False
    broken: None = None
    obstacle: str = ""
    is_owner: bool = True
    buckets: int = 2
    skew: Skew = field(default_factory=Skew)
    stopping: bool = False

    @property
    def flows(self) -> dict[CollectionId, Dataflow]:
        return self.table.running

    @property
    def lock(self) -> threading.RLock:
        return self.table.lock

    @property
    def wakeup(self) -> Any:
        return self.table.wakeup

    @property
    def store(self) -> Any:
        return self.table.store

    def now_ms(self) -> int:
        return int(self.world.now * 1000)

    elapsed_ms = now_ms

    def present(self, flow: Dataflow) -> Dataflow:
        return self.table.of(flow)

    def upper(self, flow: Dataflow) -> Antichain:
        return frontier(self.world.uppers[flow.id])

    @property
    def shards(self) -> Any:
        """What is read of shards: their uppers."""
        uppers = self.world.uppers
        return SimpleNamespace(state=lambda id_: SimpleNamespace(upper=frontier(uppers[id_])))

    def allow(self, *, writes: bool) -> None:
        self.may_write = writes

    own = ignored


class Replica:
    """A process that serves the protocol."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.process = process_name(name, world.name(""))
        store: Any = SimpleNamespace(
            stored=set,
            run_sizes=dict,
            forget=ignored,
            delete_build=ignored,
            delete_records=ignored,
        )
        wakeup: Any = SimpleNamespace(ring=ignored)
        table = DataflowTable(store, wakeup, lambda: int(world.now * 1000))
        self.scheduler = Scheduler(world, table)
        config: Any = SimpleNamespace(name=name, commands=COMMANDS)
        shards: Any = SimpleNamespace(
            groups=frozenset, submit=ignored, close=ignored, open=ignored
        )
        scheduler: Any = self.scheduler
        timings = Timings(None, work=WorkCounts(lambda: world.now))
        self.parts = ReplicaParts(
            config, shards, NO_WATCH, scheduler, NO_SINKS, NOTHING, NOTHING, (), timings
        )
        self.reader = CommandReader(world.logs, COMMANDS)
        writer = ResponseWriter(world.logs, RESPONSES, self.process)
        _, started = world.logs.bounds(COMMANDS)
        follower = CommandReader(world.logs, COMMANDS)
        subscribes = SubscribeReplica(world.rng, writer, SubscribeSession(name), world.sinces)
        self.peeks = PeekReplica(
            world.rng, follower, started, writer, PeekSession(name), subscribes
        )
        self.server = _Server(
            config,
            store,
            NOTHING,
            NOTHING,
            StatusReporter(writer, clock=lambda: world.now),
            ALONE,
            NO_PEEKS,
        )

    def hear(self) -> bool:
        """Do what the commands say that are there; False if it died of its brokers."""
        try:
            self.server.hear(self.reader)
            if self.world.logs.is_calm or self.world.rng.random() < PROMPT:
                is_calm = self.world.logs.is_calm
                self.peeks.hear(self.world.uppers, self.world.now, is_calm=is_calm)
        except (Determinate, Indeterminate):
            return False
        return True

    def start(self) -> None:
        """Find the state of all dataflows of which it is not known."""
        for flow in list(self.scheduler.flows.values()):
            if flow.phase is Phase.STARTING:
                upper = self.world.uppers[flow.id]
                at = self.world.rng.randrange(max(0, upper - 20), upper + 1)
                self._move(flow, Recovered(OwnState("", frontier(at), {})))

    def progress(self) -> None:
        """Something happens to one of its dataflows."""
        flows = sorted(self.scheduler.flows)
        if not flows:
            return
        rng = self.world.rng
        flow = self.scheduler.flows[rng.choice(flows)]
        upper = self.world.uppers[flow.id]
        if flow.phase is Phase.STARTING:
            self.start()
        elif rng.random() < 0.1:
            self.scheduler.table.tell(flow, Restarted())
        else:
            assert flow.own is not None
            most = self._most(flow)
            if most > flow.own.frontier.time:
                to = rng.randrange(flow.own.frontier.time, most) + 1
                self._move(flow, Stepped(OwnState("", frontier(to), {})))
                self.world.uppers[flow.id] = max(upper, to)

    def _most(self, flow: Dataflow) -> int:
        """The furthest it can get: beyond its shard only if it may write."""
        upper = self.world.uppers[flow.id]
        if not self.scheduler.may_write:
            return upper
        assert self.server.session.may_write, "writes are allowed by the iteration"
        reads = (self.world.uppers[read.collection] for read in flow.description.imports)
        return min(reads, default=upper + 9)

    def _move(self, flow: Dataflow, event: Recovered | Stepped) -> None:
        table = self.scheduler.table
        table.tell(flow, Taken())
        table.tell(flow, event)
        table.tell(flow, Released())
