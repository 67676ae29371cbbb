"""Rows of groups in order: code shared by `topk` and `windows`.

State holds each group's rows in the order of DuckDB's sort key of the row, each with its
multiplicity (`trace.arrange.ordered`). A change touches some rows; all others, the *core*, are
unchanged. An operator finds the rows of the core that it needs by search. These and the touched
rows are its *candidates*, in order within each group, with their counts at every moment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.operators import min_max
from streams.operators.group_contents import GroupTimes, pairs_of
from streams.operators.interesting_times import InterestingTimes
from streams.operators.linear import source_of
from streams.operators.min_max import AffectedValues
from streams.trace.arrange import keyed, order, ordered
from streams.trace.columns import Flags, Ints, one_array
from streams.trace.exact.diffs import sums
from streams.trace.kernel.kernel import Kernel


def changes(
    order_of: str,
    rows: pa.RecordBatch,
    keys: Sequence[pa.Array],
    types: Sequence[str],
    kernel: Kernel,
) -> pa.RecordBatch:
    """The changes as `extremes.touched` reads them: the value is the row's sort key.

    `order_of` are the arguments of `create_sort_key` over columns of these `types`.
    """
    values = sort_keys_of(order_of, rows, types, kernel)
    shape = min_max.schema([key.type for key in keys], pa.binary())
    return pa.RecordBatch.from_arrays([*keys, values, *rows.columns[-2:]], schema=shape)


def sort_keys_of(
    order_of: str, rows: pa.RecordBatch, types: Sequence[str], kernel: Kernel
) -> pa.Array:
    """The sort keys of updates, whose columns have these `types`."""
    # A key of at most eight bytes would be a BIGINT, but for the text that is nothing.
    key = f"create_sort_key({order_of}, '', 'ASC NULLS LAST')"
    text = f"SELECT {key} AS v FROM {source_of(types)}"
    return one_array(kernel.prepare(text, t=rows.schema).run(rows)["v"]).cast(pa.binary())


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The changed rows: columns of these DuckDB types, time, diff; and what is known of them.

    `base` is how often each entry was there before the interval, and `places` where each is in
    every run.
    """

    rows: pa.RecordBatch
    types: Sequence[str]
    touched: AffectedValues
    places: Sequence[ordered.Positions]
    base: Ints
    moments: InterestingTimes

    def stored(self, entries: Ints, counts: Ints) -> pa.RecordBatch:
        """Some of the touched rows as the sorted arrangement has them; ascending."""
        return _stored(self.rows, self.touched, self.moments, entries, counts)


@dataclass(frozen=True, slots=True)
class UnchangedRows:
    """Rows that no change touches: the group of each, the rows as in the runs, their counts.

    Rows `apart` are read only for the value that they decide; other entries may have them too.
    """

    owner: Ints
    rows: pa.RecordBatch
    counts: Ints
    apart: bool = False


@dataclass(frozen=True, slots=True)
class CandidateRows:
    """Rows of the changed groups, in order within each group.

    Entries, changes and pairs are those of `group_contents.GroupContents`; `values` are the
    sort keys. The changes of entry i are those from `begin[i]` to `begin[i + 1]`. Entries that
    are `apart` are read for what they decide (`running_extremes`), not as neighbours, and the
    `steady` ones exist before the interval and at all times in it.
    """

    pairs: GroupTimes
    rows: pa.RecordBatch
    values: pa.Array
    owner: Ints
    base: Ints
    entry: Ints
    moment: Ints
    sums: Ints
    begin: Ints
    apart: Flags
    steady: Flags

    def counts(self, entry: Ints, moment: Ints) -> Ints:
        """The count of each entry after a moment; -1 stands for before the interval."""
        result: Ints = self.base[entry]
        begin = self.begin[entry]
        changes = self.begin[entry + 1] - begin
        once = np.flatnonzero(changes == 1)  # most rows come or go once, and need no search
        place = begin[once]
        result[once] += np.where(self.moment[place] <= moment[once], self.sums[place], 0)
        often = np.flatnonzero(changes > 1)
        if len(often):
            size = len(self.pairs.owner)
            codes = self.entry * size + self.moment
            wanted = entry[often] * size + moment[often]
            place = np.searchsorted(codes, wanted, "right") - 1
            met = place >= begin[often]
            result[often] += np.where(met, self.sums[place], 0)
        return result


