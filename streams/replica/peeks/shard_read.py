"""Reads the rows of a peek from the shard of its target, through `streams.storage.read`."""

from dataclasses import dataclass

import pyarrow as pa

from streams.compute.peeks import Peek
from streams.errors import InvalidUsage
from streams.kafka.log import ChunkRef
from streams.replica.peeks.evaluation import keys_of, matching
from streams.storage.client.shards import Shards
from streams.storage.read.reader import Loaded, snapshot
from streams.trace.kernel.kernel import Kernel


@dataclass(slots=True)
class PeekSelection:
    """The rows of some keys, chunk by chunk (`storage.read.ChunkSelection`); None is all.

    They have `most_bytes` bytes at most.
    """

    columns: tuple[int, ...]
    keys: pa.RecordBatch | None
    types: list[str]
    kernel: Kernel
    most_bytes: int
    taken: int = 0

    def may_match(self, _: ChunkRef) -> bool:
        """Return True; a load asks it of all chunks first, so what came before is gone."""
        self.taken = 0
        return True

    def apply(self, updates: pa.Table) -> pa.Table:
        """Return the rows that are looked up. Errors: InvalidUsage when they are too many."""
        if self.keys is not None:
            matches = matching(updates, self.columns, self.keys, self.types, self.kernel)
            updates = pa.Table.from_batches([matches])
        self.taken += updates.nbytes
        if self.taken > self.most_bytes:
            most = self.most_bytes >> 20
            raise InvalidUsage(f"a peek of a shard reads at most {most} MiB, this one more")
        return updates


def read_shard(
    shards: Shards, peek: Peek, types: list[str], kernel: Kernel, most_bytes: int
) -> Loaded:
    """Return what the shard holds at the time of the peek: updates and errors.

    `most_bytes` of rows are held in memory.

    Errors: SinceViolation if since passes the time meanwhile; InvalidUsage for too many rows;
    PeekRefused.
    """
    lookup = peek.lookup
    keys = None if lookup is None else keys_of(lookup, types)
    columns = () if lookup is None else lookup.columns
    selection = PeekSelection(columns, keys, types, kernel, most_bytes)
    return snapshot(shards, peek.target.collection, peek.time, selection=selection)
