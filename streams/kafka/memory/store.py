"""In-memory partitions of records, as strict as a broker: what it refuses, this refuses.

Invariant: offsets of a partition only grow and are never reused; a record is at its offset or
nowhere; below `low` nothing is held. Deleting a topic and creating it again gives it another id
and empty partitions. All methods may be called from many threads; a reader may wait on
`changed`.
"""

import threading
import uuid
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streams.errors import Determinate, InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka.topics import (
    ALIKE,
    MAXIMUM_RECORD_BYTES,
    SINGLE_BROKER,
    Found,
    OffsetRange,
    TopicInfo,
    TopicKind,
    TopicSpec,
    differences,
    refuse,
    settings_of,
)

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_NAME = 249
_APPEND_TIMED = frozenset(TopicKind) - {TopicKind.OUTPUT, TopicKind.RAW}


def are_one(topic: Topic, other: Topic) -> bool:
    """Whether a broker treats two names as one: its metrics have no dots."""
    return len(topic) == len(other) and topic.replace(".", "_") == other.replace(".", "_")


@dataclass(frozen=True, slots=True)
class Record:
    """One record as stored. A value of None is a tombstone."""

    offset: Offset
    at_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    is_append_time: bool = True


@dataclass(slots=True)
class Partition:
    """Records in offset order; `end` is the offset of the next one.

    Records that are appended from now on have the broker's time if the partition
    `is_append_timed`; existing records keep theirs.
    """

    records: list[Record] = field(default_factory=list)
    low: int = 0
    end: int = 0
    is_append_timed: bool = True

    def append(
        self,
        at_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Mapping[str, bytes] | Sequence[tuple[str, bytes]],
    ) -> Offset:
        """Add a record at the end. A name may be there more than once in a sequence."""
        offset = Offset(self.end)
        record_headers = tuple(headers.items() if isinstance(headers, Mapping) else headers)
        self.records.append(
            Record(offset, at_ms, key, value, record_headers, self.is_append_timed)
        )
        self.end += 1
        return offset

    def since(self, start: int, end: int | None = None) -> Sequence[Record]:
        """Return the records from `start` on, below `end`."""
        first = bisect_left(self.records, start, key=_offset)
        last = None if end is None else bisect_left(self.records, end, key=_offset)
        return self.records[first:last]

    def truncate(self, before: int) -> None:
        """Drop the records below `before`; the end stays."""
        self.records = list(self.since(before))
        self.low = max(self.low, before)

    def compact(self) -> None:
        """Keep the newest record of each key; a tombstone removes older ones and stays."""
        newest = {record.key: record.offset for record in self.records}
        self.records = [
            record for record in self.records if newest[record.key] == record.offset
        ]