def candidates(
    rows: pa.RecordBatch,
    touched: AffectedValues,
    base: Ints,
    core: Sequence[UnchangedRows],
    moments: InterestingTimes,
) -> CandidateRows:
    """The touched rows and those of the core, sorted by group and value, each once.

    Rows of the core that are apart come behind the others.
    """
    at, width = pa.array(touched.place), len(moments.keys)
    parts = [rows.select(list(range(rows.num_columns - 2))).take(at).columns]
    near = len(base) + sum(len(some.owner) for some in core if not some.apart)
    parts += [some.rows.columns[2 + width : -1] for some in core]
    data = [pa.concat_arrays(columns) for columns in zip(*parts, strict=True)]
    values = pa.concat_arrays([touched.values.take(at), *(s.rows.column("v") for s in core)])
    owner = np.concatenate((touched.owner, *(some.owner for some in core)))
    counts = np.concatenate((base, *(some.counts for some in core)))
    by_value, starts = order.sort([owner, order.ranks(values)], nearly=True)
    chosen = by_value[starts]  # of equal ones the first
    steady = np.concatenate((touched.steady(base), np.ones(len(owner) - len(base), np.bool_)))
    number = np.empty(len(by_value), np.int64)
    number[chosen] = np.arange(len(chosen))
    sums, entry = touched.counts(np.zeros(len(base), np.int64)), number[touched.entry]
    again = np.lexsort((touched.moment, entry))
    names = rows.schema.names[:-2]
    return CandidateRows(
        pairs_of(moments),
        pa.RecordBatch.from_arrays(data, names=names).take(pa.array(chosen)),
        values.take(pa.array(chosen)),
        owner[chosen],
        counts[chosen],
        entry[again],
        touched.moment[again],
        sums[again],
        np.searchsorted(entry[again], np.arange(len(chosen) + 1)),
        chosen >= near,
        steady[chosen],
    )


Wrong = Callable[[Ints, Ints], Flags]
"""From positions of changed rows and their multiplicities to whether they are wrong."""


def negative_rows(
    touched: AffectedValues, base: Ints, moments: InterestingTimes, stored: keyed.Found
) -> Ints:
    """For each pair how many rows of the group have a negative count.

    `stored` has their number before the interval in a column `negative_rows`.
    """
    return count_rows(touched, base, moments, (stored, "below"), lambda _, counts: counts < 0)


def count_rows(
    touched: AffectedValues,
    base: Ints,
    moments: InterestingTimes,
    stored: tuple[keyed.Found, str],
    wrong: Wrong,
) -> Ints:
    """For each pair how many rows of the group are wrong; as `stored` before the interval."""
    after, place = touched.counts(base), touched.place[touched.entry]
    was, now = wrong(place, after - touched.diff), wrong(place, after)
    change = now.astype(np.int64) - was
    at_moment = np.zeros(len(moments.owner), np.int64)
    np.add.at(at_moment, touched.moment, change)
    runs_of_rows, name = stored
    before = runs_of_rows.rows_or_null(name).fill_null(0).to_numpy(zero_copy_only=False)
    first = moments.bounds[0]
    running = np.cumsum(at_moment)
    since = running - (running - at_moment)[first][moments.owner]
    pairs = pairs_of(moments)
    return np.where(pairs.moment < 0, before[pairs.owner], 0) + np.where(
        pairs.moment >= 0, before[pairs.owner] + since[np.maximum(pairs.moment, 0)], 0
    )


def arrangement_changes(
    rows: pa.RecordBatch, touched: AffectedValues, moments: InterestingTimes
) -> pa.RecordBatch:
    """The changes as rows of the sorted arrangement, by group. Errors: DiffOverflow."""
    net = sums(touched.diff, order.starts([touched.entry]))
    nonzero = np.flatnonzero(net)
    return _stored(rows, touched, moments, nonzero, net[nonzero])


def _stored(
    rows: pa.RecordBatch,
    touched: AffectedValues,
    moments: InterestingTimes,
    entries: Ints,
    counts: Ints,
) -> pa.RecordBatch:
    data = rows.select(list(range(rows.num_columns - 2)))
    owner, places = touched.owner[entries], touched.place[entries]
    return arrangement_rows(moments, owner, (data, touched.values), places, counts)


def arrangement_rows(
    moments: InterestingTimes,
    owner: Ints,
    of: tuple[pa.RecordBatch, pa.Array],
    places: Ints,
    counts: Ints,
) -> pa.RecordBatch:
    """Some of these rows and sort keys as the arrangement has them; `owner` ascends."""
    whose, at = pa.array(owner), pa.array(places)
    data, sort_keys = of
    columns = [pa.array(moments.hashes).take(whose), *(k.take(whose) for k in moments.keys)]
    columns += [sort_keys.take(at), *data.take(at).columns, pa.array(counts)]
    named = [("h", pa.uint64()), *((f"k{i}", key.type) for i, key in enumerate(moments.keys))]
    schema = pa.schema([*named, ("v", pa.binary()), *data.schema, ("n", pa.int64())])
    return pa.RecordBatch.from_arrays(columns, schema=schema)
