"""What a coordinator does, for tests of replicas: shards, holds, commands; and a judge."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from streams.compute.description import (
    DataflowDescription,
    ImportDescription,
    IngestionDescription,
)
from streams.compute.protocol import (
    AllowCompaction,
    AllowWrites,
    Command,
    CreateDataflow,
    CreateInstance,
    InitializationComplete,
)
from streams.compute.writer import CommandWriter
from streams.ids import CapabilityId, CollectionId, Timestamp, Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.settings import ClientSettings
from streams.kafka.topic_settings import TopicChoices
from streams.kafka.topics import SINGLE_BROKER, TopicKind, TopicSpec
from streams.plan import json as plan_json
from streams.plan.compile import Relation, compile_view
from streams.plan.metadata import Watermark
from streams.plan.physical import Column
from streams.progress import EMPTY
from streams.storage.client.shards import Shards
from streams.storage.description import Description
from streams.storage.log.events import Acquire, Right
from streams.storage.read import reader as read
from streams.trace.kernel.functions import Function
from tests.support import duckdb_oracle

BUCKETS = 2


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Bench:
    """One instance on a broker: makes collections, tells replicas, reads shards back."""

    kafka: ClientSettings
    namespace: str
    broker: KafkaBroker
    shards: Shards
    commands: CommandWriter
    relations: dict[str, Relation] = field(default_factory=dict)
    descriptions: dict[str, DataflowDescription] = field(default_factory=dict)
    epoch: int = 1
    buckets: int = BUCKETS

    @property
    def command_topic(self) -> Topic:
        return Topic(f"{self.namespace}.compute.main.commands")

    @property
    def response_topic(self) -> Topic:
        return Topic(f"{self.namespace}.compute.main.responses")

    def begin(self, *extra: Command) -> None:
        dataflows = [CreateDataflow(description) for description in self.descriptions.values()]
        self.commands.begin(
            uuid.uuid4().hex,
            [
                CreateInstance(self.namespace, self.buckets),
                *dataflows,
                *extra,
                InitializationComplete(),
                AllowWrites(),
            ],
        )

    def raw_topic(self, partitions: int = 2) -> Topic:
        topic = Topic(f"raw-{uuid.uuid4().hex[:8]}")
        self.broker.topics.create([TopicSpec(topic, partitions, TopicKind.RAW)])
        return topic

    def source(
        self,
        name: str,
        columns: Sequence[tuple[str, str]],
        topic: Topic,
        keys: tuple[str, ...] = (),
        watermark: Watermark | None = None,
    ) -> CollectionId:
        id_ = CollectionId(f"{name}")
        birth = now_ms() if watermark is None else 0
        as_of = self._create(id_, columns, keys, "source", birth)
        info = self.broker.topics.describe(topic)
        assert info is not None
        self._tell(
            DataflowDescription(
                export=id_,
                kind="ingestion",
                name=name,
                group=id_,
                columns=tuple(Column(*column) for column in columns),
                as_of=as_of,
                capability=CapabilityId(f"{id_}.write"),
                source=IngestionDescription(
                    topic=topic,
                    topic_id=info.id,
                    envelope="upsert" if keys else "none",
                    keys=keys,
                    watermark=watermark,
                ),
            )
        )
        self.relations[name] = Relation(id_, tuple(Column(*column) for column in columns))
        return id_

    def view(
        self, name: str, query: str, as_of: int = 0, functions: Sequence[Function] = ()
    ) -> CollectionId:
        compiled = compile_view(query, self.relations, functions)
        id_ = CollectionId(name)
        imports = [collection.collection for collection in compiled.dataflow.imports]
        holds = {
            collection: CapabilityId(f"{id_}.reads.{collection}") for collection in imports
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
        since = [self.shards.state(collection).since.time for collection in imports]
        birth = Timestamp(max([as_of, *since]))
        columns = [(column.name, column.type) for column in compiled.columns]
        self._create(id_, columns, (), "view", birth)
        self._tell(
            DataflowDescription(
                export=id_,
                kind="view",
                name=name,
                group=id_,
                columns=tuple(compiled.columns),
                as_of=birth,
                imports=tuple(
                    ImportDescription(collection, collection, holds[collection])
                    for collection in imports
                ),
                plan=plan_json.dumps(compiled.dataflow),
                capability=CapabilityId(f"{id_}.write"),
            )
        )
        self.relations[name] = Relation(id_, tuple(compiled.columns))
        return id_

    def drop(self, name: str) -> None:
        del self.descriptions[name]
        self.commands.write([AllowCompaction(CollectionId(name), EMPTY)])

    def _create(
        self,
        id_: CollectionId,
        columns: Sequence[tuple[str, str]],
        keys: tuple[str, ...],
        kind: str,
        since: int,
    ) -> Timestamp:
        self.shards.create(
            id_,
            id_,
            Description(tuple(columns), keys, kind),
            Timestamp(since),
            read=CapabilityId(f"{id_}.read"),
        )
        return Timestamp(since)

    def _tell(self, description: DataflowDescription) -> None:
        self.descriptions[description.name] = description
        self.commands.write([CreateDataflow(description)])

    def upper(self, name: str) -> int:
        return int(self.shards.state(CollectionId(name)).upper.time)

    def wait_upper(self, name: str, time_: int, timeout_s: float = 60) -> None:
        read.await_upper(
            self.shards, CollectionId(name), Timestamp(time_), int(timeout_s * 1e3)
        )

    def settle(self, *names: str, timeout_s: float = 120) -> None:
        """Wait until collections have passed the present moment, and so what was sent."""
        moment = now_ms()
        for name in names:
            self.wait_upper(name, moment, timeout_s)

    def updates(self, name: str) -> tuple[pa.Table, pa.Table]:
        """Everything a collection ever said up to its upper, and its errors."""
        return duckdb_oracle.updates(self.shards, self.relations[name])

    def table(self, name: str) -> pa.Table:
        rows, errors = self.updates(name)
        assert errors.num_rows == 0, errors.to_pylist()
        return rows


def judge(bench: Bench, view: str, query: str, inputs: Sequence[str]) -> int:
    """Compare a view with DuckDB at many times; how many."""
    upper = min(bench.upper(name) for name in [view, *inputs])
    tables = {name: bench.table(name) for name in inputs}
    bounds = (bench.descriptions[view].as_of, upper)
    return duckdb_oracle.judge(query, bench.table(view), tables, bounds)


def open_bench(bootstrap: str) -> Bench:
    kafka = ClientSettings(bootstrap)
    namespace = f"t{uuid.uuid4().hex[:6]}"
    broker = KafkaBroker(kafka, TopicChoices(durability=SINGLE_BROKER))
    shards = Shards(
        broker.logs,
        broker.chunks,
        broker.topics,
        namespace=namespace,
        now_ms=now_ms,
        pump=True,
        data_partitions=2,
    )
    topics = [f"{namespace}.compute.main.{kind}" for kind in ("commands", "responses")]
    broker.topics.create([TopicSpec(Topic(topic), 1, TopicKind.LOG) for topic in topics])
    writer = CommandWriter(broker.logs, Topic(topics[0]), epoch=1)
    return Bench(kafka, namespace, broker, shards, writer)
