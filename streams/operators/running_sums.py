"""Prefix sums before the rows that a running window recomputes.

Each sum (`plan.window_frames.Before`) adds, over rows, the multiplicity times 1, times whether
the row has a value, or times the value. So sums over runs are added, and deleted rows cancel.
Values have 64 bits; a sum of values has two columns, the first in units of 2^32. Most rows of a
run are summed only once, by `block_sums`.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streams.operators import block_sums
from streams.operators.interesting_times import InterestingTimes
from streams.operators.ordered_groups import CandidateRows
from streams.plan.window_frames import Before
from streams.trace.arrange import order, ordered
from streams.trace.arrange.runs import Run
from streams.trace.columns import Ints, int64
from streams.trace.exact.diffs import add_diffs, products, sum_at
from streams.trace.kernel.kernel import Kernel, arrow_type

Sums = npt.NDArray[np.int64]
"""A row for each column of the numbers."""

_BITS = 32
_MASK = (1 << _BITS) - 1
_PIECE = 1 << 20
"""Rows that are looked at together."""


def weights(before: Sequence[Before], columns: Sequence[pa.Array], size: int) -> Sums:
    """The contribution of one occurrence of each row."""
    rows: list[Ints] = []
    for aggregate in before:
        if aggregate.function == "rows":
            rows.append(np.ones(size, np.int64))
            continue
        column = columns[aggregate.argument]
        there = column.is_valid().to_numpy(zero_copy_only=False)
        if aggregate.function == "count":
            rows.append(there.astype(np.int64))
            continue
        values = np.where(there, order.raw(column).astype(np.int64), 0)
        rows += [values >> _BITS, values & _MASK]
    return np.stack(rows) if rows else np.empty((0, size), np.int64)


def summed(amounts: Sums, which: Ints, size: int) -> Sums:
    """The sums of each of `size` stretches of columns. Errors: DiffOverflow."""
    rows = [sum_at(which, size, amount) for amount in amounts]
    return np.stack(rows) if rows else np.empty((0, size), np.int64)


def prefixes(
    before: Sequence[Before],
    runs: Sequence[Run],
    candidates: CandidateRows,
    moments: InterestingTimes,
    kernel: Kernel,
) -> Sums:
    """The numbers over the rows of each group before its first candidate that is not apart."""
    size = len(moments.hashes)
    total = np.zeros((_columns(before), size), np.int64)
    if not before:
        return total
    near = np.flatnonzero(~candidates.apart)
    begin = near[np.searchsorted(candidates.owner[near], np.arange(size))]
    first = candidates.values.take(pa.array(begin))
    entries = ordered.Entries(moments.forms, np.arange(size), moments.hashes, first, first)
    for run in runs:
        low = np.searchsorted(run.hashes, moments.hashes, "left")
        high = np.searchsorted(run.hashes, moments.hashes, "right")
        read = order.reader(ordered.order_column(run.rows))
        end = order.bound(read, low, high, order.comparables(first), after=False)
        for amounts, which in _amounts(run, (low, end), entries, before, kernel):
            total = add_diffs(total, summed(amounts, which, size))
    return total


def _amounts(
    run: Run,
    ranges: tuple[Ints, Ints],
    entries: ordered.Entries,
    before: Sequence[Before],
    kernel: Kernel,
) -> Iterator[tuple[Sums, Ints]]:
    """The amounts of blocks and rows in the entries' ranges of a run, with their entries."""
    width = len(entries.keys)
    data = run.rows.columns[2 + width : -1]
    wanted = {prefix.argument for prefix in before if prefix.function != "rows"}

    def weights_at(places: Ints) -> Sums:
        at = pa.array(places)
        columns = [c.take(at) if i in wanted else c for i, c in enumerate(data)]
        return weights(before, columns, len(places))

    cut = block_sums.cut_ranges(*ranges)
    of_blocks = block_sums.of_run(run, _columns(before), tuple(before))
    usable = of_blocks.complete(run.rows, width, cut.block, weights_at, kernel)
    block, of_block = cut.block[usable], cut.of_block[usable]
    mine = ordered.same_key(run, block * block_sums.BLOCK, entries, of_block, kernel)
    yield of_blocks.sums[:, block[mine]], of_block[mine]
    others = cut.block[~usable] * block_sums.BLOCK
    low, end = np.append(cut.low, others), np.append(cut.end, others + block_sums.BLOCK)
    owner = np.append(cut.of_rest, cut.of_block[~usable])
    for places, piece in _pieces(low, end):
        counts, which = int64(run.rows.column("n"))[places], owner[piece]
        counts[~ordered.same_key(run, places, entries, which, kernel)] = 0
        yield products(weights_at(places), counts), which


def _columns(before: Sequence[Before]) -> int:
    """The number of columns of the sums."""
    return sum(2 if number.function == "sum" else 1 for number in before)


def _pieces(low: Ints, end: Ints) -> Iterator[tuple[Ints, Ints]]:
    """All places of the ranges [low, end), with their ranges, in pieces of bounded size."""
    ends = np.cumsum(end - low)
    begin = ends - (end - low)
    for start in range(0, int(ends[-1]), _PIECE):
        number = np.arange(start, min(start + _PIECE, int(ends[-1])))
        which = np.searchsorted(ends, number, "right")
        yield low[which] + number - begin[which], which


def columns_of(before: Sequence[Before], sums: Sums) -> list[pa.Array]:
    """The sums as columns of their types."""
    rows, columns = iter(sums), []
    for aggregate in before:
        if aggregate.function == "sum":
            columns.append(_wide(next(rows), next(rows), arrow_type(aggregate.type)))
        else:
            columns.append(pa.array(next(rows)))
    return columns


def _wide(high: Ints, low: Ints, kind: pa.DataType) -> pa.Array:
    """2^32 times the one and the other, as decimals: integers of 128 bits."""
    high = high + (low >> _BITS)
    words = np.empty((len(high), 2), np.int64)
    words[:, 0] = (high << _BITS) | (low & _MASK)
    words[:, 1] = high >> _BITS
    return pa.Array.from_buffers(kind, len(high), [None, pa.py_buffer(words.tobytes())])
