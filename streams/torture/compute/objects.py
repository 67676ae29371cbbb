"""The objects of an instance: a source of orders, views over it, and indexes.

The definitions outlive controllers, as a catalog does. All history is kept: nothing downgrades
the capability that each collection is created with.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from streams.app.service_process import now_ms
from streams.compute.description import (
    NO_CAPABILITY,
    DataflowDescription,
    ImportDescription,
    IngestionDescription,
)
from streams.ids import CapabilityId, CollectionId, Timestamp, Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.topics import TopicKind, TopicSpec
from streams.plan import json as plan_json
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Arrange, Column, Dataflow, Import, Source
from streams.progress import frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.description import Description
from streams.storage.log.events import Acquire, Right

TOPIC, PARTITIONS = Topic("orders.raw"), 2
ORDERS = "orders"
COLUMNS = (Column("id", "BIGINT"), Column("k", "BIGINT"), Column("x", "BIGINT"))

QUERIES = (
    "SELECT k, count(*) AS n, sum(x)::BIGINT AS total FROM orders GROUP BY k",
    "SELECT id, k, x FROM orders WHERE x % 7 = 3",
    "SELECT k, max(x) AS most, min(id) AS first FROM orders GROUP BY k",
    "SELECT o.k, p.x, count(*) AS n FROM orders o JOIN orders p ON o.x = p.id"
    " GROUP BY o.k, p.x",
)
OVER_VIEWS = (
    "SELECT k % 3 AS third, count(*) AS many FROM {view} GROUP BY k % 3",
    "SELECT k, count(*) AS many FROM {view} WHERE k % 2 = 0 GROUP BY k",
)
"""Queries over any view, whose columns have a `k`."""


@dataclass(frozen=True, slots=True)
class Maintained:
    """A view, or an index on one: what it is, what it reads, its first time."""

    flow: DataflowDescription
    query: str = ""
    reads: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name, which is its id."""
        return self.flow.name


@dataclass(slots=True)
class Objects:
    """Live and dropped objects, in the order in which they were created."""

    broker: KafkaBroker
    shards: Shards
    live: dict[str, Maintained] = field(default_factory=dict)
    dropped: dict[str, Maintained] = field(default_factory=dict)
    sinces: dict[str, int] = field(default_factory=dict)
    """The sinces of views that controllers have sent."""

    def create_source(self) -> None:
        """The source, over an empty topic."""
        self.broker.topics.create([TopicSpec(TOPIC, PARTITIONS, TopicKind.RAW)])
        facts = self.broker.topics.describe(TOPIC)
        assert facts is not None, "the topic was just created"
        read = IngestionDescription(topic=TOPIC, topic_id=facts.id, envelope="none")
        flow = self._flow(ORDERS, COLUMNS, Timestamp(now_ms()), "source")
        self.live[ORDERS] = Maintained(replace(flow, kind="ingestion", source=read))

    def create_view(self, name: str, query: str, read: str) -> Maintained:
        """A view over one relation, born at the newest time of it."""
        compiled = compile_view(query, {read: self._relation(read)})
        collection = CollectionId(read)
        hold = CapabilityId(f"{name}.reads.{read}")
        acquire = Acquire(collection=collection, capability=hold, right=Right.READ)
        self.shards.submit([(collection, acquire)])
        birth = Timestamp(max(self.upper(read) - 1, self.live[read].flow.as_of))
        flow = self._flow(name, tuple(compiled.columns), birth)
        imports = (ImportDescription(collection, collection, hold),)
        plan = plan_json.dumps(compiled.dataflow)
        view = Maintained(
            replace(flow, kind="view", imports=imports, plan=plan), query, (read,)
        )
        self.live[name] = view
        return view

    def create_index(self, name: str, view: Maintained) -> Maintained:
        """An index on a view by its first column."""
        read, columns = view.flow.export, view.flow.columns
        types = tuple(column.type for column in columns)
        nodes = (Source(0), Arrange(0, (0,), (False,)))
        plan = Dataflow((Import(read, columns),), nodes, (types, types), (0, 1), columns)
        flow = DataflowDescription(
            export=CollectionId(name),
            kind="index",
            name=name,
            group="",
            columns=columns,
            as_of=Timestamp(max(self.upper(view.name) - 1, view.flow.as_of)),
            imports=(ImportDescription(read, read, NO_CAPABILITY),),
            plan=plan_json.dumps(plan),
        )
        index = self.live[name] = Maintained(flow, reads=(view.name,))
        return index

    def drop(self, name: str) -> None:
        """Forget a live object that no other one reads."""
        self.dropped[name] = self.live.pop(name)

    def compact(self, view: Maintained, since: int) -> bool:
        """Note that no client reads a view before a time; whether that is new."""
        is_later = since > self.sinces.get(view.name, view.flow.as_of)
        if is_later:
            self.sinces[view.name] = since
        return is_later

    def flows(self) -> list[DataflowDescription]:
        """What a new controller starts with: an as_of never goes back."""
        return [
            maintained.flow.compacted(frontier(self.sinces.get(maintained.name, 0)))
            for maintained in self.live.values()
        ]

    def of_kind(self, kind: str) -> list[Maintained]:
        """The live objects of a kind."""
        return [maintained for maintained in self.live.values() if maintained.flow.kind == kind]

    def free(self) -> list[str]:
        """The views and indexes that nothing reads."""
        read = {name for maintained in self.live.values() for name in maintained.reads}
        return [name for name in self.live if name not in read and name != ORDERS]

    def upper(self, name: str) -> int:
        """The upper of a collection."""
        return int(self.shards.state(CollectionId(name)).upper.time)

    def every(self) -> dict[str, Maintained]:
        """All objects there ever were."""
        return {**self.dropped, **self.live}

    def relation(self, view: Maintained) -> Relation:
        """A view for the planner."""
        return Relation(view.flow.export, view.flow.columns)

    def _relation(self, name: str) -> Relation:
        return self.relation(self.live[name])

    def _flow(
        self, name: str, columns: tuple[Column, ...], birth: Timestamp, fed_as: str = "view"
    ) -> DataflowDescription:
        collection = CollectionId(name)
        description = Description(tuple((c.name, c.type) for c in columns), (), fed_as)
        read = CapabilityId(f"{name}.read")
        self.shards.create(collection, collection, description, birth, read=read)
        return DataflowDescription(
            export=collection,
            kind="view",
            name=name,
            group=collection,
            columns=columns,
            as_of=birth,
            capability=write_capability(collection),
        )


def queries(objects: Objects) -> Iterator[tuple[str, str]]:
    """The queries that a view may have now, each with the name of what it reads."""
    for query in QUERIES:
        yield query, ORDERS
    for view in objects.of_kind("view"):
        if any(column.name == "k" for column in view.flow.columns):
            for query in OVER_VIEWS:
                yield query.format(view=view.name), view.name
