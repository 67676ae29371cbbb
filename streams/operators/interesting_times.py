"""Interesting times of a step: the changed keys, and the times at which each changed.

`keys` and `forms` have one row a key, in canonical and in key form, and `hashes` theirs. Keys
are sorted by their hashes, as in the runs: so runs are searched in one direction, and new state
is written sorted. `owner` and `times` have one entry a moment, a pair (key, time), ordered by
key, then time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.trace.columns import Groups, Ints, Words, ascending, group, hash_keys, key_form
from streams.trace.kernel.kernel import Kernel


@dataclass(frozen=True, slots=True)
class InterestingTimes:
    """See the module."""

    keys: list[pa.Array]
    forms: list[pa.Array]
    hashes: Words
    owner: Ints
    times: Ints

    @property
    def single(self) -> bool:
        """Whether every key has one moment, whose number is then the key's."""
        return len(self.owner) == len(self.hashes)

    @property
    def bounds(self) -> tuple[Ints, Ints]:
        """For each key its first moment, and the one after its last."""
        if self.single:
            return self.owner, self.owner + 1
        first = np.flatnonzero(np.diff(self.owner, prepend=-1))
        return first, np.append(first[1:], len(self.owner))

    @property
    def last(self) -> Ints:
        """For each key its last moment."""
        return self.bounds[1] - 1

    def owners(self, columns: Sequence[pa.Array], rows: int, kernel: Kernel) -> Ints:
        """The number of the key of each row; every key is one of these."""
        forms = [key_form(column, kernel) for column in columns]
        if not forms:
            return np.zeros(rows, np.int64)
        both = [pa.concat_arrays([a, b]) for a, b in zip(self.forms, forms, strict=True)]
        return group(both, len(both[0])).ids[len(self.hashes) :]

    def places(self, owner: Ints, times: Ints) -> Ints:
        """The number of each moment (key, time); every one is one of these."""
        if self.single:
            return owner
        distinct, rank = np.unique(self.times, return_inverse=True)
        mine = self.owner * len(distinct) + rank
        return np.searchsorted(mine, owner * len(distinct) + np.searchsorted(distinct, times))


def of_rows(
    columns: Sequence[pa.Array], times: Ints, kernel: Kernel
) -> tuple[InterestingTimes, Groups]:
    """The moments of rows with these key columns and times, and which rows are at each."""
    forms = [key_form(column, kernel) for column in columns]
    by_key, hashes = _by_hash(group(forms, len(times)), forms)
    first = pa.array(by_key.first)
    keys = [column.take(first) for column in columns]
    forms = [form.take(first) for form in forms]
    owner, chosen, groups = _by_time(by_key, times)
    return InterestingTimes(keys, forms, hashes, owner, chosen), groups


def _by_hash(by_key: Groups, forms: Sequence[pa.Array]) -> tuple[Groups, Words]:
    """The same groups, numbered in the order of their hashes, and these hashes."""
    first = pa.array(by_key.first)
    hashes = hash_keys([form.take(first) for form in forms], by_key.count)
    order = ascending(hashes)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return Groups(number[by_key.ids], by_key.first[order]), hashes[order]


def _by_time(by_key: Groups, times: Ints) -> tuple[Ints, Ints, Groups]:
    """The key and time of each moment, and the rows at each moment."""
    if len(times) and times.min() == times.max():
        return np.arange(by_key.count), times[by_key.first], by_key
    order = np.lexsort((times, by_key.ids))
    owner, sorted_times = by_key.ids[order], times[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (owner[1:] != owner[:-1]) | (sorted_times[1:] != sorted_times[:-1])
    ids = np.empty(len(order), np.int64)
    ids[order] = np.cumsum(new) - 1
    starts = np.flatnonzero(new)
    return owner[starts], sorted_times[starts], Groups(ids, order[starts])
