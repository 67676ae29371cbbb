"""The catalog: objects and their names, as a pure fold over a log of its own.

An event counts iff it was written under the current epoch and builds upon the current version;
then the version grows by one. So of two attempts on one version the first in the log counts,
and a coordinator of an earlier epoch is fenced: its events do not count. Opening an epoch is
itself such an attempt.

The life of an object is in its events, each written before its effect, so that a coordinator
that dies in between finds what is left to do (`streams.adapter.provisioning`):

    Create   it has a name and an id          → hold its inputs
    Birth    its first time is chosen         → create its shard and send the command
    Retain   its read policy changes          → advance since by the policy
    Resume   it reads on elsewhere            → send the command again (a source)
    BadMessages   what becomes of them        → create the shard of dead letters; as Resume
    Drop     its name is free                 → stop its dataflow, drop its shard and holds
    Forget   nothing is left of it

Python functions (Define, Undefine) have no external effect: they are a part of the plans of the
views that call them, and have a namespace of their own. So have clusters
(`streams.adapter.catalog_clusters`), and materializations
(`streams.adapter.catalog_materializations`), which bind objects and keep those from being
dropped.

A source that keeps dead letters has a second object, `errors`, which comes and goes with it
and has its number: the collection of its dead letters (`streams.compute.dead_letters`).

Ids are a letter and a number; the number only grows, so ids are never reused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from streams.adapter.catalog_bad_messages import BadMessages
from streams.adapter.catalog_clusters import ClusterEvent, Clusters, ForgetCluster
from streams.adapter.catalog_materializations import (
    Materializations,
    Materialize,
    Unbind,
    Unmaterialize,
)
from streams.adapter.catalog_outcomes import (
    Accepted,
    Fenced,
    Outcome,
    Refused,
    VersionMismatch,
)
from streams.adapter.shared_groups import may_enter
from streams.compute import dead_letters
from streams.compute.description import IngestionDescription, SinkDescription, Start
from streams.ids import DEFAULT_CLUSTER, CollectionId, EventId, Timestamp, Topic
from streams.plan.physical import Column
from streams.storage.client.catalog_ids import own_group
from streams.storage.log.persistent_map import Map
from streams.storage.policy import Retention
from streams.trace.kernel.functions import Function

ItemKind = Literal["source", "view", "rebase", "sink", "index", "errors"]

LETTERS: Mapping[ItemKind, str] = {
    "source": "s",
    "view": "u",
    "rebase": "r",
    "sink": "k",
    "index": "i",
    "errors": "e",
}
NAMES: Mapping[ItemKind, str] = {
    "source": "source",
    "view": "materialized view",
    "rebase": "rebase",
    "sink": "sink",
    "index": "index",
    "errors": "collection of dead letters",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An object. `inputs` are the ids it reads; `as_of` is None until its Birth.

    `query` is a view's; `source` and `sink` are given for their kinds, `keys` for an index.
    Without a `policy` of its own the environment's applies. `functions` are the names of the
    Python functions that a view calls. `created_ms` is when the broker appended its Create.
    `former` is what a source read before it resumed elsewhere, one for each time, oldest first.
    `shared_group` is the group that a view shares, empty if it has its own.
    """

    id: CollectionId
    kind: ItemKind
    name: str
    statement: str
    columns: tuple[Column, ...]
    inputs: tuple[CollectionId, ...] = ()
    query: str = ""
    source: IngestionDescription | None = None
    sink: SinkDescription | None = None
    as_of: Timestamp | None = None
    policy: Retention | None = None
    functions: tuple[str, ...] = ()
    created_ms: int | None = None
    former: tuple[IngestionDescription, ...] = ()
    keys: tuple[str, ...] = ()
    cluster: str = DEFAULT_CLUSTER
    shared_group: str = ""

    @property
    def has_shard(self) -> bool:
        """Whether it is a collection in storage, which can be read."""
        return self.kind not in {"sink", "index"}

    @property
    def number(self) -> int:
        """The number in the id; later objects have greater ones."""
        return int(self.id[1:])

    @property
    def group(self) -> str:
        """The group of its shard."""
        return self.shared_group or own_group(self.id)

    @property
    def dead_letters(self) -> "Item | None":
        """The dead letters of a source that keeps them."""
        if self.source is None or self.source.dead_letters is None:
            return None
        return Item(
            id=self.source.dead_letters,
            kind="errors",
            name=self.name + dead_letters.SUFFIX,
            statement=self.statement,
            columns=dead_letters.COLUMNS,
            as_of=self.as_of,
            policy=self.policy,
            created_ms=self.created_ms,
        )


