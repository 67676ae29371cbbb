"""The contents of changed groups before the interval and at each of its times.

A *pair* is a group and one of these times. For a group of B rows that changes at T times the
contents of all pairs are B * (T + 1) rows: the cost of functions that can only be recomputed
(rule 36). So pairs are formed in chunks of bounded size. A pair has each row as often as its
multiplicity at that time.

    rows of pair (g, t) = { row of g, count(row, t) times }
    count(row, t)       = its count before the interval + its changes up to t

State: the rows of each group (`trace.arrange.multiset`). Cost: O(rows of the changed groups *
times).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.operators.context import EngineCall
from streams.operators.interesting_times import InterestingTimes
from streams.trace.arrange import multiset, order
from streams.trace.arrange.runs import RunName
from streams.trace.columns import Ints, group, int64, key_form, spans
from streams.trace.exact.diffs import add_diffs, repeat_positions, running_values, sum_at, sums
from streams.trace.kernel.kernel import Kernel

LARGEST_CHUNK = 1 << 18
"""Rows of pairs that are evaluated at once, unless one pair has more."""


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """The pairs of each group one after the other: before the interval, then its moments.

    `owner` has the group of each pair, `moment` its moment, or -1 for before the interval.
    """

    moments: InterestingTimes
    owner: Ints
    moment: Ints

    @property
    def places(self) -> Ints:
        """The pair of each group before the interval, then that of each moment."""
        first, owner = self.moments.bounds[0], self.moments.owner
        before = first + np.arange(len(first))
        return np.concatenate((before, np.arange(len(owner)) + owner + 1))


def pairs_of(moments: InterestingTimes) -> GroupTimes:
    """The pairs of all groups."""
    first, end = moments.bounds
    owner = np.repeat(np.arange(len(first)), end - first + 1)
    moment = np.arange(len(owner)) - owner - 1
    moment[first + np.arange(len(first))] = -1
    return GroupTimes(moments, owner, moment)


@dataclass(frozen=True, slots=True)
class GroupContents:
    """The distinct rows of the changed groups, with their counts and changes.

    An entry is a distinct row of a group: entry i is row i of `rows`, belongs to group
    `owner[i]` (ascending) and was there `base[i]` times. After change j, at moment `moment[j]`,
    entry `entry[j]` has been changed by `sums[j]` in all; sorted by entry, then moment.
    """

    pairs: GroupTimes
    rows: pa.RecordBatch
    owner: Ints
    base: Ints
    entry: Ints
    moment: Ints
    sums: Ints

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Ranges of pairs whose contents are no more than a chunk, or a single pair."""
        owner = self.pairs.owner
        sizes = np.bincount(self.owner, minlength=len(self.pairs.owner))[owner]
        ends, start = np.cumsum(sizes), 0
        while start < len(owner):
            before = int(ends[start - 1]) if start else 0
            end = int(np.searchsorted(ends, before + LARGEST_CHUNK, "right"))
            end = max(end, start + 1)
            yield start, end
            start = end

    def at(self, start: int, end: int) -> tuple[pa.RecordBatch, Ints]:
        """The rows of the pairs [start, end), and which pairs have a count below 0.

        Before the data come `p`, the pair's number less `start`, and `i`, which numbers equal
        rows of a pair.
        """
        pairs = self.pairs
        owner = pairs.owner[start:end]
        first = np.searchsorted(self.owner, owner)
        sizes = np.searchsorted(self.owner, owner, "right") - first
        entry, pair = spans(first, sizes), np.repeat(np.arange(end - start), sizes)
        counts = self._counts(entry, pairs.moment[start:end][pair])
        negative = np.unique(pair[counts < 0]) + start
        times = np.maximum(counts, 0)
        which = repeat_positions(times)
        equal = pa.array(spans(np.zeros(len(times), np.int64), times))
        data = self.rows.take(pa.array(entry[which])).columns
        columns = [pa.array(pair[which]), equal, *data]
        names = ["p", "i", *self.rows.schema.names]
        return pa.RecordBatch.from_arrays(columns, names=names), negative

    def _counts(self, entry: Ints, moment: Ints) -> Ints:
        """The count of each entry after a moment; -1 stands for before the interval."""
        if not len(self.entry):
            return self.base[entry]
        size = len(self.pairs.owner)
        codes = self.entry * size + self.moment
        place = np.searchsorted(codes, entry * size + moment, "right") - 1
        met = (place >= 0) & (self.entry[place] == entry)
        return add_diffs(self.base[entry], np.where(met, self.sums[place], 0))