def _offset(record: Record) -> int:
    return record.offset


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic: its spec, its identity, its partitions."""

    spec: TopicSpec
    id: str
    partitions: tuple[Partition, ...]


class Store:
    """All topics of one broker in memory."""

    def __init__(self, fresh: Callable[[], uuid.UUID] = uuid.uuid4) -> None:
        self._fresh = fresh
        self.changed = threading.Condition(threading.RLock())
        self._topics: dict[Topic, StoredTopic] = {}
        self.sessions: dict[str, int] = {}  # transactional id -> epoch of its newest session

    def create(self, specs: Sequence[TopicSpec]) -> None:
        """Create all or none. Errors: InvalidUsage."""
        with self.changed:
            refuse({spec.name: self._problems(spec) for spec in specs})
            for spec in specs:
                if spec.name not in self._topics:
                    timed = spec.kind in _APPEND_TIMED
                    parts = tuple(
                        Partition(is_append_timed=timed) for _ in range(spec.partitions)
                    )
                    self._topics[spec.name] = StoredTopic(spec, self._fresh().hex, parts)

    def _problems(self, spec: TopicSpec) -> Sequence[str]:
        if not spec.name or len(spec.name) > _LONGEST_NAME or not _LEGAL.issuperset(spec.name):
            return ("name: expected 1 to 249 letters, digits, dots, underscores and hyphens",)
        topic = self._topics.get(spec.name)
        if topic is None:
            alike = [topic for topic in self._topics if are_one(topic, spec.name)]
            said = f"name: collides with existing topics: {', '.join(alike)}{ALIKE}"
            return [said] if alike else ()
        settings = settings_of(topic.spec.kind, SINGLE_BROKER)
        actual = Found(len(topic.partitions), 1, settings)
        return differences(spec, SINGLE_BROKER, actual)

    def grow(self, topic: Topic, partitions: int) -> None:
        """Add missing partitions."""
        with self.changed:
            stored = self.topic(topic)
            timed = stored.spec.kind in _APPEND_TIMED
            count = partitions - len(stored.partitions)
            more = tuple(Partition(is_append_timed=timed) for _ in range(count))
            self._topics[topic] = replace(stored, partitions=stored.partitions + more)

    def delete(self, topics: Sequence[Topic]) -> None:
        """Delete topics and their records; waiting readers are woken."""
        with self.changed:
            for topic in topics:
                self._topics.pop(topic, None)
            self.changed.notify_all()

    def describe(self, topic: Topic) -> TopicInfo | None:
        """Return the id and partitions of a topic; None if it does not exist."""
        with self.changed:
            stored = self._topics.get(topic)
            return None if stored is None else TopicInfo(stored.id, len(stored.partitions))

    def describe_all(self, topics: Sequence[Topic]) -> Mapping[Topic, TopicInfo]:
        """Return the ids and partitions of the topics that exist."""
        described = {topic: self.describe(topic) for topic in topics}
        return {topic: info for topic, info in described.items() if info is not None}

    def names(self) -> frozenset[Topic]:
        """All topics."""
        with self.changed:
            return frozenset(self._topics)

    def ends(self, topic: Topic) -> Mapping[int, OffsetRange]:
        """Return the readable range of each partition."""
        with self.changed:
            return {
                number: OffsetRange(Offset(partition.low), Offset(partition.end))
                for number, partition in enumerate(self.topic(topic).partitions)
            }

    def at_time(self, topic: Topic, ms: int) -> Mapping[int, Offset]:
        """Return the offset of the first record of each partition at `ms` or later."""
        with self.changed:
            return {
                number: next(
                    (record.offset for record in partition.records if record.at_ms >= ms),
                    Offset(partition.end),
                )
                for number, partition in enumerate(self.topic(topic).partitions)
            }

    def topic(self, topic: Topic) -> StoredTopic:
        """Return a topic. Errors: Determinate if it does not exist."""
        stored = self._topics.get(topic)
        if stored is None:
            raise Determinate(f"topic {topic} does not exist")
        return stored

    def log(self, topic: Topic) -> Partition:
        """Return the one partition of a log. Errors: InvalidUsage if there are more."""
        stored = self.topic(topic)
        if len(stored.partitions) != 1:
            raise InvalidUsage(
                f"log {topic}: expected 1 partition, actual {len(stored.partitions)}"
            )
        return stored.partitions[0]

    def partition(self, topic: Topic, partition: int) -> Partition:
        """Return a partition. Errors: Determinate if it does not exist."""
        stored = self.topic(topic)
        if not 0 <= partition < len(stored.partitions):
            raise Determinate(f"topic {topic} has no partition {partition}")
        return stored.partitions[partition]

    def check(self, topic: Topic, key: bytes | None, value: bytes | None) -> None:
        """Errors: Determinate for a record that a broker would refuse."""
        kind = self.topic(topic).spec.kind
        if kind in {TopicKind.DATA, TopicKind.OUTPUT} and key is None:
            raise Determinate(f"topic {topic} is compacted: a record needs a key")
        size = len(value or b"") + len(key or b"")
        small = kind in {TopicKind.OUTPUT, TopicKind.RAW}
        limit = 1 << 20 if small else MAXIMUM_RECORD_BYTES
        if size > limit:
            raise Determinate(
                f"record for topic {topic} is too large: {size} bytes, at most {limit}"
            )
