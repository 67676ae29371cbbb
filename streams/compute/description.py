"""The description of a dataflow that the controller sends: plan, capabilities, endpoints.

A description is all that a replica needs to maintain one exported collection: it has no name
that has to be looked up and no setting of a process. Descriptions that differ in the user's
name alone describe the same dataflow, and so do those of a view with another as_of
(`streams.compute.reconciliation`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from streams.ids import CapabilityId, CollectionId, Timestamp, Topic
from streams.plan.metadata import ErrorLimit, Included, Located, OnError, Watermark
from streams.plan.physical import Column
from streams.progress import Antichain

Kind = Literal["view", "ingestion", "rebase", "sink", "index"]
Envelope = Literal["none", "upsert"]
KeyFormat = Literal["json", "text", "bytes"]

NO_CAPABILITY = CapabilityId("")


@dataclass(frozen=True, slots=True)
class ImportDescription:
    """A collection that the dataflow reads, its group, and the hold on it.

    `hold` is a critical read capability that the dataflow alone moves, never past what its
    oldest needed checkpoint still reads (rules 5 and 17).
    """

    collection: CollectionId
    group: str
    hold: CapabilityId


@dataclass(frozen=True, slots=True)
class Kept:
    """What a source with a watermark takes over where it resumed in the topic that it had read.

    `since` is the first generation that read this topic. `returns` have a partition, a
    generation, and the offset from which it is read again from that generation on. `gaps` have
    a partition, the first of the offsets that are never read, and their end
    (`streams.compute.continuation`).
    """

    since: int
    returns: tuple[tuple[int, int, int], ...] = ()
    gaps: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """Where a source begins to read its topic.

    `generation` counts how often it resumed elsewhere (`streams.compute.binding`). `offsets`
    are pairs of a partition and its first offset. Without any it begins at what the topic
    holds; else a partition that is not named was made later, and is read from offset 0. With
    `kept` they are those of the first generation that read this topic.
    """

    generation: int = 0
    offsets: tuple[tuple[int, int], ...] = ()
    kept: Kept | None = None


BEGINNING = Start()

MOST_FORMER = 64
"""The number of former topic_starts in a description, which has to fit into a record."""


@dataclass(frozen=True, slots=True)
class TopicStart:
    """A topic that a source reads or has read, and where it began."""

    topic: Topic
    topic_id: str
    start: Start


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestionDescription:
    """The raw topic of a source. `topic_id` is the broker's: a re-created topic has another.

    `keys` name columns, and are empty unless the envelope is `upsert`. `key_format` is how a
    message's key is read: of the formats `text` and `bytes` it is the one key column.
    `included` are columns too, the last ones, in this order. `located` are columns whose values
    are not members of the same name. `dead_letters` is a collection in the source's group,
    given if `on_error` says so or ever did, or the `watermark` of late rows. With a `watermark`
    updates happen at event times, without one when the message is ingested. `revision` counts
    how often `on_error` and `error_limit` were changed (`streams.compute.binding`).
    """

    topic: Topic
    topic_id: str
    envelope: Envelope
    keys: tuple[str, ...] = ()
    format: str = "json"
    key_format: KeyFormat = "json"
    start: Start = BEGINNING
    included: tuple[Included, ...] = ()
    located: tuple[Located, ...] = ()
    on_error: OnError = "inline"
    dead_letters: CollectionId | None = None
    watermark: Watermark | None = None
    error_limit: ErrorLimit | None = None
    revision: int = 0

    @property
    def topic_start(self) -> TopicStart:
        """Return what it reads, and from where on."""
        return TopicStart(self.topic, self.topic_id, self.start)


@dataclass(frozen=True, slots=True)
class SinkDescription:
    """The output topic of a sink, the columns of its key, and its number of partitions."""

    topic: Topic
    keys: tuple[str, ...]
    partitions: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DataflowDescription:
    """One dataflow: its export, its imports, and its capabilities.

    `columns` are the export's. `plan` is the JSON of a `streams.plan.physical.Dataflow`; it is
    empty for a sink, for an ingestion, whose plan follows from `source` and `columns`, and for
    a rebase, which has one import and its columns (`streams.compute.rebasing`). An index has
    one import and its columns too, and a plan that arranges it by key.
    `as_of` is the first time the export is exact at; `capability` the write capability on the
    export's shard, which lies in `group` (both empty for a sink and an index). `source` is
    given for an ingestion, `sink` for a sink, neither for the others. `former` is what a source
    read before it resumed elsewhere, the latest `MOST_FORMER` of it, oldest first.
    """

    export: CollectionId
    kind: Kind
    name: str
    group: str
    columns: tuple[Column, ...]
    as_of: Timestamp
    imports: tuple[ImportDescription, ...] = ()
    plan: str = ""
    capability: CapabilityId = NO_CAPABILITY
    source: IngestionDescription | None = None
    sink: SinkDescription | None = None
    former: tuple[TopicStart, ...] = ()

    @property
    def topic_starts(self) -> tuple[TopicStart, ...]:
        """Return what a source has read, at last what it reads; empty for another dataflow."""
        return () if self.source is None else (*self.former, self.source.topic_start)

    @property
    def holds(self) -> Mapping[CollectionId, CapabilityId]:
        """Return the read capability on each import."""
        return {description.collection: description.hold for description in self.imports}

    @property
    def is_computed(self) -> bool:
        """Whether the contents at each time follow from those of the imports at that time."""
        return self.kind == "view"

    def compacted(self, since: Antichain) -> "DataflowDescription":
        """Return the dataflow for reads at or beyond `since`, which is not empty.

        The as_of of a computed one moves forward to it. In another one it says where a binding
        or an output topic begins, and stays.
        """
        if not self.is_computed or since.time <= self.as_of:
            return self
        return replace(self, as_of=since.time)
