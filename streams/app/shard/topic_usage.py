"""The usage of a group's data topic, and its share of garbage. Pure.

    live         linked by a batch
    staged       protected by a lease, to be linked
    rollup       the state itself, as the log's last two Rollups wrote it
    superseded   taken out by compaction or a drop; named until every reader's plan has passed
    deleted      a tombstone follows: the broker removes it in its own time
    orphan       not named: a writer died before its Append, or is about to make it

Garbage is what is superseded, deleted or orphaned. The first four are known from the log; the
last two take a scan of the data topic, which reads all of it. All shards of a group share its
topics, so garbage belongs to the group.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from streams.app.shard.shard_info import Size, linked, size_of
from streams.kafka.log import ChunkRef
from streams.storage.log.state import State

SCAN_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("size", pa.int64()),
    ]
)
"""A scan: where each record of the data topic lies, its key, the bytes of its value.

A tombstone's size is null.
"""

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Results of a scan. `missing` are chunks that the log names and the topic lacks."""

    deleted: Size
    orphan: Size
    tombstones: int
    missing: tuple[ChunkRef, ...]


@dataclass(frozen=True, slots=True)
class TopicUsage:
    """The usage of a data topic; `scanned` is None without a scan."""

    live: Size
    staged: Size
    rollup: Size
    superseded: Size
    scanned: ScanResult | None = None

    @property
    def garbage_bytes(self) -> int:
        """Bytes that are not needed, of what was scanned."""
        total = self.superseded.bytes
        if self.scanned is not None:
            total += self.scanned.deleted.bytes + self.scanned.orphan.bytes
        return total

    @property
    def total_bytes(self) -> int:
        """All bytes, as far as we looked."""
        return self.live.bytes + self.staged.bytes + self.rollup.bytes + self.garbage_bytes

    @property
    def garbage_share(self) -> float:
        """The garbage among all bytes, from 0 to 1; 0 of nothing."""
        return self.garbage_bytes / self.total_bytes if self.total_bytes else 0.0


def space_of(state: State) -> TopicUsage:
    """The usage known from the log. A chunk named several times counts for its first holder."""
    seen: set[ChunkRef] = set()

    def first(chunks: Iterable[ChunkRef]) -> Size:
        fresh = set(chunks) - seen
        seen.update(fresh)
        return size_of(fresh)

    return TopicUsage(
        live=first(
            ref for collection in state.collections.values() for ref in linked(collection)
        ),
        staged=first(ref for stage in state.stages.values() for ref in stage.chunks),
        rollup=first(ref for rollup in state.rollups for ref in rollup.chunks),
        superseded=first(ref for batch in state.superseded for ref in batch.chunks),
    )


def with_scan(state: State, records: pa.Table, ends: Mapping[int, int]) -> TopicUsage:
    """The usage from the log and a scan.

    Shape: `records` as `SCAN_SCHEMA`, in the order of offsets within each partition; the scan
    covers each partition up to its offset in `ends`. `state` was folded after the ends were
    taken, so that whatever was linked before is known.
    """
    named = {(ref.partition, ref.offset): ref for ref in state.chunks()}
    columns = [records.column(name).to_pylist() for name in SCAN_SCHEMA.names]
    dead: dict[tuple[int, bytes], int] = {}
    for partition, offset, key, size in zip(*columns, strict=True):
        if size is None:
            dead[partition, key] = offset
    here: set[Place] = set()
    deleted: list[int] = []
    orphans: list[int] = []
    for partition, offset, key, size in zip(*columns, strict=True):
        if size is None:
            continue
        if (partition, offset) in named:
            here.add((partition, offset))
        elif dead.get((partition, key), -1) > offset:
            deleted.append(size)
        else:
            orphans.append(size)
    missing = [
        ref
        for place, ref in sorted(named.items())
        if place not in here and ref.offset < ends.get(ref.partition, 0)
    ]
    base = space_of(state)
    scanned = ScanResult(_counted(deleted), _counted(orphans), len(dead), tuple(missing))
    return TopicUsage(base.live, base.staged, base.rollup, base.superseded, scanned)


def _counted(sizes: list[int]) -> Size:
    """Chunks whose rows are not known: only the log says how many there are."""
    return Size(len(sizes), 0, sum(sizes))
