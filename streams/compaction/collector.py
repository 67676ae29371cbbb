"""Garbage collection of chunks: superseded ones, and orphans that were never linked.

The log decides, never a clock (rules 7, 10). The collector raises the floor by a Reclaim, reads
it back, and tombstones only chunks that the state at that event does not name: such a chunk
lies below the floor, so a later event that names it is void. A superseded chunk stays named
until every live plan is beyond the event that removed it.

Orphans are found by reading the data topic up to the floor, once; chunks that are still named
are remembered by key and checked again. The read position outlives the process (`Positions`):
below it every chunk is linked, superseded or has its tombstone; staged chunks lie above it,
because their stage may end. A process that dies between a Reclaim and its tombstones leaves
chunks behind; so once in `RESCAN_MS` the topic is read from its start.

The height of the floor is not a matter of correctness: a writer between writing a chunk and
linking it would have to write it again. So the floor is the end of the topic `grace_ms` ago.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from streams.errors import SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.client.positions import Position
from streams.kafka.log import KEY_ERRORS, ChunkRef
from streams.kafka.topics import OffsetRange
from streams.storage.client import garbage
from streams.storage.client.garbage import Floor
from streams.storage.client.shards import Shards

log = logging.getLogger(__name__)

RESCAN_MS = 7 * 24 * 3_600_000
"""How long a saved position is valid; then the topic is rescanned for chunks left by crashes.
"""

GRACE_MS = 600_000
"""Time between writing and linking a chunk after which a collector may take it."""

AT_ONCE = 32
"""Chunks of a data topic that are read together; at most about a megabyte each."""


class Records(Protocol):
    """Reads a data topic as records; `streams.kafka.client.raw` and its twin in memory."""

    def ends(self, topic: Topic) -> Mapping[int, OffsetRange]:
        """Return the readable offsets of each partition."""

    def fetch(
        self, topic: Topic, partition: int, lo: Offset, hi: Offset, limit: int | None = None
    ) -> pa.Table:
        """Return the first `limit` records of [lo, hi): key, value, partition, offset."""


class Positions(Protocol):
    """Saves read positions of topics: `streams.kafka.client.positions`, its twin in memory."""

    def load(self, topic: Topic, partitions: int) -> dict[int, Position]:
        """Return the saved positions of a topic's partitions."""

    def save(self, topic: Topic, positions: Mapping[int, Position]) -> None:
        """Save positions."""


@dataclass(slots=True)
class Scan:
    """What is known of a group's data topic.

    `position` is how far each partition was read, by a scan that began at `since_ms`; `noted`
    is the saved position. `alive` are the chunks below the position without a tombstone, by
    key.
    """

    position: dict[int, int] = field(default_factory=dict)
    since_ms: dict[int, int] = field(default_factory=dict)
    noted: dict[int, Position] | None = None
    alive: dict[str, ChunkRef] = field(default_factory=dict)
    ends: Floor = field(default_factory=dict)
    ends_at_ms: int | None = None


