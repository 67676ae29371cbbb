"""Exchanges: the bucket that each update of a keyed operator's input goes to.

The bucket is a function of the key's hash alone, so equal keys meet. It is taken from the
upper half of the hash by multiplication, while runs are sorted by the whole hash: the rows of
one bucket lie in one range of it.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from streams.trace.columns import Ints, Words
from streams.trace.updates import permute


def bucket_of(hashes: Words, buckets: int) -> Ints:
    """The bucket of each hash, 0 .. buckets - 1."""
    high = hashes >> np.uint64(32)
    result: Ints = ((high * np.uint64(buckets)) >> np.uint64(32)).astype(np.int64)
    return result


def range_of(bucket: int, buckets: int) -> tuple[int, int]:
    """The range [low, high) of the upper halves of hashes whose bucket this is."""
    low, high = (-(-(number << 32) // buckets) for number in (bucket, bucket + 1))
    return low, high


def split(
    rows: pa.RecordBatch, bucket: Ints, buckets: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each bucket that gets any, in their order."""
    if buckets == 1 or not rows.num_rows:
        if rows.num_rows:
            yield 0, rows
        return
    order = np.argsort(bucket.astype(np.uint16), kind="stable")
    cuts = np.searchsorted(bucket[order], np.arange(buckets + 1))
    moved = permute(rows, order)
    for index in range(buckets):
        if cuts[index] < cuts[index + 1]:
            yield index, moved.slice(cuts[index], cuts[index + 1] - cuts[index])


def spread(rows: int, bucket: int | None, buckets: int) -> Ints:
    """The buckets of updates without a key: their own, or equal shares where they have none."""
    if bucket is not None:
        return np.full(rows, bucket, np.int64)
    return np.arange(rows) * buckets // max(rows, 1)