@dataclass(frozen=True, slots=True)
class Open:
    """The event's epoch begins."""


@dataclass(frozen=True, slots=True)
class Create:
    """An object gets a name and an id."""

    item: Item


@dataclass(frozen=True, slots=True)
class Birth:
    """The object's first time is `as_of`."""

    id: CollectionId
    as_of: Timestamp


@dataclass(frozen=True, slots=True)
class Retain:
    """The object gets a read policy; None: the environment's."""

    id: CollectionId
    policy: Retention | None


@dataclass(frozen=True, slots=True)
class Resume:
    """The source reads on elsewhere: in this topic, from there, in the next generation."""

    id: CollectionId
    topic: Topic
    topic_id: str
    start: Start


@dataclass(frozen=True, slots=True)
class Drop:
    """The object's name is free again."""

    id: CollectionId


@dataclass(frozen=True, slots=True)
class Forget:
    """A dropped object is cleaned up."""

    id: CollectionId


@dataclass(frozen=True, slots=True)
class Define:
    """Queries may call a Python function by its name."""

    function: Function


@dataclass(frozen=True, slots=True)
class Undefine:
    """The name of a Python function is free again."""

    name: str


Body = (
    Open
    | Create
    | Birth
    | Retain
    | Resume
    | BadMessages
    | Drop
    | Forget
    | Define
    | Undefine
    | Materialize
    | Unmaterialize
    | Unbind
    | ClusterEvent
)


@dataclass(frozen=True, slots=True)
class CatalogEvent:
    """An attempt to change the catalog. `expected` is the version that it builds upon."""

    id: EventId
    epoch: int
    expected: int
    body: Body


