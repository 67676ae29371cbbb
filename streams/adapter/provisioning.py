"""Creates and removes the storage and dataflows of objects, in idempotent steps.

The effects of catalog events happen here, and each step first checks whether it was done
before, so that a coordinator may die between any two of them and the next one continues
(`streams.adapter.catalog`). `crash` is called between the steps, for crash tests.

An object holds its inputs by a critical read capability on each (rules 4 and 5), named after
both. The hold is acquired before the first time is chosen, so that the time cannot be compacted
away in between; the dataflow moves it afterwards.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from streams.adapter.catalog import Birth, Forget, Item, ItemKind
from streams.adapter.catalog_log import CatalogLog
from streams.adapter.ownership import described, strange
from streams.adapter.plan_cache import Planner, Plans
from streams.adapter.shared_groups import is_alone
from streams.adapter.taken_ids import refuse_taken
from streams.adapter.timelines import EVENT_BIRTH
from streams.compute.as_of import Bound, ReadableInterval, continued, newborn, select
from streams.compute.description import (
    MOST_FORMER,
    NO_CAPABILITY,
    DataflowDescription,
    ImportDescription,
    Kind,
)
from streams.compute.sinks import sink_spec
from streams.errors import Corrupt, InvalidUsage
from streams.ids import CapabilityId, CollectionId, Timestamp
from streams.kafka.log import Truncated
from streams.kafka.topics import TopicKind, Topics, TopicSpec
from streams.plan import json as plan_json
from streams.plan.compile import Relation
from streams.plan.physical import Arrange, Dataflow, Source
from streams.plan.physical import Import as PlannedImport
from streams.plan.sql.emit import emits
from streams.progress import frontier
from streams.storage.client.id_registry import Directory
from streams.storage.client.shards import Shards, write_capability
from streams.storage.client.submit import Unread, unread_error
from streams.storage.log.events import Acquire, Drop, Right, system_capability
from streams.storage.log.outcomes import Acquired, Unavailable
from streams.storage.log.state import CollectionState
from streams.storage.policy import catalog_hold

log = logging.getLogger(__name__)

Crash = Callable[[str], None]

KINDS: Mapping[ItemKind, Kind] = {
    "source": "ingestion",
    "view": "view",
    "rebase": "rebase",
    "sink": "sink",
    "index": "index",
}
"""Dead letters are kept by the dataflow of their source."""


def hold_of(reader: CollectionId, read: CollectionId) -> CapabilityId:
    """Return the name of an object's read capability on another."""
    return system_capability(reader, "reads", read)


def reading_hold(collection: CollectionId) -> CapabilityId:
    """The name of the capability of the coordinator's reads on a collection (`read_holds`)."""
    return system_capability(collection, "reading")


def relations(items: Sequence[Item], by_id: Mapping[CollectionId, Item]) -> dict[str, Relation]:
    """Return the relations that names of sources and views resolve to.

    `by_id` has what rebases among the items read.
    """
    return {item.name: _relation(item, by_id) for item in items if item.has_shard}


def _relation(item: Item, by_id: Mapping[CollectionId, Item]) -> Relation:
    """Return an object as a relation. Equal at each start, because plans have to be equal."""
    if item.kind == "rebase":  # it is at each time what its input was at some time
        of = by_id[item.inputs[0]]
        return replace(_relation(of, by_id), id=item.id, rebase_of=of.name)
    source = item.source
    if source is None:
        is_monotone = item.kind == "errors" or emits(item.query)
        return Relation(item.id, item.columns, monotone=is_monotone)
    keys = (source.keys,) if source.envelope == "upsert" else ()
    return Relation(item.id, item.columns, keys, monotone=source.envelope == "none")


def bounds_of(item: Item, state: CollectionState) -> ReadableInterval:
    """Return the interval in which an object can be read."""
    return ReadableInterval(item.name, state.since, state.upper)


