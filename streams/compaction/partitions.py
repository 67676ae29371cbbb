"""The number of partitions of a group's data topic. Pure.

Most collections are small, and a partition costs brokers two memory maps, one or two file
handles and time in every scan of all partitions. So a data topic begins with one, and is
extended as it grows: then several brokers, and several reading tasks, share the work. A
reference has its chunk's partition, so existing chunks stay where they are.
"""

from streams.compaction import chunk_sizes
from streams.storage.log.state import State

BYTES_OF_ONE = 1 << 30
"""Bytes in a data topic for each of its partitions."""

MOST = 8
"""Automatic limit of partitions; an operator may add more."""


def wanted(state: State) -> int:
    """Return the number of partitions for the chunks that the group names now."""
    return min(MOST, 1 + chunk_sizes.total(state.chunks()) // BYTES_OF_ONE)
