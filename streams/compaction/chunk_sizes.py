"""Plausible sizes of chunks, from the claims in their references. Pure.

A reference states its chunk's bytes and rows. Both are claims by the writer in a log that any
client may append to: they may be 0, negative or huge. They affect only memory and cost
estimates, never contents; compaction reads them here only, clamped to what a record can hold.
"""

from collections.abc import Iterable

from streams.kafka.log import ChunkRef
from streams.kafka.topics import MAXIMUM_RECORD_BYTES

MOST_EXPANSION = 256
"""Largest expansion of a chunk in memory: the limit of LZ4."""

LEAST_ROW_BYTES = 16
"""A time and a diff."""


def bytes_of(ref: ChunkRef) -> int:
    """Return the bytes of the chunk, from 1 to the largest record."""
    return min(max(ref.size, 1), MAXIMUM_RECORD_BYTES)


def rows_of(ref: ChunkRef) -> int:
    """Return the updates of the chunk, at most as many as its bytes can unpack to."""
    return min(max(ref.rows, 0), bytes_of(ref) * MOST_EXPANSION // LEAST_ROW_BYTES)


def total(refs: Iterable[ChunkRef]) -> int:
    """Return the bytes of chunks."""
    return sum(map(bytes_of, refs))