class Objects:
    """Creates and removes objects. The coordinator serialises calls."""

    def __init__(
        self,
        catalog: CatalogLog,
        shards: Shards,
        topics: Topics,
        now_ms: Callable[[], int],
        crash: Crash,
        plan: Planner,
    ) -> None:
        self.plans = Plans(plan)
        self._catalog, self._shards, self._topics = catalog, shards, topics
        self._directory = Directory(shards)
        self._now_ms, self.crash = now_ms, crash

    def attach(self, items: Sequence[Item]) -> None:
        """Follow the existing shards, a thousand at once, and hold them for our reads.

        If one cannot be followed none is; `establish` then reports which, and why. Errors:
        Determinate, Indeterminate: the cluster does not answer.
        """
        groups = {item.group for item in items if item.has_shard}
        logs = {group: self._shards.names(group).log for group in groups}
        there = self._topics.describe_all(list(logs.values()))
        try:
            self._shards.open(*(group for group in groups if logs[group] in there))
        except (InvalidUsage, Corrupt, Truncated) as cause:
            log.warning("shards are opened one by one", extra={"cause": str(cause)})
        else:
            ours = [item.id for item in items if item.has_shard and self._is_ours(item)]
            self._hold_for_reads(
                [collection for collection in ours if self._lacks_reads(collection)]
            )

    def _hold_for_reads(self, shards: Sequence[CollectionId]) -> None:
        """Acquire the hold of our reads; if that fails, `establish` reports why."""
        self._shards.submit(
            [
                (
                    self._group_of(shard),
                    Acquire(collection=shard, capability=reading_hold(shard), right=Right.READ),
                )
                for shard in shards
            ]
        )

    def _group_of(self, id_: CollectionId) -> str:
        return self._catalog.state.group_of(id_)

    def _lacks_reads(self, shard: CollectionId) -> bool:
        """Whether a shard is followed without a hold of our reads."""
        if not self._is_followed(shard):
            return False
        collection = self._shards.group_state(self._group_of(shard)).collections.get(shard)
        return collection is not None and reading_hold(shard) not in collection.capabilities

    def establish(self, item: Item) -> DataflowDescription:
        """Create what the object lacks, and return the description of its dataflow.

        The objects that it reads are established already.
        """
        if item.kind not in {"source", "index"}:
            self._hold(item)
            self.crash("after-holds")
        if item.as_of is None:
            as_of = self._birth(item)
            item = self._catalog.change(lambda _: Birth(item.id, as_of)).items[item.id]
            self.crash("after-birth")
        if item.has_shard:
            self._create_shard(item)
            if item.dead_letters is not None:
                self._create_shard(item.dead_letters)
        elif item.sink is not None:
            own = sink_spec(self._described(item), self._shards.namespace)
            shared = [
                TopicSpec(name, 1, TopicKind.OUTPUT)
                for name in (own.progress_topic, own.schema_topic)
            ]
            output = TopicSpec(item.sink.topic, item.sink.partitions, TopicKind.OUTPUT)
            self._topics.create([output, *shared])
        self.crash("after-shard")
        description = self._described(item, self.plans.of(item, self._catalog.state))
        if not description.is_computed:
            return description
        return description.compacted(frontier(self._as_of(item, description.as_of)))

    def _described(self, item: Item, plan: str = "") -> DataflowDescription:
        return describe(item, self._group_of, plan)

    def _as_of(self, item: Item, born: Timestamp) -> Timestamp:
        """Select where a replica that joins begins to compute what is in the shard already."""
        state = self._shards.state(item.id)
        bounds = continued(self._intervals(item), bounds_of(item, state), born)
        selected = select(bounds)
        for bound in selected.unmet:
            facts = {"id": item.id, "as_of": selected.time, "bound": bound.why}
            log.warning("history of an import is lost", extra=facts)
        return selected.time

    def _intervals(self, item: Item) -> list[ReadableInterval]:
        states = [self._shards.state(collection) for collection in item.inputs]
        return [ReadableInterval(state.id, state.since, state.upper) for state in states]

    def abolish(self, item: Item) -> None:
        """Remove what a dropped object still has, once its dataflow has stopped.

        Errors: Determinate, Indeterminate, Corrupt, of an input too; then call it again.
        """
        self.plans.forget(item.id)
        catalog = self._catalog.state
        inputs = [
            catalog.items.get(collection) or catalog.dropped.get(collection)
            for collection in item.inputs
        ]
        for read in inputs if item.kind != "index" else ():
            if read is None or (read.shared_group and self._is_given_up(read)):
                continue
            if self._exists(read.id) and self._is_ours(read):
                self._release(item.id, read.id)
        self.crash("after-release")
        if item.has_shard:
            self._abolish_shard(item)
        self.crash("before-forget")
        self._catalog.change(lambda _: Forget(item.id))
        log.info("object removed", extra={"id": item.id, "object": item.name})

    def _abolish_shard(self, item: Item) -> None:
        is_there = self._exists(item.id)
        if is_there and not self._end_shard(item):
            log.warning("shard of another catalog stays", extra={"id": item.id})
            return
        self.crash("after-drop")
        self._retire(item)
        self.crash("after-retire")
        if is_there and self._is_last(item):
            self._shards.delete(item.group)

    def _is_last(self, item: Item) -> bool:
        """Whether nothing else is, or will be, in the group of a dropped object."""
        catalog = self._catalog.state
        if not is_alone(item, (*catalog.items.values(), *catalog.dropped.values())):
            return False
        followed = self._shards.following.groups.get(item.group)
        strangers = () if followed is None else followed.state.collections.live
        if strangers and item.shared_group and self._is_followed(item.id):
            log.warning("group of another catalog stays", extra={"group": item.group})
            return False
        return True

    def _is_given_up(self, item: Item) -> bool:
        """Whether an object is dropped, and all others of its group are."""
        live = self._catalog.state.items
        return item.id not in live and is_alone(item, live.values())

    def _end_shard(self, item: Item) -> bool:
        """Drop the shard; return False if another catalog created it.

        Errors: Corrupt if it shares its log and that has halted.
        """
        try:
            if self._has_shard(item.id):
                if not self._is_ours(item):
                    return False
                self._shards.drop(item.id)
                if item.dead_letters is not None and self._has_shard(item.dead_letters.id):
                    self._shards.drop(item.dead_letters.id)
        except (Corrupt, Truncated) as cause:
            if isinstance(cause, Corrupt) and not self._is_given_up(item):
                raise  # live objects need the log, so it will be repaired
            # its topics are deleted all the same
            log.warning("shard is lost", extra={"id": item.id, "cause": str(cause)})
        return True

    def _retire(self, item: Item) -> None:
        """Record the drop for clients that ask after the topics are deleted."""
        try:
            letters = [] if item.dead_letters is None else [item.dead_letters.id]
            self._directory.retire(item.group, [item.id, *letters])
        except (Corrupt, Truncated, Unread) as cause:
            # a failed registry does not prevent the deletion of topics
            log.warning("registry of ids is lost", extra={"id": item.id, "cause": str(cause)})

    def refuse_taken(self, item: Item) -> None:
        """Errors: InvalidStatement if the id of a new object is another's (`taken_ids`)."""
        catalog = self._catalog.state.items.values()
        refuse_taken(item, catalog, self._directory, self._topics)

    def is_healthy(self, group: str) -> bool:
        """Whether a group's log is followed."""
        return group in self._shards.groups()

    def _release(self, reader: CollectionId, read: CollectionId) -> None:
        """Release an input. Errors: as `abolish`; then the hold may still exist."""
        group = self._group_of(read)
        self._shards.open(group)
        (outcome,) = self._shards.submit([(group, Drop(read, hold_of(reader, read)))])
        if isinstance(outcome, Unavailable):
            raise unread_error(outcome.reason)

    def _hold(self, item: Item) -> None:
        """Acquire missing holds on the inputs; the dataflow moves them from there on."""
        wanted: list[tuple[str, Acquire]] = []
        for collection in item.inputs:
            self._shards.open(self._group_of(collection))
            if hold_of(item.id, collection) not in self._shards.state(collection).capabilities:
                hold = hold_of(item.id, collection)
                wanted.append(
                    (
                        self._group_of(collection),
                        Acquire(collection=collection, capability=hold, right=Right.READ),
                    )
                )
        for (_, body), outcome in zip(wanted, self._shards.submit(wanted), strict=True):
            if not isinstance(outcome, Acquired) or outcome.frontier.is_empty:
                raise InvalidUsage(f"collection {body.collection} cannot be held: {outcome}")

    def _birth(self, item: Item) -> Timestamp:
        """Choose the first time: by the inputs, or for a source that of its definition.

        That is the earlier of our clock and the broker's. A source with a watermark has event
        times, and they begin in 1970. A rebase has the clock's, whatever its input has.
        """
        if item.source is not None and item.source.watermark is not None:
            return EVENT_BIRTH
        if not item.inputs or item.kind == "rebase":
            # Our clock may be ahead of everybody's, and a join would wait until the others have
            # come so far (rule 27).
            clocks = [self._now_ms()]
            clocks += [] if item.created_ms is None else [item.created_ms]
            return Timestamp(min(clocks))
        self._shards.sync()
        intervals = self._intervals(item)
        if item.kind == "index":
            return Timestamp(intervals[0].since.time)
        return select([*newborn(intervals), *self._held(item)]).time

    def _held(self, item: Item) -> Iterator[Bound]:
        """Return the bounds of the object's holds on its inputs."""
        for state in map(self._shards.state, item.inputs):
            hold = state.capabilities[hold_of(item.id, state.id)]
            yield Bound("at least", hold.frontier.time, f"hold on {state.id}")

    def _create_shard(self, item: Item) -> None:
        assert item.as_of is not None, "an object is born before its shard is made"
        if not self._has_shard(item.id):
            self._make_shard(item)
        why = self._strange(item)
        if why:
            names = self._shards.names(item.group)
            remedy = "create it again"
            if not item.shared_group:
                topics = f"{names.log} and {names.data}"
                remedy = f"delete topics {topics} if what they hold is not needed"
            raise InvalidUsage(
                f"shard {item.id} is not that of {item.name}: {why}; put the catalog's topic"
                f" back, or drop {item.name} and {remedy}"
            )
        if self._lacks_reads(item.id):
            self._hold_for_reads([item.id])

    def _make_shard(self, item: Item) -> None:
        assert item.as_of is not None, "an object is born before its shard is made"
        if item.shared_group:
            if not self._is_followed(item.id):
                self._shards.make(item.shared_group)
            self._directory.give(item.id, item.shared_group)
        self._shards.create(
            item.group,
            item.id,
            described(item, self._catalog.state.identity),
            item.as_of,
            write=write_capability(item.id),
            read=catalog_hold(item.id),
        )

    def _has_shard(self, collection: CollectionId) -> bool:
        if not self._is_followed(collection) and not self._exists(collection):
            return False
        group = self._group_of(collection)
        self._shards.open(group)
        return collection in self._shards.group_state(group).collections

    def is_made(self, item: Item) -> bool:
        """Whether the object has a shard to read from; thread-safe."""
        if item.as_of is None or item.group not in self._shards.following.groups:
            return False
        state = self._shards.group_state(item.group).collections.get(item.id)
        return state is not None and not strange(item, self._catalog.state.identity, state)

    def _strange(self, item: Item) -> str:
        """Why the shard under the object's id is another's; empty if it is the object's."""
        collection = self._shards.group_state(item.group).collections.get(item.id)
        return (
            ""
            if collection is None
            else strange(item, self._catalog.state.identity, collection)
        )

    def _is_ours(self, item: Item) -> bool:
        """Whether the shard under the object's id, if followed, is not another object's.

        A dropped shard does not name its creator, and may be removed.
        """
        if not self._is_followed(item.id):
            return True
        collection = self._shards.group_state(item.group).collections.get(item.id)
        return collection is None or collection.is_dropped or not self._strange(item)

    def _is_followed(self, collection: CollectionId) -> bool:
        followed = self._shards.following.groups.get(self._group_of(collection))
        return followed is not None and followed.failure is None

    def _exists(self, collection: CollectionId) -> bool:
        names = self._shards.names(self._group_of(collection))
        return self._topics.describe(names.log) is not None


