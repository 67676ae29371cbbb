"""Replicas without Spark: all of a replica's own code, with rounds run as plain calls.

What Spark does for a replica is little that decides anything: it carries blobs to buckets and
calls our functions. Here a loop does that, over the strict broker in memory and a clock that a
test moves; so thousands of micro-batches, races and deaths fit in seconds.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streams.compute import dead_letters
from streams.compute.description import (
    DataflowDescription,
    ImportDescription,
    IngestionDescription,
)
from streams.compute.reclocking import Ends
from streams.compute.stalls import TopicReport
from streams.ids import CapabilityId, CollectionId, Timestamp, Topic
from streams.kafka.memory.logs import MemoryBroker, MemoryChunks
from streams.kafka.memory.records import MemoryRawReader
from streams.kafka.memory.store import Store as MemoryStore
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec
from streams.operators.engine import Context
from streams.plan import json as plan_json
from streams.plan.compile import Relation, compile_view
from streams.plan.metadata import ErrorLimit, Included, OnError, Watermark
from streams.plan.physical import Column
from streams.replica.config import Budgets, ReplicaConfig
from streams.replica.crash_injection import Crash
from streams.replica.driver import scheduler
from streams.replica.driver.checkpoint_store import CheckpointStore
from streams.replica.driver.checkpoint_writer import CheckpointWriter
from streams.replica.driver.commit import Committer
from streams.replica.driver.dataflow import Dataflow
from streams.replica.driver.maintenance import IdleAdvancer, Maintenance
from streams.replica.driver.micro_batch import LANES, LaneName, MicroBatch
from streams.replica.driver.new_dataflow import new_dataflow
from streams.replica.driver.recovery import RecoveryThread
from streams.replica.driver.scheduler import Scheduler
from streams.replica.driver.skew_measurement import SkewMonitor
from streams.replica.driver.wakeup import Wakeup
from streams.replica.driver.work_units import EventUnit
from streams.replica.ingest.source import Resources
from streams.replica.tasks import report, rounds, worker
from streams.replica.tasks.exchange_blobs import SCHEMA, blobs, peek
from streams.replica.tasks.report import Result
from streams.storage.client.shards import Shards
from streams.storage.description import Description
from streams.storage.log.events import Acquire, Right
from streams.trace.kernel.kernel import Kernel

BUCKETS = 2

START_MS = 1_000_000


class Dead(BaseException):
    """A replica reached the point where it dies: nothing that it runs may catch this."""


@dataclass(frozen=True)
class Deadly:
    """Raises where a real replica would be killed."""

    points: frozenset[str] = frozenset()

    def __call__(self, point: str) -> None:
        if point in self.points:
            raise Dead(point)


@dataclass
class World:
    """A broker in memory, its clock, and what a coordinator made of it."""

    now: int = START_MS
    broker: MemoryBroker = field(init=False)
    shards: Shards = field(init=False)
    relations: dict[str, Relation] = field(default_factory=dict)
    descriptions: list[DataflowDescription] = field(default_factory=list)
    lost: dict[Topic, dict[int, int]] = field(default_factory=dict)
    """The ends of partitions that were seen to go back."""

    def __post_init__(self) -> None:
        self.broker = MemoryBroker(self.now_ms)
        self.shards = self.client()

    def now_ms(self) -> int:
        return self.now

    def client(self) -> Shards:
        broker = self.broker
        return Shards(broker.logs, broker.chunks, broker.topics, now_ms=self.now_ms)

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the stages of this process work against this broker."""
        kernel = Kernel()
        resources = Resources(MemoryRawReader(self.broker.store), kernel)
        chunks = MemoryChunks(self.broker.store)

        def context(state: str) -> Context:
            return Context(Path(state) / "runs", kernel, lambda: uuid.uuid4().hex)

        monkeypatch.setattr(worker, "context", context)
        monkeypatch.setattr(worker, "chunks", lambda _: chunks)
        monkeypatch.setattr(worker, "resources", lambda _, __: resources)
        monkeypatch.setattr(scheduler, "LONG_POLL_MS", 0)

    def raw(self, name: str, partitions: int = 2) -> Topic:
        topic = Topic(name)
        self.broker.topics.create([TopicSpec(topic, partitions, TopicKind.RAW)])
        return topic

    def send(
        self,
        topic: Topic,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None = None,
    ) -> None:
        """Send a message, whose record has the world's time unless another is given."""
        store: MemoryStore = self.broker.store
        at = self.now if timestamp is None else timestamp
        with store.changed:
            store.partition(topic, partition).append(at, key, value, {})

    def source(
        self,
        name: str,
        columns: Sequence[tuple[str, str]],
        topic: Topic,
        keys: tuple[str, ...] = (),
        on_error: OnError = "inline",
        watermark: Watermark | None = None,
        error_limit: ErrorLimit | None = None,
        included: tuple[Included, ...] = (),
    ) -> None:
        """A source; its dead letters are the relation `NAME.errors`, in its group."""
        info = self.broker.topics.describe(topic)
        assert info is not None
        typed = tuple(Column(*column) for column in columns)
        birth = self.now if watermark is None else 0
        self._make(name, typed, "source", birth, keys)
        has_letters = "dead_letter" in {on_error, watermark and watermark.late_rows}
        letters = CollectionId(f"{name}.errors") if has_letters else None
        if letters is not None:
            self._make(letters, dead_letters.COLUMNS, "errors", birth, (), group=name)
        self.descriptions.append(
            DataflowDescription(
                export=CollectionId(name),
                kind="ingestion",
                name=name,
                group=name,
                columns=typed,
                as_of=Timestamp(birth),
                capability=CapabilityId(f"{name}.write"),
                source=IngestionDescription(
                    topic=topic,
                    topic_id=info.id,
                    envelope="upsert" if keys else "none",
                    keys=keys,
                    on_error=on_error,
                    dead_letters=letters,
                    watermark=watermark,
                    error_limit=error_limit,
                    included=included,
                ),
            )
        )

    def alter(self, name: str, **changes: Any) -> None:
        """What ALTER SOURCE does: another description, and dead letters if they are wanted."""
        (at,) = (
            i for i, description in enumerate(self.descriptions) if description.export == name
        )
        description = self.descriptions[at]
        assert description.source is not None
        source = replace(
            description.source, revision=description.source.revision + 1, **changes
        )
        if source.on_error == "dead_letter" and source.dead_letters is None:
            letters = CollectionId(f"{name}.errors")
            birth = description.as_of
            self._make(letters, dead_letters.COLUMNS, "errors", birth, (), group=name)
            source = replace(source, dead_letters=letters)
        self.descriptions[at] = replace(description, source=source)

    def view(self, name: str, query: str, as_of: int = START_MS) -> None:
        compiled = compile_view(query, self.relations)
        imports = [collection.collection for collection in compiled.dataflow.imports]
        holds = {
            collection: CapabilityId(f"{name}.reads.{collection}") for collection in imports
        }
        self.shards.submit(
            [
                (
                    collection,
                    Acquire(
                        collection=collection, capability=holds[collection], right=Right.READ
                    ),
                )
                for collection in imports
            ]
        )
        self.shards.sync()
        since = [self.shards.state(collection).since.time for collection in imports]
        birth = Timestamp(max([as_of, *since]))
        if compiled.dataflow.emits_on_close:
            compiled = compile_view(query, self.relations, (), birth)
        self._make(name, compiled.columns, "view", birth, ())
        self.descriptions.append(
            DataflowDescription(
                export=CollectionId(name),
                kind="view",
                name=name,
                group=name,
                columns=compiled.columns,
                as_of=birth,
                imports=tuple(ImportDescription(e, e, holds[e]) for e in imports),
                plan=plan_json.dumps(compiled.dataflow),
                capability=CapabilityId(f"{name}.write"),
            )
        )

    def rebase(self, name: str, of: str) -> None:
        """A rebase of a collection by event time."""
        read, hold = CollectionId(of), CapabilityId(f"{name}.reads.{of}")
        acquire = Acquire(collection=read, capability=hold, right=Right.READ)
        self.shards.submit([(of, acquire)])
        columns = self.relations[of].columns
        self._make(name, columns, "rebase", self.now, ())
        self.descriptions.append(
            DataflowDescription(
                export=CollectionId(name),
                kind="rebase",
                name=name,
                group=name,
                columns=columns,
                as_of=Timestamp(self.now),
                imports=(ImportDescription(read, of, hold),),
                capability=CapabilityId(f"{name}.write"),
            )
        )

    def _make(
        self,
        name: str,
        columns: tuple[Column, ...],
        kind: str,
        since: int,
        keys: tuple[str, ...],
        group: str = "",
    ) -> None:
        described = Description(tuple((c.name, c.type) for c in columns), keys, kind)
        self.shards.create(group or name, CollectionId(name), described, Timestamp(since))
        self.relations[name] = Relation(CollectionId(name), columns)

    def since(self, name: str) -> int:
        return self.shards.state(CollectionId(name)).since.time

    def upper(self, name: str) -> int:
        return self.shards.state(CollectionId(name)).upper.time


