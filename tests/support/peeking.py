"""Peeks over collections in memory: a loop of a replica, and who asks it."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from streams.compute.controller import command_topic, create_topics, response_topic
from streams.compute.peeks import Peek, PeekOutcome, PeekTarget
from streams.compute.reader import CommandReader
from streams.compute.writer import ResponseWriter
from streams.copies.targets import NOWHERE, CopyTargets
from streams.ids import CapabilityId, CollectionId, Timestamp
from streams.kafka.memory.logs import MemoryBroker
from streams.plan import json as plans
from streams.plan.physical import Column, Dataflow, Import, Source
from streams.progress import frontier
from streams.replica.peeks.loop import PeekLoop
from streams.storage.client.shards import Shards
from streams.storage.description import Description
from streams.storage.log.events import Append, Part
from streams.trace.kernel.kernel import arrow_schema

COLUMNS = (Column("k", "BIGINT"), Column("v", "VARCHAR"))
SCHEMA = arrow_schema([column.type for column in COLUMNS])
NAMESPACE, INSTANCE = "sw", "default"
_starts = itertools.count()


def identity(collection: str, columns: Sequence[Column] = COLUMNS) -> str:
    """The plan that changes nothing."""
    types = (tuple(column.type for column in columns),)
    imported = Import(CollectionId(collection), tuple(columns))
    return plans.dumps(Dataflow((imported,), (Source(0),), types, (0,), tuple(columns)))


def peek(collection: str, time: int, uuid: str = "p") -> Peek:
    return Peek(
        uuid=uuid,
        target=PeekTarget(CollectionId(collection), collection),
        time=Timestamp(time),
        plan=identity(collection),
        project=(0, 1),
        most_bytes=1 << 20,
    )


def rows_of(outcome: PeekOutcome) -> list[tuple[object, ...]]:
    """The rows of an answer. Errors: AttributeError if it is none."""
    rows = pa.ipc.open_stream(outcome.rows).read_all()  # type: ignore[union-attr]  # see above
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


@dataclass
class Peeking:
    """Topics in memory; replicas' loops of peeks, and collections that tests append to."""

    broker: MemoryBroker = field(default_factory=lambda: MemoryBroker(lambda: 1000))
    loops: list[PeekLoop] = field(default_factory=list)

    def __post_init__(self) -> None:
        create_topics(self.broker.topics, NAMESPACE, INSTANCE)
        self.shards = self.client(NAMESPACE)

    def client(self, namespace: str) -> Shards:
        broker = self.broker
        return Shards(
            broker.logs,
            broker.chunks,
            broker.topics,
            namespace=namespace,
            now_ms=lambda: 1000,
            pump=True,
        )

    def replica(
        self, name: str = "r1", index_bytes: int = 1 << 30, copy_to: CopyTargets = NOWHERE
    ) -> PeekLoop:
        logs, topic = self.broker.logs, command_topic(NAMESPACE, INSTANCE)
        _, started = logs.bounds(topic)
        process = f"{name}-{next(_starts)}"
        writer = ResponseWriter(logs, response_topic(NAMESPACE, INSTANCE), process)
        reader = CommandReader(logs, topic)
        loop = PeekLoop(
            reader, started, writer, name, self.client, index_bytes, copy_to=copy_to
        )
        self.loops.append(loop)
        return loop

    def collection(self, name: str) -> None:
        described = Description(tuple((c.name, c.type) for c in COLUMNS), (), "view")
        self.shards.create(name, CollectionId(name), described, Timestamp(0))

    def append(
        self, name: str, upper: int, *rows: tuple[object, object, int, int], wrong: str = ""
    ) -> None:
        """Append rows with times and diffs, or an error at the lower end, up to `upper`."""
        collection = CollectionId(name)
        lower = self.shards.state(collection).upper
        columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
        errors = [(wrong, lower.time, 1)] if wrong else []
        told = pa.table(
            {
                "error": pa.array([text for text, _, _ in errors], pa.utf8()),
                "time": pa.array([time for _, time, _ in errors], pa.int64()),
                "diff": pa.array([diff for _, _, diff in errors], pa.int64()),
            }
        )
        refs = self.shards.write(collection, pa.table(arrays, schema=SCHEMA), told)
        part = Part(
            collection=collection,
            capability=CapabilityId(f"{name}.write"),
            lower=lower,
            upper=frontier(upper),
            chunks=refs,
        )
        self.shards.submit([(name, Append((part,)))])

    def close(self) -> None:
        for loop in self.loops:
            loop.close()
        self.shards.close()
