"""How many partitions a group's data topic should have. Pure.

Most collections are small, and a partition costs brokers two memory maps, a file handle or two
and a share of every look at all of them. So a data topic begins with one, and gets more as it
comes to hold much: then several brokers, and several tasks that read it, share the work. Chunks
are found by the partition that they were written to: where they are they stay.
"""

from streams.compaction import measure
from streams.storage.state import State

BYTES_OF_ONE = 1 << 30
"""What a data topic holds for each of its partitions."""

MOST = 8
"""A topic does not grow beyond so many by itself; an operator may give it more."""


def wanted(state: State) -> int:
    """The partitions for what the group names now."""
    return min(MOST, 1 + measure.total(state.chunks()) // BYTES_OF_ONE)
