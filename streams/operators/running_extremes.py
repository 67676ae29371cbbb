"""Running max, min and first value: the rows that decide them, and how far a change is felt.

A row of a group whose value is greater than all values before it is a *record*: it determines
the running max from there to the next record. (The running min is symmetric, and the first
value is the min of the rows' own order.) The state has the records of each group, as rows: the
row that determines the running max at a place is the last record before it, found by search.

A row that is inserted or deleted affects the rows behind it up to the first row with a value at
least as great: their outputs change, unless more rows change with it. Rows that exist in the
whole interval are *steady*. A change of a lesser value before a steady record does not affect
the rows behind that record. So of a gap between touched rows only the rows are read up to the
first steady row whose value is at least that of the touched rows before the gap.

Cost: O(log n) places of the records for each touched row, and the rows that feel its change.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.operators.interesting_times import InterestingTimes
from streams.operators.min_max import stored_type
from streams.operators.ordered_groups import CandidateRows, ChangedRows, arrangement_rows
from streams.plan.window_frames import RunningExtreme
from streams.trace.arrange import order
from streams.trace.arrange.first_rows import Gaps, Leading, first_rows_in_ranges
from streams.trace.arrange.runs import Run
from streams.trace.columns import Flags, Ints
from streams.trace.kernel.kernel import Kernel

NOTHING = -1
"""The rank of what decides nothing."""


def name(number: int) -> str:
    """The arrangement of the records of an extreme."""
    return f"records{number}"


def deciding_values(
    extreme: RunningExtreme, columns: Sequence[pa.Array], sort_keys: pa.Array
) -> pa.Array:
    """The values that an extreme compares, one for each row of these columns."""
    return sort_keys if extreme.function == "first" else columns[extreme.argument]


def ranks(extreme: RunningExtreme, values: pa.Array, kernel: Kernel) -> Ints:
    """The rank of each value, from 0 on; the greatest rank wins. `NOTHING` for NULL."""
    values = values.cast(stored_type(values.type))
    result = np.full(len(values), NOTHING, np.int64)
    valid = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    if len(valid):
        some = order.comparable(values.take(pa.array(valid)), kernel)
        dense = np.unique(order.ranks(some), return_inverse=True)[1]
        result[valid] = dense if extreme.function == "max" else dense.max() - dense
    return result


@dataclass(frozen=True, slots=True)
class RunningRanks:
    """The greatest rank so far at each place, within each stretch of places.

    `which` is the stretch of each place. `upto` is `which * size` + rank + 1, which ascends;
    `size` is greater than any rank + 1.
    """

    which: Ints
    upto: Ints
    size: int

    def reaching(self, places: Ints, rank: Ints) -> Ints:
        """The first place with at least this rank so far in the same or a later stretch."""
        wanted = self.which[places] * self.size + rank + 1
        return np.searchsorted(self.upto, wanted)

    def before(self, places: Ints) -> Ints:
        """The place of the record before each of these places; -1 for none."""
        previous = np.maximum(places - 1, 0)
        code, own = self.upto[previous], self.which[places]
        is_decided = (places > 0) & (code > own * self.size)
        return np.where(is_decided, np.searchsorted(self.upto, code), -1)

    def at(self) -> Ints:
        """The greatest rank so far at each place, or `NOTHING`."""
        result: Ints = self.upto - self.which * self.size - 1
        return result


def running_ranks(which: Ints, rank: Ints, there: Flags) -> RunningRanks:
    """The greatest rank so far at each place, over the rows that exist (`there`).

    `which` is the group of each place and ascends; all arrays have one entry a place.
    """
    size = int(rank.max(initial=0)) + 2
    own = np.where(there, rank + 1, 0)
    return RunningRanks(which, np.maximum.accumulate(which * size + own), size)


def deciding_before(
    runs: Sequence[Run], changed: ChangedRows, starts: pa.Array, steady: Flags, kernel: Kernel
) -> Leading:
    """The last record before each touched row's start, a sort key, if that record is steady.

    `starts` and `steady` have one entry a touched row; rows without such a record have none in
    the result.
    """
    moments, owner = changed.moments, changed.touched.owner
    forms = [form.take(pa.array(owner)) for form in moments.forms]
    gaps = Gaps(forms, moments.hashes[owner], pa.nulls(len(owner), starts.type), starts)
    wanted = np.ones(len(owner), np.int64)
    some = first_rows_in_ranges(runs, gaps, wanted, kernel, last=True)
    if some is None:
        none = np.empty(0, np.int64)
        return Leading(none, changed.stored(none, none), none)
    which, nearest = np.unique(some.which, return_index=True)
    leading = some.choose(nearest, which)
    kept = np.flatnonzero(~_among(leading, changed, np.flatnonzero(~steady)))
    return leading.choose(kept, which[kept])


def _among(records: Leading, changed: ChangedRows, entries: Ints) -> Flags:
    """Whether each of the records, found for touched rows, is one of the touched `entries`."""
    touched = changed.touched
    own = touched.values.take(pa.array(touched.place[entries]))
    rank = order.ranks(pa.concat_arrays([own, records.rows.column("v")]))
    owner = np.concatenate((touched.owner[entries], touched.owner[records.which]))
    code = owner * (len(rank) + 1) + rank
    is_among: Flags = np.isin(code[len(entries) :], code[: len(entries)])
    return is_among


@dataclass(frozen=True, slots=True)
class FeltGaps:
    """The gaps (`felt`) whose rows are affected by changes before them.

    `first` is the number of affected rows of each gap: the index of its first unaffected row.
    """

    felt: Flags
    first: Ints


@dataclass(frozen=True, slots=True)
class Influence:
    """Changes, and the gaps between the touched rows (`affected_rows`).

    `owner` has the group of each gap, `begins` the gap that begins with each touched row, and
    `steady` whether that row exists in the whole interval. `deciding` has, for each extreme,
    the steady records before touched rows, by the number of the touched row.
    """

    extremes: Sequence[RunningExtreme]
    changed: ChangedRows
    owner: Ints
    begins: Ints
    steady: Flags
    deciding: Sequence[Leading]
    kernel: Kernel

    def felt(self, near: Sequence[Leading], ahead: Sequence[Leading]) -> FeltGaps:
        """The gaps that a change affects, as far as the given rows show.

        Args:
            near: rows at the ends of gaps, by gap.
            ahead: rows from the beginnings of gaps on, by gap, in order.
        """
        felt, first = np.zeros(len(self.owner), np.bool_), np.zeros(len(self.owner), np.int64)
        for extreme, records in zip(self.extremes, self.deciding, strict=True):
            own, before, behind = self._ranks(extreme, records, (*near, *ahead))
            level = self._running([(self.begins[~self.steady], own[~self.steady])])
            steady = [(self.begins[self.steady], own[self.steady])]
            steady.append((self.begins[records.which], before))
            places = [some.which for some in (*near, *ahead)]
            steady += [
                (self._next(gap), rank) for gap, rank in zip(places, behind, strict=True)
            ]
            feels = level > self._running(steady)
            felt |= feels
            level = np.where(feels, level, NOTHING)
            rows = places[len(near) :], behind[len(near) :]
            first = np.maximum(first, _first_reaching(level, *map(_joined, rows)))
        return FeltGaps(felt, first)

    def _ranks(
        self, extreme: RunningExtreme, records: Leading, others: Sequence[Leading]
    ) -> tuple[Ints, Ints, list[Ints]]:
        """The ranks of the touched rows, of records, and of other rows."""
        touched, at = self.changed.touched, pa.array(self.changed.touched.place)
        width = len(self.changed.moments.keys)
        own = deciding_values(extreme, self.changed.rows.columns, touched.values).take(at)
        parts = [own]
        for some in (records, *others):
            columns, keys = some.rows.columns[2 + width : -1], some.rows.column("v")
            parts.append(deciding_values(extreme, columns, keys))
        every = ranks(extreme, pa.concat_arrays(parts), self.kernel)
        own_rank, before, *behind = np.split(every, np.cumsum([len(part) for part in parts]))
        return own_rank, before, behind[: len(others)]

    def _next(self, gap: Ints) -> Ints:
        """The next gaps of the same groups, or a place behind all."""
        behind = np.minimum(gap + 1, len(self.owner) - 1)
        is_last = (gap + 1 > behind) | (self.owner[behind] != self.owner[gap])
        return np.where(is_last, len(self.owner), gap + 1)

    def _running(self, parts: Sequence[tuple[Ints, Ints]]) -> Ints:
        """The greatest rank of these up to each gap of a group."""
        greatest = np.full(len(self.owner) + 1, NOTHING, np.int64)
        for gap, rank in parts:
            np.maximum.at(greatest, gap, rank)
        there = np.ones(len(self.owner), np.bool_)
        return running_ranks(self.owner, greatest[:-1], there).at()


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *parts])


def numbers_within(which: Ints) -> Ints:
    """The number of each element among those of the same `which`, in their order."""
    by_which = np.argsort(which, kind="stable")
    begin = order.starts([which[by_which]])
    sizes = np.diff(np.append(begin, len(which)))
    result = np.empty(len(which), np.int64)
    result[by_which] = np.arange(len(which)) - np.repeat(begin, sizes)
    return result


def _first_reaching(level: Ints, which: Ints, rank: Ints) -> Ints:
    """The number of the first row of each gap with a rank of its level; of rows, if none."""
    first = np.bincount(which, minlength=len(level))
    reached = np.flatnonzero(rank >= level[which])
    np.minimum.at(first, which[reached], numbers_within(which)[reached])
    return first


def record_changes(
    rank: Ints, candidates: CandidateRows, moments: InterestingTimes
) -> pa.RecordBatch:
    """The records of an extreme that come and go, as rows of the arrangement."""
    every = np.arange(len(candidates.owner))
    after = candidates.counts(every, moments.last[candidates.owner])
    is_record = [
        _records(candidates.owner, rank, counts > 0).astype(np.int64)
        for counts in (candidates.base, after)
    ]
    change = is_record[1] - is_record[0]
    moved = np.flatnonzero(change)
    data = candidates.rows, candidates.values
    return arrangement_rows(moments, candidates.owner[moved], data, moved, change[moved])


def _records(owner: Ints, rank: Ints, there: Flags) -> Flags:
    """The rows that decide from themselves on; rows are sorted by owner and order."""
    running = running_ranks(owner, rank, there)
    new = np.ones(len(owner), np.bool_)
    new[1:] = running.upto[1:] != running.upto[:-1]
    result: Flags = new & there & (rank > NOTHING)
    return result
