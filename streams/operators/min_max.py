"""min and max under retraction, and DISTINCT aggregates, from a thin arrangement.

For each argument the operator keeps (key, value) -> count, ordered (`trace.arrange.ordered`). A
change touches some (key, value) pairs; all others, the *core*, are as they were. At a time t
of the interval, for min (max is its mirror image):

    min(t) = the least of  { touched values whose count at t is positive }
                      and  the least value of the core with a positive count

Before the interval no value below the last emitted min existed, so the search for the least
value of the core starts there (rule 37). It is needed only for groups whose min was touched; in
other groups the last min is the least value of the core. The touched values are evaluated for
all (key, time) at once: each exists during some ranges of its group's times, and a tree over
the times gives the minimum of the ranges that cover each time.

For a DISTINCT aggregate a value is inserted when its count becomes positive and deleted when
it becomes zero: these changes are the input of the linear totals.

Cost: O(changes * log(times)), and O(log n) places of each run for each touched value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streams.operators import accumulators
from streams.operators.accumulators import AccumulatorSlot, Sum
from streams.operators.context import EngineCall, Ports
from streams.operators.interesting_times import InterestingTimes
from streams.trace.arrange import order, ordered
from streams.trace.arrange.runs import Run, RunName
from streams.trace.columns import Flags, Groups, Ints, canonical, int64
from streams.trace.exact.diffs import running_values, sums
from streams.trace.kernel.kernel import Kernel
from streams.trace.updates import flatten

NONE = np.iinfo(np.int64).max
"""The rank of no value at all: behind every other."""


def stored_type(kind: pa.DataType) -> pa.DataType:
    """The type in which values of an argument are kept: booleans as small integers."""
    return pa.int8() if pa.types.is_boolean(kind) else kind


def _values(array: pa.Array) -> pa.Array:
    return canonical(array.cast(pa.int8()) if pa.types.is_boolean(array.type) else array)


def name(argument: int) -> str:
    """The port and the arrangement of an argument."""
    return f"values{argument}"


def schema(keys: Sequence[pa.DataType], kind: pa.DataType) -> pa.Schema:
    """The rows of `partial`: (key, value, time) with the sum of the diffs."""
    columns = [(f"k{index}", key) for index, key in enumerate(keys)]
    return pa.schema(
        [*columns, ("v", stored_type(kind)), ("time", pa.int64()), ("diff", pa.int64())]
    )


def partial(
    keys: Sequence[pa.Array],
    by_key: Groups,
    rows: pa.RecordBatch,
    argument: int,
    kernel: Kernel,
) -> pa.RecordBatch:
    """The changes of an argument's values, NULLs left out, summed by (key, value, time).

    `keys` are the key columns of `rows` and `by_key` their groups.
    """
    column, owner = rows.column(argument), by_key.ids
    if column.null_count:
        places = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        rows, owner = rows.take(pa.array(places)), owner[places]
        keys = [key.take(pa.array(places)) for key in keys]
        column = rows.column(argument)
    values = _values(column)
    ranks = order.ranks(order.comparable(values, kernel))
    by_change, starts = order.sort([owner, ranks, int64(rows.column("time"))])
    net = sums(int64(rows.column("diff"))[by_change], starts)
    nonzero = np.flatnonzero(net)
    first = pa.array(by_change[starts[nonzero]])
    arrays = [*(key.take(first) for key in keys), values.take(first)]
    arrays += [rows.column("time").take(first), pa.array(net[nonzero])]
    shape = schema([key.type for key in keys], column.type)
    return pa.RecordBatch.from_arrays(arrays, schema=shape)


@dataclass(frozen=True, slots=True)
class AffectedValues:
    """The changes of an argument's values, and the values they touch.

    An entry is a (key, value) that is touched: `owner` is its key's number, `place` the place
    of its value in `values`; entries are sorted by owner, then value. A change i adds
    `diff[i]` to entry `entry[i]` at moment `moment[i]`; sorted by entry, then moment.
    """

    values: pa.Array
    compared: pa.Array
    owner: Ints
    place: Ints
    entry: Ints
    moment: Ints
    diff: Ints

    def entries(self, moments: InterestingTimes, chosen: Ints | None = None) -> ordered.Entries:
        """The entries, or some of them, as the arrangement is asked for them."""
        owner = self.owner if chosen is None else self.owner[chosen]
        place = pa.array(self.place if chosen is None else self.place[chosen])
        values, compared = self.values.take(place), self.compared.take(place)
        return ordered.Entries(moments.forms, owner, moments.hashes[owner], values, compared)

    def only(self, chosen: Ints) -> "AffectedValues":
        """Some of the entries (ascending) and their changes, as if there were no others."""
        number = np.full(len(self.owner), -1, np.int64)
        number[chosen] = np.arange(len(chosen))
        nonzero = np.flatnonzero(number[self.entry] >= 0)
        return replace(
            self,
            owner=self.owner[chosen],
            place=self.place[chosen],
            entry=number[self.entry[nonzero]],
            moment=self.moment[nonzero],
            diff=self.diff[nonzero],
        )

    def counts(self, base: Ints) -> Ints:
        """After each change the count of its entry, given the counts before the interval.

        Errors: DiffOverflow.
        """
        return running_values(self.diff, order.starts([self.entry]), base)

    def steady(self, base: Ints) -> Flags:
        """The entries that are there before the interval and at all times in it."""
        there: Flags = base > 0
        there[self.entry[self.counts(base) <= 0]] = False
        return there


def affected_values(
    rows: pa.RecordBatch, moments: InterestingTimes, kernel: Kernel
) -> AffectedValues:
    """The touched values of what `partial` sent."""
    width = rows.num_columns - 3
    owner = moments.owners(rows.columns[:width], rows.num_rows, kernel)
    moment = moments.places(owner, int64(rows.column("time")))
    values = rows.column("v")
    compared = order.comparable(values, kernel)
    ranks = order.ranks(compared)
    by_change, starts = order.sort([owner, ranks, moment], nearly=True)
    first = by_change[starts]
    entry_starts = order.starts([owner[first], ranks[first]])
    new = np.zeros(len(first), np.int64)
    new[entry_starts] = 1
    place = first[entry_starts]
    return AffectedValues(
        values=values,
        compared=compared,
        owner=owner[place],
        place=place,
        entry=np.cumsum(new) - 1,
        moment=moment[first],
        diff=sums(int64(rows.column("diff"))[by_change], starts),
    )


def insert(
    of: AffectedValues, moments: InterestingTimes, scope: EngineCall, names: Sequence[RunName]
) -> list[RunName]:
    """The runs of the arrangement with the changes added."""
    net = sums(of.diff, order.starts([of.entry]))
    nonzero = np.flatnonzero(net)
    # Entries lie owner by owner, and owners in the order of their hashes.
    owner, at = pa.array(of.owner[nonzero]), pa.array(of.place[nonzero])
    keys = [key.take(owner) for key in moments.keys]
    shape = ordered.schema([key.type for key in keys], of.values.type)
    arrays = [pa.array(moments.hashes).take(owner), *keys, of.values.take(at)]
    if "s" in shape.names:
        arrays.append(of.compared.take(at))
    rows = pa.RecordBatch.from_arrays([*arrays, pa.array(net[nonzero])], schema=shape)
    return ordered.insert(scope.context.files, names, rows, scope.kernel)


@dataclass(frozen=True, slots=True)
class ExtremeValues:
    """A min or max: for each group before the interval, and for each moment; NULL for none."""

    before: pa.Array
    after: pa.Array


@dataclass(frozen=True, slots=True)
class ExtremeSearch:
    """The arrangement to search for a min or, if `largest`, a max."""

    moments: InterestingTimes
    runs: Sequence[Run]
    kernel: Kernel
    largest: bool


def extreme(of: AffectedValues, before: pa.Array, search: ExtremeSearch) -> ExtremeValues:
    """The min (or max) at every moment, given the one last emitted for each group.

    While the last emitted value exists, only better values matter; the others are not looked
    up.
    """
    moments, kernel = search.moments, search.kernel
    ranks, own = _ranks(of, before, search)
    lost = _lost(of, np.flatnonzero(ranks == own[of.owner]), search)
    better = np.flatnonzero((ranks < own[of.owner]) | lost[of.owner])
    if not len(better) and not lost.any():
        return ExtremeValues(before, before.take(pa.array(moments.owner)))
    few = of.only(better)
    base = ordered.counts(search.runs, few.entries(moments), kernel)
    core = _core(few, before, lost, search)
    pool = pa.concat_arrays([of.values.take(pa.array(few.place)), core])
    valid = np.concatenate((np.ones(len(better), np.bool_), ~_null(core)))
    rank = np.full(len(pool), NONE, np.int64)
    compared = order.comparable(pool.filter(pa.array(valid)), kernel)
    rank[valid] = order.directed_ranks(compared, largest=search.largest)
    swept = _sweep(few, base, moments, rank[: len(better)])
    least = np.minimum(swept, rank[len(better) :][moments.owner])
    return ExtremeValues(before, _by_rank(pool, rank, least))


def _ranks(of: AffectedValues, before: pa.Array, search: ExtremeSearch) -> tuple[Ints, Ints]:
    """The ranks of the entries, and for each group of the value last emitted, or NONE."""
    there = np.flatnonzero(~_null(before))
    last = order.comparable(before.take(pa.array(there)), search.kernel)
    both = pa.concat_arrays([of.compared.take(pa.array(of.place)), last])
    ranks = order.directed_ranks(both, largest=search.largest)
    own = np.full(len(before), NONE, np.int64)
    own[there] = ranks[len(of.place) :]
    return ranks[: len(of.place)], own


def _lost(of: AffectedValues, own: Ints, search: ExtremeSearch) -> Flags:
    """The groups whose last emitted value (the entries `own`) is missing at some moment."""
    lost = np.zeros(len(search.moments.hashes), np.bool_)
    few = of.only(own)
    if len(few.diff) and few.diff.min() < 0:
        base = ordered.counts(search.runs, few.entries(search.moments), search.kernel)
        counts = few.counts(base)
        lost[few.owner[few.entry[counts <= 0]]] = True
    return lost


def _null(array: pa.Array) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)


def _by_rank(pool: pa.Array, rank: Ints, wanted: Ints) -> pa.Array:
    """For each rank wanted a value of the pool that has it; NULL for NONE."""
    sorting = np.argsort(rank, kind="stable")
    places = sorting[np.minimum(np.searchsorted(rank[sorting], wanted), len(rank) - 1)]
    return pool.take(pa.array(places, mask=wanted == NONE))


def _core(of: AffectedValues, before: pa.Array, lost: Flags, search: ExtremeSearch) -> pa.Array:
    """For each group the least value of the core that may matter; NULL for none.

    `of` has all entries of the groups that lost the value last emitted.
    """
    if not lost.any():
        return before
    groups = np.flatnonzero(lost)
    values = before.take(pa.array(groups))
    compared = order.comparable(values, search.kernel)
    keys, hashes = search.moments.forms, search.moments.hashes[groups]
    start = ordered.Entries(keys, groups, hashes, values, compared)
    passed = of.entries(search.moments, np.flatnonzero(lost[of.owner]))
    extremes = ordered.extreme(
        search.runs, start, passed, search.kernel, largest=search.largest
    )
    places = np.arange(len(before))
    places[groups] = len(before) + np.arange(len(groups))
    return pa.concat_arrays([before, extremes]).take(pa.array(places))


def _sweep(of: AffectedValues, base: Ints, moments: InterestingTimes, rank: Ints) -> Ints:
    """At every moment the least rank among the touched values that are there."""
    size = len(moments.owner)
    counts = of.counts(base)
    if size == len(moments.hashes):  # one time a group: nothing to sweep over
        least = np.full(size, NONE, np.int64)
        there = counts > 0
        np.minimum.at(least, of.moment[there], rank[of.entry[there]])
        return least
    first, last = moments.bounds
    begin = order.starts([of.entry])
    is_last = np.zeros(len(of.entry), np.bool_)
    is_last[begin[1:] - 1] = True
    is_last[-1:] = True
    following = np.append(of.moment[1:], [0])
    until = np.where(is_last, last[of.owner[of.entry]], following)
    there, early = counts > 0, base > 0
    starts = np.concatenate((of.moment[there], first[of.owner[early]]))
    ends = np.concatenate((until[there], of.moment[begin][early]))
    return _cover(starts, ends, np.concatenate((rank[of.entry[there]], rank[early])), size)


def _cover(starts: Ints, ends: Ints, ranks: Ints, size: int) -> Ints:
    """For each place below `size` the least rank of the ranges [start, end) that cover it.

    A range is cut into at most two nodes for each height of a binary tree over the places.
    """
    leaves = 1 << max(size - 1, 0).bit_length()
    tree = np.full(2 * leaves, NONE, np.int64)
    some = starts < ends
    low, high, ranks = starts[some] + leaves, ends[some] + leaves, ranks[some]
    while len(low):
        odd = (low & 1) == 1
        np.minimum.at(tree, low[odd], ranks[odd])
        low = low + odd
        odd = (high & 1) == 1
        high = high - odd
        np.minimum.at(tree, high[odd], ranks[odd])
        going = low < high
        low, high, ranks = low[going] >> 1, high[going] >> 1, ranks[going]
    width = 1
    while width < leaves:
        children = np.repeat(tree[width : 2 * width], 2)
        tree[2 * width : 4 * width] = np.minimum(tree[2 * width : 4 * width], children)
        width *= 2
    return tree[leaves : leaves + size]


def distinct(
    of: AffectedValues,
    moments: InterestingTimes,
    runs: Sequence[Run],
    slot: AccumulatorSlot,
    kernel: Kernel,
) -> tuple[Ints, Sum]:
    """The changes, at every moment, of the count and the sum of the values that are there."""
    after = of.counts(ordered.counts(runs, of.entries(moments), kernel))
    changes = (after > 0).astype(np.int64) - ((after - of.diff) > 0)
    size = len(moments.owner)
    values = of.values.take(pa.array(of.place[of.entry]))
    groups = Groups(of.moment, np.arange(size))
    totals = accumulators.of_rows(groups, changes, lambda _: values, [slot])
    return totals.counts[0], totals.sums[0]


def step(
    argument: int,
    ports: Ports,
    names: Sequence[RunName],
    kinds: tuple[Sequence[pa.DataType], pa.DataType],
    moments: InterestingTimes,
    scope: EngineCall,
) -> tuple[AffectedValues, list[Run], list[RunName]]:
    """The touched values of an argument, the runs before the interval, and those after it."""
    rows = flatten(ports.get(name(argument), []), schema(*kinds))
    changes = affected_values(rows, moments, scope.kernel)
    runs = scope.context.files.open(names)
    return changes, runs, insert(changes, moments, scope, names)
