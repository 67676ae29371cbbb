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
from streams.kafka.client.raw import OffsetRange
from streams.kafka.log import KEY_ERRORS, ChunkRef
from streams.storage.client import maintenance
from streams.storage.client.shards import Shards
from streams.storage.log.events import Reclaim
from streams.storage.log.outcomes import Reclaimed
from streams.storage.log.state import State

log = logging.getLogger(__name__)

RESCAN_MS = 7 * 24 * 3_600_000
"""How long a saved position is valid; then the topic is rescanned for chunks left by crashes.
"""

GRACE_MS = 600_000
"""Time between writing and linking a chunk after which a collector may take it."""

AT_ONCE = 32
"""Chunks of a data topic that are read together; at most about a megabyte each."""

Floor = Mapping[int, int]
"""An offset for each data partition: unnamed chunks below it may be reclaimed."""


class Records(Protocol):
    """Reads a data topic as records; `streams.kafka.client.raw` and its twin in memory."""

    def ends(self, topic: Topic) -> dict[int, OffsetRange]:
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
class Found:
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
    _found: dict[str, Found] = field(default_factory=dict)

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
        state = self.shards.group_state(group)
        superseded = maintenance.candidates(state)
        wanted = raised(state, floor, superseded)
        if wanted or superseded:
            outcome = self.shards.submit([(group, Reclaim(wanted))])[0]
            if not isinstance(outcome, Reclaimed):
                return ()
        found = self._found.setdefault(group, Found())
        if floor:
            self._scan(group, found)
        garbage = self._tombstone(group, found, superseded)
        if floor:
            self._note(group, found)
        return garbage

    def ends(self, group: str) -> Floor:
        """Return the end offsets of a group's data topic."""
        topic = self.shards.names(group).data
        return {partition: each.high for partition, each in self.records.ends(topic).items()}

    def _polite_floor(self, group: str) -> Floor:
        """Return the end of the topic `grace_ms` ago, if known."""
        found, now = self._found.setdefault(group, Found()), self.now_ms()
        if found.ends_at_ms is not None and now - found.ends_at_ms < self.grace_ms:
            return {}
        floor = {} if found.ends_at_ms is None else found.ends
        found.ends, found.ends_at_ms = self.ends(group), now
        return floor

    def _scan(self, group: str, found: Found) -> None:
        """Continue the scan of the data topic, up to the floor."""
        topic = self.shards.names(group).data
        ends = self.records.ends(topic)
        self._resume(topic, found, ends)
        for partition, floor in self.shards.group_state(group).floor.items():
            if partition not in ends:
                continue
            low, high = ends[partition]
            position = max(found.position.get(partition, 0), low)
            while position < min(floor, high):
                stop = Offset(min(floor, high))
                table = self.records.fetch(topic, partition, Offset(position), stop, AT_ONCE)
                note(found.alive, table)
                full = table.num_rows >= AT_ONCE
                position = table.column("offset")[-1].as_py() + 1 if full else stop
                found.position[partition] = position

    def _resume(self, topic: Topic, found: Found, ends: Mapping[int, OffsetRange]) -> None:
        """Start from the position of the last process, if it is known and recent."""
        if found.noted is not None:
            return
        now, found.noted = self.now_ms(), {}
        if self.positions is not None:
            try:
                found.noted = self.positions.load(topic, len(ends))
            except SlackwaterError as error:  # it saves work; correctness does not depend on it
                told = {"topic": topic, "cause": str(error)}
                log.warning("a data topic is read from its start", extra=told)
        for partition, end in ends.items():
            noted = found.noted.get(partition)
            found.since_ms[partition] = now
            if noted is None or noted.offset > end.high or now - noted.since_ms >= RESCAN_MS:
                continue
            found.position[partition], found.since_ms[partition] = noted.offset, noted.since_ms

    def _note(self, group: str, found: Found) -> None:
        """Save the position for the next process: before all staged chunks."""
        if self.positions is None:
            return
        reached = dict(found.position)
        for stage in self.shards.group_state(group).stages.values():
            for chunk in stage.chunks:
                reached[chunk.partition] = min(reached.get(chunk.partition, 0), chunk.offset)
        now = self.now_ms()
        positions = {  # a topic may be extended
            partition: Position(Offset(offset), found.since_ms.setdefault(partition, now))
            for partition, offset in reached.items()
            if partition in found.position
        }
        moved = {
            n: position
            for n, position in positions.items()
            if (found.noted or {}).get(n) != position
        }
        if not moved:
            return
        try:
            self.positions.save(self.shards.names(group).data, moved)
        except SlackwaterError as error:
            told = {"group": group, "cause": str(error)}
            log.warning("cannot save the position in a data topic", extra=told)
        found.noted = positions

    def _tombstone(
        self, group: str, found: Found, superseded: frozenset[ChunkRef]
    ) -> tuple[ChunkRef, ...]:
        """Write tombstones for known chunks that the state does not name."""
        state = self.shards.group_state(group)
        named = {chunk.key for chunk in state.chunks()}
        chunks = {**found.alive, **{chunk.key: chunk for chunk in superseded}}
        garbage = [chunks[key] for key in chunks.keys() - named if is_below(chunks[key], state)]
        garbage.sort(key=lambda chunk: (chunk.partition, chunk.offset))
        if garbage:
            self.shards.chunks.forget(self.shards.names(group).data, garbage)
        for chunk in garbage:
            found.alive.pop(chunk.key, None)
        return tuple(garbage)


def raised(state: State, floor: Floor, superseded: frozenset[ChunkRef]) -> dict[int, int]:
    """The partitions whose floor rises, with the new floor: above all superseded chunks."""
    wanted = dict(floor)
    for chunk in superseded:
        wanted[chunk.partition] = max(wanted.get(chunk.partition, 0), chunk.offset + 1)
    return {
        partition: offset
        for partition, offset in wanted.items()
        if offset > state.floor.get(partition, 0)
    }


def is_below(chunk: ChunkRef, state: State) -> bool:
    """Whether the log prevents every client from linking the chunk later."""
    return chunk.offset < state.floor.get(chunk.partition, 0)


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
