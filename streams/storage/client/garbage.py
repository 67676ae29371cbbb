"""Reclaiming chunks, in the two steps that every collector takes.

    raise_floor   a Reclaim in the log: from then on an event that links a chunk below the floor
                  is void, and superseded chunks that no plan reads are named no more
    tombstone     tombstones for chunks below the floor that the state does not name

The log decides, never a clock (rules 7, 10): nothing is deleted before the Reclaim was read
back. A process that dies between the steps leaves chunks behind, which a scan of the data topic
finds (`streams.compaction.collector`).

A floor above chunks of one collection voids what writers of others have written below it and
not linked yet: one that is slow beside a busy one would repeat its step for ever. So where a
group has several, superseded chunks raise no floor, and the scan takes them when it comes past.
"""

from collections.abc import Iterable, Mapping

from streams.kafka.log import ChunkRef
from streams.storage.client.shards import Shards
from streams.storage.log.events import Reclaim
from streams.storage.log.outcomes import Reclaimed
from streams.storage.log.state import State

Floor = Mapping[int, int]
"""An offset for each data partition: unnamed chunks below it may be reclaimed."""


def superseded_chunks(state: State) -> frozenset[ChunkRef]:
    """Return the chunks of replaced batches, which the state names while plans read them."""
    return frozenset(chunk for batch in state.superseded for chunk in batch.chunks)


def raise_floor(shards: Shards, group: str, floor: Floor, chunks: frozenset[ChunkRef]) -> bool:
    """Raise the group's floor to `floor`, and above `chunks` if it has one collection alone.

    False if the Reclaim was void.

    Errors: as `Shards.submit`.
    """
    state = shards.group_state(group)
    rising = raised_floors(state, floor, frozenset() if has_several(state) else chunks)
    if not rising and not chunks:
        return True
    return isinstance(shards.submit([(group, Reclaim(rising))])[0], Reclaimed)


def tombstone(shards: Shards, group: str, chunks: Iterable[ChunkRef]) -> tuple[ChunkRef, ...]:
    """Write tombstones for those chunks that the state does not name; return them in order.

    Errors: as `Chunks.forget`; what is left over is found again by a scan.
    """
    state = shards.group_state(group)
    named = {chunk.key for chunk in state.chunks()}
    unnamed = [chunk for chunk in chunks if chunk.key not in named and is_below(chunk, state)]
    unnamed.sort(key=lambda chunk: (chunk.partition, chunk.offset))
    if unnamed:
        shards.chunks.forget(shards.names(group).data, unnamed)
    return tuple(unnamed)


def raised_floors(state: State, floor: Floor, chunks: frozenset[ChunkRef]) -> dict[int, int]:
    """Return the partitions whose floor rises, with the new floor: above all of `chunks`."""
    rising = dict(floor)
    for chunk in chunks:
        rising[chunk.partition] = max(rising.get(chunk.partition, 0), chunk.offset + 1)
    return {
        partition: offset
        for partition, offset in rising.items()
        if offset > state.floor.get(partition, 0)
    }


def has_several(state: State) -> bool:
    """Whether a group has several collections."""
    return len(state.collections.live) > 1


def is_below(chunk: ChunkRef, state: State) -> bool:
    """Whether the log prevents every client from linking the chunk later."""
    return chunk.offset < state.floor.get(chunk.partition, 0)
