"""Updates in the order of their keys, and what is left of them when equal rows cancel."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.storage.sinks.orders import by_hash_time_and_diff
from streams.storage.sinks.sink import Flags, Hashes, Integers
from streams.trace.columns import equal_rows, group, int64, key_form
from streams.trace.exact.diffs import sum_by
from streams.trace.kernel.kernel import Kernel
from streams.trace.updates import DIFF, TIME, hash_columns


@dataclass(frozen=True, slots=True)
class KeyedUpdates:
    """Updates by the hash of their key, then time.

    `positions` are those of their rows; `keys` the columns of the key, of which equal hashes
    are of equal ones.
    """

    rows: pa.RecordBatch
    keys: Sequence[int]
    positions: Integers
    hashes: Hashes
    times: Integers
    diffs: Integers

    @classmethod
    def of(cls, rows: pa.RecordBatch, keys: Sequence[int], kernel: Kernel) -> "KeyedUpdates":
        """Of a batch of updates (c0 .. cn, time, diff)."""
        hashes = hash_columns(rows, keys, kernel)
        times, diffs = int64(rows.column(TIME)), int64(rows.column(DIFF))
        order = by_hash_time_and_diff(hashes, times, diffs)
        return cls(rows, keys, order, hashes[order], times[order], diffs[order])

    def at(self, times: Integers) -> "KeyedUpdates":
        """The updates at other times, without those whose time is -1.

        Of two updates of a key the time of the later one is not before that of the other.
        """
        if (times == self.times).all():
            return self
        kept = np.flatnonzero(times >= 0)
        return self._some(kept, times[kept], self.diffs[kept])

    def consolidated(self, kernel: Kernel) -> "KeyedUpdates":
        """One update for each (row, time), and none whose diff is zero.

        Only updates with one key and time can be of one row. Of those there are mostly two, a
        row that goes and one that comes, which are compared; the others are grouped.
        Errors: DiffOverflow.
        """
        suspects = self._suspects(kernel)
        if not suspects.any():
            return self
        places = np.flatnonzero(suspects)
        rows = self.rows.take(pa.array(self.positions[places]))
        columns = [key_form(column, kernel) for column in rows.columns[:-2]]
        groups = group([*columns, self.times[places]], len(places))
        totals = sum_by(groups, self.diffs[places])
        diffs = self.diffs.copy()
        diffs[places[groups.first]] = totals
        suspects[places[groups.first[totals != 0]]] = False
        kept = np.flatnonzero(~suspects)
        return self._some(kept, self.times[kept], diffs[kept])

    def _suspects(self, kernel: Kernel) -> Flags:
        """Which updates may be of one row with others, or change nothing."""
        is_new = np.ones(len(self.times), np.bool_)
        is_new[1:] = self.hashes[1:] != self.hashes[:-1]
        is_new[1:] |= self.times[1:] != self.times[:-1]
        starts = np.flatnonzero(is_new)
        sizes = np.diff(np.append(starts, len(is_new)))
        doubtful = sizes > 2  # noqa: PLR2004 a pair
        pairs = np.flatnonzero(sizes == 2)  # noqa: PLR2004 as above
        doubtful[pairs[self._equal_pairs(starts[pairs], kernel)]] = True
        suspects: Flags = np.repeat(doubtful, sizes) | (self.diffs == 0)
        return suspects

    def _equal_pairs(self, firsts: Integers, kernel: Kernel) -> Integers:
        """Of which of these updates the row is equal to that of the next one."""
        equal = np.arange(len(firsts))
        for column in self._by_likely_difference():
            if not len(equal):
                break
            left, right = (
                key_form(column.take(pa.array(self.positions[firsts[equal] + offset])), kernel)
                for offset in (0, 1)
            )
            equal = equal[equal_rows(left, right)]
        return equal

    def _by_likely_difference(self) -> list[pa.Array]:
        """The columns of data: nested ones, which cost most, and those of the key come last."""

        def cost(index: int) -> tuple[bool, bool]:
            return index in self.keys, pa.types.is_nested(self.rows.column(index).type)

        order = sorted(range(self.rows.num_columns - 2), key=cost)
        return [self.rows.column(index) for index in order]

    def _some(self, kept: Integers, times: Integers, diffs: Integers) -> "KeyedUpdates":
        positions, hashes = self.positions[kept], self.hashes[kept]
        return KeyedUpdates(self.rows, self.keys, positions, hashes, times, diffs)