def schema(keys: Sequence[pa.DataType], data: Sequence[pa.Field]) -> pa.Schema:
    """The schema of changes of groups with these keys: `k0 ..`, the data, `time`, `diff`."""
    named = [pa.field(f"k{index}", kind) for index, kind in enumerate(keys)]
    more = [pa.field("time", pa.int64()), pa.field("diff", pa.int64())]
    return pa.schema([*named, *data, *more])


def of_changes(
    rows: pa.RecordBatch,
    width: int,
    moments: InterestingTimes,
    names: Sequence[RunName],
    scope: EngineCall,
) -> tuple[GroupContents, list[RunName]]:
    """The contents of the groups, and the runs with the changes added.

    Args:
        rows: changes: the keys, `width` of them, the data, time, diff. Every key and time is
            one of the moments.
        width: the number of keys.
        moments: the moments.
        names: the runs of the rows of all groups.
        scope: the worker's means.
    """
    kernel, files = scope.kernel, scope.context.files
    shape = pa.schema(list(rows.schema)[:-2])
    stored = multiset.candidates(
        files.open(names), np.unique(moments.hashes), multiset.schema(shape)
    )
    old = _owners(stored.columns[1 : 1 + width], stored.num_rows, moments, kernel)
    stored, old = stored.take(pa.array(np.flatnonzero(old >= 0))), old[old >= 0]
    new = _owners(rows.columns[:width], rows.num_rows, moments, kernel)
    moment = moments.places(new, int64(rows.column("time")))
    both = _data(stored.columns[1:-1], rows.columns[:-2], width, shape)
    entries = _entries(both, np.concatenate((old, new)), kernel)
    base = sum_at(entries.ids[: len(old)], len(entries.owner), int64(stored.column("diff")))
    entry, at, sums = _changes(entries.ids[len(old) :], moment, int64(rows.column("diff")))
    hashes = pa.array(moments.hashes[new])
    added = [hashes, *rows.columns[:-2], rows.column("diff")]
    added_rows = pa.RecordBatch.from_arrays(added, schema=multiset.schema(shape))
    runs = multiset.insert(files, names, added_rows, kernel)
    pairs = pairs_of(moments)
    return GroupContents(pairs, entries.rows, entries.owner, base, entry, at, sums), runs


def _owners(
    columns: Sequence[pa.Array], rows: int, moments: InterestingTimes, kernel: Kernel
) -> Ints:
    """The number of each row's key; -1 for a key that only shares a hash with one of these."""
    forms = [key_form(column, kernel) for column in columns]
    if not forms:
        return np.zeros(rows, np.int64)
    both = [pa.concat_arrays([a, b]) for a, b in zip(moments.forms, forms, strict=True)]
    ids = group(both, len(both[0])).ids[len(moments.hashes) :]
    return np.where(ids < len(moments.hashes), ids, -1)


def _data(
    old: Sequence[pa.Array], new: Sequence[pa.Array], width: int, shape: pa.Schema
) -> pa.RecordBatch:
    """The data columns of both, one below the other."""
    pairs = list(zip(old, new, strict=True))[width:]
    arrays = [pa.concat_arrays([left, right]) for left, right in pairs]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(shape)[width:]))


@dataclass(frozen=True, slots=True)
class _Entries:
    """Distinct rows by owner, and which of them each row is."""

    rows: pa.RecordBatch
    owner: Ints
    ids: Ints


def _entries(rows: pa.RecordBatch, owner: Ints, kernel: Kernel) -> _Entries:
    forms = [key_form(column, kernel) for column in rows.columns]
    groups = group([owner, *forms], len(owner))
    owners = owner[groups.first]
    by_owner = np.argsort(owners, kind="stable")
    number = np.empty(len(by_owner), np.int64)
    number[by_owner] = np.arange(len(by_owner))
    chosen = pa.array(groups.first[by_owner])
    return _Entries(rows.take(chosen), owners[by_owner], number[groups.ids])


def _changes(entry: Ints, moment: Ints, diffs: Ints) -> tuple[Ints, Ints, Ints]:
    """The changes by entry and moment, each with the sum of the entry's changes so far."""
    places, starts = order.sort([entry, moment])
    net = sums(diffs[places], starts)
    entry, moment = entry[places[starts]], moment[places[starts]]
    begin = order.starts([entry])
    return entry, moment, running_values(net, begin, np.zeros(len(begin), np.int64))
