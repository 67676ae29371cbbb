"""How large a chunk may be taken to be. Pure.

A reference says its chunk's bytes and rows. Both are claims of the chunk's writer, which reach
compaction from a log that any client may append to: 0, negative or huge as well. They decide
only about memory and about what is worth its cost, never about contents; so they are read here,
within what a record can be, and nowhere else.
"""

from collections.abc import Iterable

from streams.kafka.log import ChunkRef
from streams.kafka.topics import MAXIMUM_RECORD_BYTES

MOST_EXPANSION = 256
"""How much larger updates are in memory than in their chunk at most: that is where LZ4 ends."""

LEAST_ROW_BYTES = 16
"""A time and a diff."""


def bytes_of(ref: ChunkRef) -> int:
    """The bytes of the chunk: one at least, what a record may have at most."""
    return min(max(ref.size, 1), MAXIMUM_RECORD_BYTES)


def rows_of(ref: ChunkRef) -> int:
    """The updates of the chunk: as many at most as so many bytes can unpack to."""
    return min(max(ref.rows, 0), bytes_of(ref) * MOST_EXPANSION // LEAST_ROW_BYTES)


def total(refs: Iterable[ChunkRef]) -> int:
    """The bytes of chunks."""
    return sum(map(bytes_of, refs))
