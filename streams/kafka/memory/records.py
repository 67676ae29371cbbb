"""In-memory raw topics and transactions: the twins of `raw` and `transactions`.

Transaction markers take offsets, as on a broker: one in each partition that a transaction wrote
to. So code that counts records instead of positions fails.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from streams.errors import InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka.client.positions import Mark, Position
from streams.kafka.client.raw import MORE_COLUMNS, RAW_SCHEMA
from streams.kafka.client.transactions import Fenced, Out, OutRecord, one_by_one
from streams.kafka.log import Truncated
from streams.kafka.memory.store import Partition, Store
from streams.kafka.topics import OffsetRange


class MemoryRawReader:
    """Reads topics of a `Store`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def ends(self, topic: Topic) -> Mapping[int, OffsetRange]:
        """Return the readable range of each partition."""
        return self._store.ends(topic)

    def fetch(
        self,
        topic: Topic,
        partition: int,
        lo: Offset,
        hi: Offset,
        limit: int | None = None,
        *,
        more: Sequence[str] = (),
    ) -> pa.Table:
        """Return the first `limit` records of `[lo, hi)`."""
        if hi < lo or (limit is not None and limit < 1):
            raise InvalidUsage(f"fetch of {topic}/{partition}: [{lo}, {hi}) with limit {limit}")
        with self._store.changed:
            stored = self._store.partition(topic, partition)
            if lo < hi and lo < stored.low:
                raise Truncated(topic, lo, f"partition {partition}: it begins at {stored.low}")
            records = stored.since(lo, hi)[:limit]
        columns = {
            "key": [record.key for record in records],
            "value": [record.value for record in records],
            "partition": [partition] * len(records),
            "offset": [record.offset for record in records],
            "timestamp": [record.at_ms for record in records],
            "headers": [record.headers for record in records],
        }
        schema = pa.schema([*RAW_SCHEMA, *((name, MORE_COLUMNS[name]) for name in more)])
        return pa.table(
            [pa.array(columns[field.name], field.type) for field in schema], schema=schema
        )

    def fetch_ranges(
        self,
        topic: Topic,
        ranges: Sequence[tuple[int, Offset, Offset]],
        *,
        more: Sequence[str] = (),
    ) -> pa.Table:
        """Return the records of ranges `(partition, lo, hi)`, one range after another."""
        schema = pa.schema([*RAW_SCHEMA, *((name, MORE_COLUMNS[name]) for name in more)])
        tables = [self.fetch(topic, *range_, more=more) for range_ in ranges]
        return pa.concat_tables([schema.empty_table(), *tables])

    def rest(self) -> None:
        """Nothing is read ahead."""

    def close(self) -> None:
        """Do nothing."""


class MemoryPositions:
    """Read positions for restarts; the twin of `positions`."""

    def __init__(self) -> None:
        self._noted: dict[Topic, dict[int, Position]] = {}

    def load(self, topic: Topic, partitions: int) -> dict[int, Position]:
        """Return the saved positions of a topic's partitions."""
        return {
            n: position for n, position in self._noted.get(topic, {}).items() if n < partitions
        }

    def save(self, topic: Topic, positions: Mapping[int, Position]) -> None:
        """Save positions."""
        self._noted.setdefault(topic, {}).update(positions)

    def close(self) -> None:
        """Do nothing."""


class MemoryMarks:
    """Crash marks; the twin of `positions.KafkaMarks`."""

    def __init__(self) -> None:
        self._marks: dict[Topic, Mark] = {}

    def load(self, topic: Topic) -> Mark | None:
        """Return the newest mark of a topic."""
        return self._marks.get(topic)

    def save(self, topic: Topic, mark: Mark, *, is_waited_for: bool) -> None:  # noqa: ARG002  all are kept
        """Replace a topic's mark."""
        self._marks[topic] = mark

    def close(self) -> None:
        """Do nothing."""


class MemoryTransactions:
    """One session of a transactional writer over a `Store`."""

    def __init__(self, store: Store, transactional_id: str, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._id = transactional_id
        self._now_ms = now_ms
        self._epoch: int | None = None
        self._reader = MemoryRawReader(store)

    def init(self) -> None:
        """Begin or restart the session: older sessions are fenced."""
        with self._store.changed:
            self._epoch = self._store.sessions.get(self._id, 0) + 1
            self._store.sessions[self._id] = self._epoch

    def commit(self, records: Sequence[Out]) -> None:
        """Make all records visible at once."""
        every = list(one_by_one(records))
        with self._store.changed:
            if self._epoch is None:
                raise InvalidUsage(f"session {self._id}: expected begun by init, actual none")
            if self._epoch != self._store.sessions[self._id]:
                self._epoch = None
                raise Fenced(self._id)
            for record in every:
                self._store.check(record.topic, record.key, record.value)
                self._partition(record)
            written = {self._append(record) for record in every}
            for topic, number in written:
                self._store.partition(topic, number).end += 1  # the commit marker
            self._store.changed.notify_all()

    def _number(self, record: OutRecord) -> int:
        if record.partition is not None:
            return record.partition
        return zlib.crc32(record.key or b"") % len(self._store.topic(record.topic).partitions)

    def _partition(self, record: OutRecord) -> Partition:
        return self._store.partition(record.topic, self._number(record))

    def _append(self, record: OutRecord) -> tuple[Topic, int]:
        self._partition(record).append(self._now_ms(), record.key, record.value, record.headers)
        return record.topic, self._number(record)

    def last_value(self, topic: Topic, key: bytes, partition: int = 0) -> bytes | None:
        """Return the newest value of `key` in a partition; None if there is none."""
        with self._store.changed:
            records = self._store.partition(topic, partition).records
            return next(
                (record.value for record in reversed(records) if record.key == key), None
            )

    def partitions(self, topic: Topic) -> int:
        """Return the number of partitions of a topic."""
        return len(self._store.topic(topic).partitions)

    def close(self) -> None:
        """Do nothing."""