@dataclass(slots=True)
class Collector:
    """Collects the garbage of groups; one thread. Remembers its scan of each group."""

    shards: Shards
    records: Records
    now_ms: Callable[[], int]
    grace_ms: int = GRACE_MS
    positions: Positions | None = None
    _scans: dict[str, Scan] = field(default_factory=dict)

    def collect(self, group: str) -> tuple[ChunkRef, ...]:
        """Reclaim garbage; return the tombstoned chunks.

        Orphans are collected once the group has been observed for `grace_ms`.

        Errors: as `Shards.submit` and `Chunks.forget`; what is left over is found again.
        """
        return self.reclaim(group, self._polite_floor(group))

    def reclaim(self, group: str, floor: Floor) -> tuple[ChunkRef, ...]:
        """Reclaim with this floor, or a higher one where superseded chunks lie.

        Errors: as `collect`.
        """
        superseded = garbage.superseded_chunks(self.shards.group_state(group))
        if not garbage.raise_floor(self.shards, group, floor, superseded):
            return ()
        scan = self._scans.setdefault(group, Scan())
        if floor:
            self._scan(group, scan)
        chunks = {**scan.alive, **{chunk.key: chunk for chunk in superseded}}
        tombstoned = garbage.tombstone(self.shards, group, chunks.values())
        for chunk in tombstoned:
            scan.alive.pop(chunk.key, None)
        if floor:
            self._note(group, scan)
        return tombstoned

    def ends(self, group: str) -> Floor:
        """Return the end offsets of a group's data topic."""
        topic = self.shards.names(group).data
        ends = self.records.ends(topic)
        return {partition: offsets.high for partition, offsets in ends.items()}

    def _polite_floor(self, group: str) -> Floor:
        """Return the end of the topic `grace_ms` ago, if known."""
        scan, now = self._scans.setdefault(group, Scan()), self.now_ms()
        if scan.ends_at_ms is not None and now - scan.ends_at_ms < self.grace_ms:
            return {}
        floor = {} if scan.ends_at_ms is None else scan.ends
        scan.ends, scan.ends_at_ms = self.ends(group), now
        return floor

    def _scan(self, group: str, scan: Scan) -> None:
        """Continue the scan of the data topic, up to the floor."""
        topic = self.shards.names(group).data
        ends = self.records.ends(topic)
        self._resume(topic, scan, ends)
        for partition, floor in self.shards.group_state(group).floor.items():
            if partition not in ends:
                continue
            low, high = ends[partition]
            position = max(scan.position.get(partition, 0), low)
            while position < min(floor, high):
                stop = Offset(min(floor, high))
                table = self.records.fetch(topic, partition, Offset(position), stop, AT_ONCE)
                note(scan.alive, table)
                full = table.num_rows >= AT_ONCE
                position = table.column("offset")[-1].as_py() + 1 if full else stop
                scan.position[partition] = position

    def _resume(self, topic: Topic, scan: Scan, ends: Mapping[int, OffsetRange]) -> None:
        """Start from the position of the last process, if it is known and recent."""
        if scan.noted is not None:
            return
        now, scan.noted = self.now_ms(), {}
        if self.positions is not None:
            try:
                scan.noted = self.positions.load(topic, len(ends))
            except SlackwaterError as error:  # it saves work; correctness does not depend on it
                cause = {"topic": topic, "cause": str(error)}
                log.warning("a data topic is read from its start", extra=cause)
        for partition, end in ends.items():
            noted = scan.noted.get(partition)
            scan.since_ms[partition] = now
            if noted is None or noted.offset > end.high or now - noted.since_ms >= RESCAN_MS:
                continue
            scan.position[partition], scan.since_ms[partition] = noted.offset, noted.since_ms

    def _note(self, group: str, scan: Scan) -> None:
        """Save the position for the next process: before all staged chunks."""
        if self.positions is None:
            return
        reached = dict(scan.position)
        for stage in self.shards.group_state(group).stages.values():
            for chunk in stage.chunks:
                reached[chunk.partition] = min(reached.get(chunk.partition, 0), chunk.offset)
        now = self.now_ms()
        positions = {  # a topic may be extended
            partition: Position(Offset(offset), scan.since_ms.setdefault(partition, now))
            for partition, offset in reached.items()
            if partition in scan.position
        }
        moved = {
            n: position
            for n, position in positions.items()
            if (scan.noted or {}).get(n) != position
        }
        if not moved:
            return
        try:
            self.positions.save(self.shards.names(group).data, moved)
        except SlackwaterError as error:
            cause = {"group": group, "cause": str(error)}
            log.warning("cannot save the position in a data topic", extra=cause)
        scan.noted = positions


def key_text(key: bytes) -> str:
    """Return a record's key as text, as in references: one text for each key.

    Any client may write any key. One that is not UTF-8 is in no reference: it is garbage.
    """
    return key.decode(errors=KEY_ERRORS)


def note(alive: dict[str, ChunkRef], table: pa.Table) -> None:
    """Add the chunks of a range of the topic; remove those with a tombstone."""
    sizes = pc.binary_length(table.column("value")).to_pylist()
    keys = table.column("key").to_pylist()
    places = zip(
        table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True
    )
    for key, size, (partition, offset) in zip(keys, sizes, places, strict=True):
        if key is None:  # not a chunk, and no tombstone could name it
            continue
        name = key_text(key)
        if size is None:
            alive.pop(name, None)
        else:
            alive[name] = ChunkRef(partition, Offset(offset), name, 0, 0, size)
