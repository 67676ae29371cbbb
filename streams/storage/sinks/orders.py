"""Orders of updates: by the hash of their key, then time, then diff. All are stable.

Words are sorted faster than their order is found (`streams.trace.columns.ascending`), and so
are times, of which the place fits into the bits that they do not use. What is sorted already
stays as it is, at the cost of a look.
"""

import numpy as np

from streams.trace.columns import Ints, Words, ascending

_WORD_BITS = 64


def by_hash_and_time(hashes: Words, times: Ints) -> Ints:
    """The order of updates by (hash, time)."""
    if _is_ordered(hashes, times):
        return np.arange(len(hashes))
    return _by_hash(hashes, by_value(times))


def by_hash_time_and_diff(hashes: Words, times: Ints, diffs: Ints) -> Ints:
    """The order of updates by (hash, time, diff)."""
    if _is_ordered(hashes, times, diffs):
        return np.arange(len(hashes))
    of_diffs = by_value(diffs)
    return _by_hash(hashes, of_diffs[by_value(times[of_diffs])])


def by_value(values: Ints) -> Ints:
    """The order of integers."""
    if (values[1:] >= values[:-1]).all():
        return np.arange(len(values))
    least = int(values.min())
    place_bits = (len(values) - 1).bit_length()
    if (int(values.max()) - least).bit_length() + place_bits > _WORD_BITS:
        return np.argsort(values, kind="stable")
    packed = (values - np.int64(least)).view(np.uint64) << np.uint64(place_bits)
    packed |= np.arange(len(values), dtype=np.uint64)
    packed.sort()
    order: Ints = (packed & np.uint64((1 << place_bits) - 1)).view(np.int64)
    return order


def _is_ordered(*columns: Words | Ints) -> bool:
    """Whether rows of these columns are sorted already."""
    ties = np.ones(max(len(columns[0]) - 1, 0), np.bool_)
    for column in columns:
        before, after = column[:-1], column[1:]
        if (ties & (after < before)).any():
            return False
        ties &= after == before
    return True


def _by_hash(hashes: Words, order: Ints) -> Ints:
    """The order by hash of updates that are ordered otherwise already."""
    return order[ascending(hashes[order])]