def describe(
    item: Item, group_of: Callable[[CollectionId], str], plan: str = ""
) -> DataflowDescription:
    """Return the dataflow of an object, equal each time, so that a replica recognises it.

    `group_of` returns the groups of inputs. The plan is a view's, in JSON.
    """
    assert item.as_of is not None, "an object is born before its dataflow is described"
    return DataflowDescription(
        export=item.id,
        kind=KINDS[item.kind],
        name=item.name,
        group=item.group if item.has_shard else "",
        columns=item.columns,
        as_of=item.as_of,
        imports=tuple(
            ImportDescription(collection, group_of(collection), _hold_name(item, collection))
            for collection in item.inputs
        ),
        plan=_index_plan(item) if item.kind == "index" else plan,
        capability=write_capability(item.id) if item.has_shard else NO_CAPABILITY,
        source=item.source,
        sink=item.sink,
        former=tuple(source.topic_start for source in item.former[-MOST_FORMER:]),
    )


def _hold_name(item: Item, read: CollectionId) -> CapabilityId:
    """Return the name of the hold on an input: an index has none, and loads anew."""
    return NO_CAPABILITY if item.kind == "index" else hold_of(item.id, read)


def _index_plan(item: Item) -> str:
    """Return the plan of an index, in JSON: its input, arranged by the key."""
    names = [column.name for column in item.columns]
    keys = tuple(names.index(key) for key in item.keys)
    types = tuple(column.type for column in item.columns)
    nodes = (Source(0), Arrange(0, keys, (False,) * len(keys)))
    read = PlannedImport(item.inputs[0], item.columns)
    return plan_json.dumps(Dataflow((read,), nodes, (types, types), (0, 1), item.columns))
