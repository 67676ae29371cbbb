"""Attaches to the shards of a namespace: only brokers have to run, no service.

Nothing is written and no capability is taken, so looking at a shard holds nothing back. The
price: a reader may be overtaken by compaction, and gets an error that says so
(`streams.app.shard.shard_reader`).
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from streams.app.environment_access import expect_answer
from streams.app.error_output import Refused
from streams.app.service_process import now_ms
from streams.app.shard.topic_usage import SCAN_SCHEMA, TopicUsage, space_of, with_scan
from streams.errors import SlackwaterError
from streams.ids import CollectionId, Offset, Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.raw import RawReader
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import OffsetRange, Topics
from streams.storage.client.id_registry import Directory
from streams.storage.client.reserved_names import REGISTRY
from streams.storage.client.shards import Shards
from streams.storage.log.state import CollectionState, State

_AT_ONCE = 64
"""Records of a data topic in memory at a time: up to about 1 MiB each."""


class Records(Protocol):
    """Reads the records of a data topic (`streams.kafka.client.raw`)."""

    def ends(self, topic: Topic) -> Mapping[int, OffsetRange]:
        """The readable offsets of each partition."""

    def fetch(
        self, topic: Topic, partition: int, lo: Offset, hi: Offset, limit: int | None = None
    ) -> pa.Table:
        """The first `limit` records of `[lo, hi)`."""


@dataclass(frozen=True, slots=True)
class AttachedNamespace:
    """The shards of a namespace."""

    namespace: str
    shards: Shards
    topics: Topics
    records: Records

    def groups(self) -> tuple[str, ...]:
        """The names of all groups that hold data: a log topic and a data topic each."""
        names = self.topics.names()
        stem = f"{self.namespace}."
        candidates = [
            name.removeprefix(stem).removesuffix(".log")
            for name in names
            if name.startswith(stem) and name.endswith(".log")
        ]
        groups = (group for group in candidates if f"{stem}{group}.data" in names)
        return tuple(sorted(group for group in groups if group != REGISTRY))

    def open_all(self) -> Mapping[str, SlackwaterError]:
        """Open every group; those that cannot be opened, and why."""
        groups = self.groups()
        try:
            self.shards.open(*groups)
        except SlackwaterError:
            return {name: error for name in groups if (error := self._opened(name)) is not None}
        return {}

    def _opened(self, group: str) -> SlackwaterError | None:
        try:
            self.shards.open(group)
        except SlackwaterError as error:
            return error
        return None

    def find(self, id_: str) -> CollectionId:
        """The shard of this id, in a group that is open from now on.

        Errors: Refused when there is none; what its group failed of.
        """
        collection = CollectionId(id_)
        groups = self.groups()
        for group in (id_, self._registered(collection)):
            if group in groups:
                self.shards.open(group)
                if collection in self.shards.group_state(group).collections:
                    return collection
        broken = self.open_all()
        collections = [
            collection
            for name in self.shards.groups()
            for collection in self.state(name).collections
        ]
        if collection in collections:
            return collection
        raise unknown(id_, collections, broken, self.namespace)

    def group_named(self, name: str) -> str:
        """Return the group of this name, else that of the collection of this name."""
        if self.shards.identity(name) is not None:
            return name
        return self._registered(CollectionId(name)) or name

    def _registered(self, collection: CollectionId) -> str | None:
        """The group that the registry gave an id to; None if it did not, or cannot be read."""
        with suppress(SlackwaterError):
            entry = Directory(self.shards).registered(collection)
            return None if entry is None else entry.group
        return None

    def state(self, group: str) -> State:
        """A group as folded so far."""
        return self.shards.group_state(group)

    def group_and_state(self, id_: CollectionId) -> tuple[str, State, CollectionState]:
        """A shard, with the group that holds it."""
        group = self.shards.group_of(id_)
        state = self.state(group)
        return group, state, state.collections[id_]

    def space(self, group: str, *, scan: bool) -> TopicUsage:
        """The usage of the group's data topic; with `scan` the topic is read to its end.

        Errors: Determinate, Truncated.
        """
        if not scan:
            return space_of(self.state(group))
        topic = self.shards.names(group).data
        ends = self.records.ends(topic)
        tables = [
            sheet
            for partition, (low, high) in ends.items()
            for sheet in self._sweep(topic, partition, low, high)
        ]
        self.shards.sync()
        whole = pa.concat_tables([SCAN_SCHEMA.empty_table(), *tables])
        return with_scan(self.state(group), whole, {end: ends[end].high for end in ends})

    def _sweep(
        self, topic: Topic, partition: int, low: Offset, high: Offset
    ) -> Iterator[pa.Table]:
        while low < high:
            read = self.records.fetch(topic, partition, low, high, _AT_ONCE)
            yield measured(read)
            if read.num_rows < _AT_ONCE:
                return
            low = Offset(read.column("offset")[-1].as_py() + 1)


def measured(read: pa.Table) -> pa.Table:
    """Records with the bytes of their values in place of the values (`SCAN_SCHEMA`)."""
    sizes = pc.binary_length(read.column("value")).cast(pa.int64())
    columns = [read.column("partition"), read.column("offset"), read.column("key"), sizes]
    return pa.table(columns, schema=SCAN_SCHEMA)


def unknown(
    id_: str, names: Sequence[str], broken: Mapping[str, SlackwaterError], namespace: str
) -> Refused:
    """The error for an unknown id."""
    like = difflib.get_close_matches(id_, names, n=3)
    detail = f"namespace {namespace} has {len(names)} shards"
    if broken:
        detail += f", and {len(broken)} groups that cannot be read: {', '.join(sorted(broken))}"
    meant = f"did you mean {' or '.join(like)}? " if like else ""
    return Refused(
        f"no shard {id_!r}", detail, f"{meant}'slackwater shard list' lists them all"
    )


@contextmanager
def attached(settings: ClientSettings, namespace: str) -> Iterator[AttachedNamespace]:
    """The shards of a namespace on these brokers, for as long as the context lasts.

    Errors: Determinate when no broker answers; InvalidUsage when the settings are refused.
    """
    broker = KafkaBroker(settings)
    raw = RawReader(settings)
    try:
        expect_answer(broker.topics, settings)
        shards = Shards(
            broker.logs, broker.chunks, broker.topics, namespace=namespace, now_ms=now_ms
        )
        try:
            yield AttachedNamespace(namespace, shards, broker.topics, raw)
        finally:
            shards.close()
    finally:
        raw.close()
        broker.close()
