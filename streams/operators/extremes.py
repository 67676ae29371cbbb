"""min and max under retraction, and DISTINCT aggregates, from a thin arrangement.

For each argument the operator keeps (key, value) -> count, ordered (`trace.ordered`). A
change touches some (key, value) pairs; all others, the *core*, are as they were. At a time t
of the interval, for min (max is its mirror image):

    min(t) = the least of  { touched values whose count at t is positive }
                      and  the least value of the core that is there

Nothing below the min last emitted was there before the interval, so the core's least is found
by a search that starts there (rule 37), and only for groups whose own min was touched: else
it is the core's least itself. The touched values are swept over all (key, time) at once:
each is there during some ranges of its group's times, and a tree over the times takes the
minimum of the ranges that cover each.

A DISTINCT aggregate sees a value come and go as its count leaves and reaches zero: those
changes feed the linear totals.

Cost: O(changes * log(times)), and O(log n) places of each run for each touched value.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.operators import totals
from streams.operators.context import Ports, Scope
from streams.operators.moments import Moments
from streams.operators.totals import Slot, Sum
from streams.trace import order, ordered
from streams.trace.columns import Groups, Ints, canonical, group, key_form
from streams.trace.kernel import Kernel
from streams.trace.runs import Run, RunName
from streams.trace.updates import flatten, sum_by

NONE = np.iinfo(np.int64).max
"""The rank of no value at all: behind every other."""


def stored(kind: pa.DataType) -> pa.DataType:
    """The type in which values of an argument are kept: booleans as small integers."""
    return pa.int8() if pa.types.is_boolean(kind) else kind


def _values(array: pa.Array) -> pa.Array:
    return canonical(array.cast(pa.int8()) if pa.types.is_boolean(array.type) else array)


def name(argument: int) -> str:
    """The port and the arrangement of an argument."""
    return f"values{argument}"


def schema(keys: Sequence[pa.DataType], kind: pa.DataType) -> pa.Schema:
    """What `partial` sends: (key, value, time) with the sum of the diffs."""
    columns = [(f"k{index}", key) for index, key in enumerate(keys)]
    return pa.schema(
        [*columns, ("v", stored(kind)), ("time", pa.int64()), ("diff", pa.int64())]
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
    times, diffs = rows.column("time").to_numpy(), rows.column("diff").to_numpy()
    groups = group([key_form(values, kernel), owner, times], len(owner))
    sums = sum_by(groups, diffs)
    kept = np.flatnonzero(sums)
    first = pa.array(groups.first[kept])
    arrays = [*(key.take(first) for key in keys), values.take(first)]
    arrays += [pa.array(times).take(first), pa.array(sums[kept])]
    shape = schema([key.type for key in keys], column.type)
    return pa.RecordBatch.from_arrays(arrays, schema=shape)


@dataclass(frozen=True, slots=True)
class Touched:
    """The changes of an argument's values, and the values they touch.

    A change i adds `diff[i]` to entry `entry[i]` at moment `moment[i]`; changes are sorted by
    entry, then moment. An entry is a (key, value); `base` is its count before the interval.
    """

    entries: ordered.Entries
    base: Ints
    entry: Ints
    moment: Ints
    diff: Ints

    @property
    def counts(self) -> Ints:
        """After each change, the count of its entry."""
        running = np.cumsum(self.diff)
        first = np.searchsorted(self.entry, self.entry)
        return running - (running - self.diff)[first] + self.base[self.entry]


def touched(
    rows: pa.RecordBatch, moments: Moments, runs: Sequence[Run], kernel: Kernel
) -> Touched:
    """The touched values of what `partial` sent, with their counts in the state."""
    width = rows.num_columns - 3
    owner = moments.owners(rows.columns[:width], rows.num_rows, kernel)
    moment = moments.places(owner, rows.column("time").to_numpy())
    values = rows.column("v")
    by_entry = group([key_form(values, kernel), owner], rows.num_rows)
    by_change = group([by_entry.ids, moment], rows.num_rows)
    diffs = sum_by(by_change, rows.column("diff").to_numpy())
    entry, at = by_entry.ids[by_change.first], moment[by_change.first]
    sorting = np.lexsort((at, entry))
    chosen, owners = values.take(pa.array(by_entry.first)), owner[by_entry.first]
    compared = order.comparable(chosen, kernel)
    entries = ordered.Entries(moments.forms, owners, moments.hashes[owners], chosen, compared)
    base = ordered.counts(runs, entries, kernel)
    return Touched(entries, base, entry[sorting], at[sorting], diffs[sorting])


def insert(
    of: Touched, moments: Moments, scope: Scope, names: Sequence[RunName]
) -> list[RunName]:
    """The runs of the arrangement with the changes added."""
    sums = np.zeros(len(of.base), np.int64)
    np.add.at(sums, of.entry, of.diff)
    places = np.flatnonzero(sums)
    owner, at = pa.array(of.entries.owner[places]), pa.array(places)
    keys = [key.take(owner) for key in moments.keys]
    shape = ordered.schema([key.type for key in keys], of.entries.values.type)
    arrays = [pa.array(of.entries.hashes[places]), *keys, of.entries.values.take(at)]
    if "s" in shape.names:
        arrays.append(of.entries.compared.take(at))
    rows = pa.RecordBatch.from_arrays([*arrays, pa.array(sums[places])], schema=shape)
    return ordered.insert(scope.context.files, names, rows, scope.kernel)


@dataclass(frozen=True, slots=True)
class Extreme:
    """A min or max: for each group before the interval, and for each moment; NULL for none."""

    before: pa.Array
    after: pa.Array


def extreme(
    of: Touched,
    moments: Moments,
    runs: Sequence[Run],
    before: pa.Array,
    kernel: Kernel,
    *,
    largest: bool,
) -> Extreme:
    """The min (or max) at every moment, given the one last emitted for each group."""
    if not len(of.entry):
        return Extreme(before, before.take(pa.array(moments.owner)))
    core = _core(of, moments, runs, before, kernel, largest=largest)
    pool = pa.concat_arrays([of.entries.values, core])
    size = len(of.base)
    valid = np.concatenate((np.ones(size, np.bool_), ~_null(core)))
    rank = np.full(len(pool), NONE, np.int64)
    ranks = order.ranks(order.comparable(pool.filter(pa.array(valid)), kernel))
    rank[valid] = ~ranks if largest else ranks
    least = np.minimum(_sweep(of, moments, rank[:size]), rank[size:][moments.owner])
    return Extreme(before, _by_rank(pool, rank, least))


def _null(array: pa.Array) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)


def _by_rank(pool: pa.Array, rank: Ints, wanted: Ints) -> pa.Array:
    """For each rank wanted a value of the pool that has it; NULL for NONE."""
    sorting = np.argsort(rank, kind="stable")
    places = sorting[np.minimum(np.searchsorted(rank[sorting], wanted), len(rank) - 1)]
    return pool.take(pa.array(places, mask=wanted == NONE))


def _core(
    of: Touched,
    moments: Moments,
    runs: Sequence[Run],
    before: pa.Array,
    kernel: Kernel,
    *,
    largest: bool,
) -> pa.Array:
    """For each group the least value of the core that may matter; NULL for none."""
    own = np.flatnonzero(~_null(before))
    if not len(own):
        return before
    forms = pa.concat_arrays(
        [key_form(of.entries.values, kernel), key_form(before.take(pa.array(own)), kernel)]
    )
    ids = group([forms, np.concatenate((of.entries.owner, own))], len(of.base) + len(own)).ids
    lowest = np.full(int(ids.max()) + 1, NONE, np.int64)
    np.minimum.at(lowest, ids[of.entry], of.counts)
    lost = own[lowest[ids[len(of.base) :]] <= 0]
    if not len(lost):
        return before
    values = before.take(pa.array(lost))
    start = ordered.Entries(
        moments.forms, lost, moments.hashes[lost], values, order.comparable(values, kernel)
    )
    mine = np.zeros(len(before), np.bool_)
    mine[lost] = True
    passed = of.entries.choose(np.flatnonzero(mine[of.entries.owner]))
    found = ordered.extreme(runs, start, passed, kernel, largest=largest)
    places = np.arange(len(before))
    places[lost] = len(before) + np.arange(len(lost))
    return pa.concat_arrays([before, found]).take(pa.array(places))


def _sweep(of: Touched, moments: Moments, rank: Ints) -> Ints:
    """At every moment the least rank among the touched values that are there."""
    size = len(moments.owner)
    counts = of.counts
    if size == len(moments.hashes):  # one time a group: nothing to sweep over
        least = np.full(size, NONE, np.int64)
        there = counts > 0
        np.minimum.at(least, of.moment[there], rank[of.entry[there]])
        return least
    first, last = moments.bounds
    following = np.append(of.moment[1:], [0])
    is_last = np.append(of.entry[1:] != of.entry[:-1], [True])
    owner = of.entries.owner
    until = np.where(is_last, last[owner[of.entry]], following)
    begin = np.flatnonzero(np.append([True], is_last[:-1]))
    there, early = counts > 0, of.base[of.entry[begin]] > 0
    starts = np.concatenate((of.moment[there], first[owner[of.entry[begin]]][early]))
    ends = np.concatenate((until[there], of.moment[begin][early]))
    ranks = np.concatenate((rank[of.entry[there]], rank[of.entry[begin]][early]))
    return _cover(starts, ends, ranks, size)


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


def distinct(of: Touched, moments: Moments, slot: Slot) -> tuple[Ints, Sum]:
    """The changes, at every moment, of the count and the sum of the values that are there."""
    after = of.counts
    changes = (after > 0).astype(np.int64) - ((after - of.diff) > 0)
    size = len(moments.owner)
    values = of.entries.values.take(pa.array(of.entry))
    made = totals.of_rows(Groups(of.moment, np.arange(size)), changes, [values], [slot])
    return made.counts[0], made.sums[0]


def step(
    argument: int,
    ports: Ports,
    runs: Sequence[RunName],
    kinds: tuple[Sequence[pa.DataType], pa.DataType],
    moments: Moments,
    scope: Scope,
) -> tuple[Touched, list[Run], list[RunName]]:
    """The touched values of an argument, the runs before the interval, and those after it."""
    rows = flatten(ports.get(name(argument), []), schema(*kinds))
    before = scope.context.files.open(runs)
    changes = touched(rows, moments, before, scope.kernel)
    return changes, before, insert(changes, moments, scope, runs)