@dataclass(frozen=True, slots=True)
class Catalog:
    """The fold. `dropped` are objects that are not cleaned up yet.

    `functions` are by their names without case, and so are the ids of the objects in `names`.
    `identity` is the id of the first event: another catalog has another one, also in a topic of
    the same name, and a copy of this catalog in another topic has the same.
    """

    identity: str = ""
    version: int = 0
    epoch: int = 0
    last_number: int = 0
    items: Map[CollectionId, Item] = field(default_factory=Map)
    names: Map[str, CollectionId] = field(default_factory=Map)
    dropped: Mapping[CollectionId, Item] = field(default_factory=dict)
    functions: Mapping[str, Function] = field(default_factory=dict)
    materializations: Materializations = field(default_factory=Materializations)
    clusters: Clusters = field(default_factory=Clusters)

    def step(self, event: CatalogEvent, at_ms: int | None = None) -> tuple["Catalog", Outcome]:
        """Return the catalog after an event that was appended at `at_ms`, and its outcome."""
        opens = isinstance(event.body, Open)
        if event.epoch < self.epoch + opens:
            return self, Fenced(self.epoch)
        if event.expected != self.version:
            return self, VersionMismatch(self.version)
        if event.epoch > self.epoch and not opens:
            return self, Refused(f"epoch {event.epoch} was never opened")
        reason = self._objection(event.body)
        if reason:
            return self, Refused(reason)
        after = self._applied(event.body, event.epoch, at_ms)
        version, identity = self.version + 1, self.identity or event.id
        return replace(after, version=version, identity=identity), Accepted(version)

    def find(self, name: str) -> Item | None:
        """Return the object of this name, compared without case."""
        id_ = self.names.get(name.casefold())
        return None if id_ is None else self.items[id_]

    def next_id(self, kind: ItemKind) -> CollectionId:
        """Return the id of the next object."""
        return CollectionId(f"{LETTERS[kind]}{self.last_number + 1}")

    def group_of(self, id: CollectionId) -> str:  # noqa: A002  the field's name
        """Return the group of an object, which may be dropped."""
        item = self.items.get(id) or self.dropped.get(id)
        return own_group(id) if item is None else item.group

    def dependants(self, id: CollectionId) -> tuple[Item, ...]:  # noqa: A002  the field's name
        """Return the objects that read this one or its dead letters, oldest first."""
        ids = self._with_letters(id)
        return tuple(item for item in self.ordered() if not ids.isdisjoint(item.inputs))

    def bound(self, id: CollectionId) -> tuple[str, ...]:  # noqa: A002  as above
        """Return the names of the materializations of this object or of its dead letters."""
        ids = self._with_letters(id)
        return tuple(
            m.name
            for collection in sorted(ids)
            for m in self.materializations.binding(collection)
        )

    def _with_letters(self, key: CollectionId) -> frozenset[CollectionId]:
        letters = self.items[key].dead_letters
        return frozenset({key} if letters is None else {key, letters.id})

    def callers(self, name: str) -> tuple[Item, ...]:
        """Return the views that call the Python function of this name, oldest first."""
        wanted = name.casefold()
        return tuple(
            item
            for item in self.ordered()
            if wanted in {function.casefold() for function in item.functions}
        )

    def called(self, item: Item) -> tuple[Function, ...]:
        """Return the Python functions that a view calls."""
        return tuple(self.functions[function.casefold()] for function in item.functions)

    def ordered(self) -> tuple[Item, ...]:
        """Return the objects, oldest first, so that every object follows its inputs."""
        items = self.items.values()
        return tuple(sorted(items, key=lambda item: (item.number, item.kind == "errors")))

    def _objection(  # noqa: C901, PLR0911, PLR0912 - one case an event
        self, body: Body
    ) -> str:
        match body:
            case Open():
                return ""
            case Create(item):
                return self._objection_to_create(item)
            case Birth(key):
                awaits = key in self.items and self.items[key].as_of is None
                return "" if awaits else f"no object {key} awaits its birth"
            case Retain(key):
                return self._objection_to_retain(key)
            case Resume():
                return self._objection_to_resume(body)
            case BadMessages():
                return self._objection_to_bad_messages(body)
            case Drop(key):
                return self._objection_to_drop(key)
            case Forget(key):
                return "" if key in self.dropped else f"no object {key} was dropped"
            case Define(function):
                taken = function.name.casefold() in self.functions
                return f"function {function.name} already exists" if taken else ""
            case Undefine(name):
                return self._objection_to_undefine(name)
            case Materialize(materialization) if (
                lost := set(materialization.inputs) - self.items.keys()
            ):
                return f"no object {min(lost)}"
            case Materialize() | Unmaterialize() | Unbind():
                return self.materializations.objection(body, self.last_number + 1)
            case _:  # events of clusters, by their type
                return self.clusters.objection(body, self._inside(body))

    def _objection_to_create(self, item: Item) -> str:
        if item.number != self.last_number + 1:
            return f"expected the number {self.last_number + 1}, actual the id {item.id}"
        letters = item.dead_letters
        for new_item in (item,) if letters is None else (item, letters):
            taken = self.find(new_item.name)
            if taken:
                return f"{NAMES[taken.kind]} {taken.name} already exists"
        if item.cluster not in self.clusters.live:
            return f"no cluster {item.cluster}"
        if item.shared_group and not may_enter(item, self.items.values()):
            return f"no group {item.shared_group} in cluster {item.cluster}"
        missing = [collection for collection in item.inputs if collection not in self.items]
        if missing:
            return f"no object {missing[0]}"
        lost = [
            function for function in item.functions if function.casefold() not in self.functions
        ]
        return f"no function {lost[0]}" if lost else ""

    def _inside(self, body: ClusterEvent) -> list[str]:
        """Return the names of what is in a cluster: of one that has ended, what was dropped."""
        items = self.dropped if isinstance(body, ForgetCluster) else self.items
        return [item.name for item in items.values() if item.cluster == body.name]

    def _objection_to_retain(self, key: CollectionId) -> str:
        if key not in self.items:
            return f"no object {key}"
        return "" if self.items[key].has_shard else f"object {key} has no history"

    def _objection_to_resume(self, body: Resume) -> str:
        source = self.items[body.id].source if body.id in self.items else None
        if source is None:
            return f"no source {body.id}"
        expected = source.start.generation + 1
        if body.start.generation != expected:
            return f"expected generation {expected}, actual {body.start.generation}"
        return ""

    def _objection_to_bad_messages(self, body: BadMessages) -> str:
        source = self.items[body.id].source if body.id in self.items else None
        if source is None:
            return f"no source {body.id}"
        if body.revision != source.revision + 1:
            return f"expected revision {source.revision + 1}, actual {body.revision}"
        letters = self._altered(body).dead_letters
        taken = None if letters is None else self.find(letters.name)
        if letters is not None and taken is not None and taken.id != letters.id:
            return f"{NAMES[taken.kind]} {taken.name} already exists"
        return ""

    def _objection_to_drop(self, key: CollectionId) -> str:
        if key not in self.items:
            return f"no object {key}"
        if self.items[key].kind == "errors":
            return f"object {key} goes with its source"
        readers = [dependant.name for dependant in self.dependants(key)]
        readers += self.bound(key)
        return f"{readers[0]} depends on it" if readers else ""

    def _objection_to_undefine(self, name: str) -> str:
        if name.casefold() not in self.functions:
            return f"no function {name}"
        callers = self.callers(name)
        return f"{callers[0].name} depends on it" if callers else ""

    def _resumed(self, key: CollectionId, topic: Topic, topic_id: str, start: Start) -> Item:
        item = self.items[key]
        assert item.source is not None, "only a source resumes"
        limit = item.source.error_limit
        if limit is not None:  # the counts of a generation begin at 0
            limit = replace(limit, refused_before=0, messages_before=0)
        source = replace(
            item.source, topic=topic, topic_id=topic_id, start=start, error_limit=limit
        )
        return replace(item, source=source, former=(*item.former, item.source))

    def _altered(self, body: BadMessages) -> Item:
        item = self.items[body.id]
        assert item.source is not None, "only a source reads messages"
        return replace(item, source=body.applied(item.source))

    def _with(self, item: Item) -> "Catalog":
        """Return the catalog with an object as it is now, and its dead letters."""
        letters = item.dead_letters
        items, names = self.items, self.names
        for new_item in (item,) if letters is None else (item, letters):
            items = items.set(new_item.id, new_item)
            names = names.set(new_item.name.casefold(), new_item.id)
        return replace(self, items=items, names=names)

    def _without(self, key: CollectionId) -> "Catalog":
        """Return the catalog after the drop of an object."""
        item = self.items[key]
        letters = item.dead_letters
        items, names = self.items, self.names
        for old_item in (item,) if letters is None else (item, letters):
            items, names = items.remove(old_item.id), names.remove(old_item.name.casefold())
        return replace(self, items=items, names=names, dropped={**self.dropped, key: item})

    def _applied(  # noqa: C901, PLR0911, PLR0912 - one case an event
        self, body: Body, epoch: int, at_ms: int | None
    ) -> "Catalog":
        match body:
            case Open():
                return replace(self, epoch=epoch)
            case Create(item):
                created = self._with(replace(item, created_ms=at_ms))
                return replace(created, last_number=item.number)
            case Birth(key, as_of):
                return self._with(replace(self.items[key], as_of=as_of))
            case Retain(key, policy):
                return self._with(replace(self.items[key], policy=policy))
            case Resume(key, topic, topic_id, start):
                return self._with(self._resumed(key, topic, topic_id, start))
            case BadMessages():
                return self._with(self._altered(body))
            case Drop(key):
                return self._without(key)
            case Forget(key):
                rest = {
                    collection: item
                    for collection, item in self.dropped.items()
                    if collection != key
                }
                return replace(self, dropped=rest)
            case Define(function):
                functions = {**self.functions, function.name.casefold(): function}
                return replace(self, functions=functions)
            case Undefine(name):
                remaining = {k: f for k, f in self.functions.items() if k != name.casefold()}
                return replace(self, functions=remaining)
            case Materialize() | Unmaterialize() | Unbind():
                after = self.materializations.applied(body)
                last = max([self.last_number, *(item.number for item in after.live.values())])
                return replace(self, materializations=after, last_number=last)
            case _:  # events of clusters, by their type
                return replace(self, clusters=self.clusters.applied(body))