@dataclass
class Replica:
    """One replica's parts, driven by hand."""

    world: World
    name: str
    state: Path
    budgets: Budgets = field(default_factory=Budgets)
    salt: str = ""
    buckets: int = BUCKETS
    ahead_ms: int = 0
    """How far its clock is from the world's, which is the broker's."""
    message_bytes: int = 0
    asked_ms: int | None = None
    """The mean size of messages, as samples of all topics say."""
    results: dict[LaneName, Mapping[CollectionId, Result]] = field(default_factory=dict)
    watermarks: dict[LaneName, int] = field(default_factory=dict)
    """What Spark has as a query's watermark: the greatest candidate less the delay."""
    scheduler: Scheduler = field(init=False)
    committer: Committer = field(init=False)
    starter: RecoveryThread = field(init=False)
    idler: IdleAdvancer = field(init=False)
    measurer: SkewMonitor = field(init=False)
    maintenance: Maintenance = field(init=False)

    def __post_init__(self) -> None:
        config = ReplicaConfig(
            name=self.name,
            kafka=ClientSettings("memory:0"),
            commands=Topic("commands"),
            responses=Topic("responses"),
            state=self.state,
            budgets=self.budgets,
            checkpoint_ms=3,
        )
        store = CheckpointStore(self.state)
        self.scheduler = Scheduler(
            config=config,
            shards=self.world.client(),
            store=store,
            wakeup=Wakeup(),
            crash=Crash(),
            buckets=self.buckets,
            now_ms=self.now_ms,
            elapsed_ms=self.world.now_ms,
            ends=self._ends,
            describe=self.world.broker.topics.describe,
        )
        self.scheduler.is_open = True
        self.scheduler.watermark_ms = lambda lane: self.watermarks.get(lane, 0)
        recorder = CheckpointWriter(self.scheduler, store, config.checkpoint_ms)
        self.committer = Committer(self.scheduler, recorder)
        self.starter = RecoveryThread(self.scheduler, store)
        self.idler = IdleAdvancer(self.scheduler, self.committer)
        self.measurer = SkewMonitor(self.scheduler)
        self.maintenance = Maintenance(
            self.scheduler, store, recorder, lambda: None, clock=self._seconds
        )

    def now_ms(self) -> int:
        return self.world.now + self.ahead_ms

    def _seconds(self) -> float:
        return self.world.now / 3.0

    def die_at(self, *points: str) -> None:
        self.scheduler.crash = Deadly(frozenset(points))  # type: ignore[assignment]

    def _ends(self) -> dict[Topic, TopicReport]:
        reader = MemoryRawReader(self.world.broker.store)
        facts = {}
        for flow in self.scheduler.flows.values():
            if flow.description.source is not None:
                topic = flow.description.source.topic
                info = self.world.broker.topics.describe(topic)
                ends = {p: Ends(*pair) for p, pair in reader.ends(topic).items()}
                shrunk = self.world.lost.get(topic, {})
                facts[topic] = TopicReport(
                    None if info is None else info.id,
                    ends,
                    shrunk=shrunk,
                    losses=len(shrunk),
                    asked_ms=None if self.asked_ms is None else self.asked_ms + self.ahead_ms,
                    asked_elapsed_ms=self.asked_ms,
                    message_bytes=self.message_bytes,
                )
        return facts

    def follow(self, *, hears: bool = True) -> None:
        """Take over every dataflow that there is; if it `hears`, what ALTER changed too."""
        for description in self.world.descriptions:
            running = self.scheduler.flows.get(description.export)
            is_altered = running is not None and running.description != description
            if hears and is_altered and running is not None and not running.busy:
                dropped = self.scheduler.table.drop(running.id)
                assert dropped is not None
                self.scheduler.table.remove(dropped)
            if description.export not in self.scheduler.flows:
                flow = new_dataflow(description, self.name)
                salted = replace(flow, fingerprint=flow.fingerprint + self.salt)
                self.scheduler.table.add(salted)

    def start(self) -> None:
        self.starter.start_all()
        self.measurer.measure()

    def idle(self) -> None:
        self.measurer.measure()
        self.idler.move()

    def sync(self) -> None:
        """Hear of everything that others did."""
        if self.scheduler.shards.groups():
            self.scheduler.shards.sync()

    def begin(self, lane: LaneName) -> bool:
        """Decide a micro-batch of a lane and run its tasks; nothing is committed yet."""
        if lane in self.results:
            return False
        planned = self.scheduler
        planned.answer({"ask": "latest", "lane": lane, "start": {}})
        batch = planned.current(lane)
        if batch is None:
            return False
        rows = [
            pair
            for index in range(batch.tasks)
            for pair in blobs(rounds.start_round(str(self.state), batch.step, index))
        ]
        for level in range(1, batch.depth + 1):
            rows = [
                pair
                for bucket in range(self.buckets)
                for pair in blobs(
                    rounds.advance_round(level, str(self.state), _sent(rows, bucket))
                )
            ]
        self.results[lane] = report.gather(peek(blob) for _, blob in rows)
        return True

    def commit(self, lane: LaneName) -> None:
        """Commit what was begun in a lane, if anything was."""
        batch = self.scheduler.current(lane)
        if batch is not None and lane in self.results:
            self.committer.commit(batch, self.results.pop(lane))
            self._feed(batch)
            self.scheduler.finish(batch)

    def _feed(self, batch: MicroBatch) -> None:
        for unit in batch.units:
            source = unit.flow.description.source
            if isinstance(unit, EventUnit) and unit.advance.candidate is not None:
                assert source is not None
                assert source.watermark is not None
                watermark = unit.advance.candidate - source.watermark.delay_ms
                reached = self.watermarks.get(batch.lane, 0)
                self.watermarks[batch.lane] = max(reached, watermark)

    def step(self, lane: LaneName) -> bool:
        """One micro-batch of a lane, if there is something to do."""
        self.sync()
        batch = self.begin(lane)
        self.commit(lane)
        return batch

    def settle(self) -> None:
        """Do everything there is to do now."""
        self.follow()
        for _ in range(200):
            self.start()
            busy = [self.step(lane) for lane in self.lanes()]
            self.sync()
            self.idle()
            if not any(busy) and self._is_through():
                return
        raise AssertionError({f.id: (f.phase, f.trouble) for f in self._flows()})

    def lanes(self) -> tuple[LaneName, ...]:
        """The lanes that there are now."""
        return (*self.scheduler.lanes_of_sources(), *LANES)

    def _flows(self) -> list[Dataflow]:
        return list(self.scheduler.flows.values())

    def _is_through(self) -> bool:
        self.world.shards.sync()
        by_event_time = {flow.id for flow in self._flows() if flow.has_watermark}
        return all(
            self.world.upper(flow.id) > self.world.now
            for flow in self._flows()
            if flow.is_rebase
            or (
                flow.id not in by_event_time and not by_event_time & set(flow.description.holds)
            )
        )


def _sent(rows: Sequence[tuple[int, pa.Buffer]], bucket: int) -> list[pa.RecordBatch]:
    mine = [(b, blob.to_pybytes()) for b, blob in rows if b == bucket]
    if not mine:
        return []
    columns = [pa.array([b for b, _ in mine], pa.int32()), pa.array([x for _, x in mine])]
    return [pa.RecordBatch.from_arrays(columns, schema=SCHEMA)]
