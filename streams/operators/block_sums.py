"""Sums over blocks of the rows of a run, made once and kept as long as the run is open.

The rows of a run never change, so sums over them do not change either. A block is `BLOCK`
consecutive rows of one key. Its sums are computed when a range first needs them and cached, so
blocks that no range needs cost nothing. The sum of a range is that of its whole blocks and of
the rows at its ends.

A block cannot be used if it has rows of several keys with one hash, or if its sums might exceed
64 bits: then its rows are summed one by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streams.trace.arrange.runs import Run
from streams.trace.columns import Flags, Ints, equal_rows, int64, key_form, spans
from streams.trace.exact.diffs import DiffOverflow, products
from streams.trace.kernel.kernel import Kernel

BLOCK = 1 << 10
_CHUNK = 1 << 10
"""Blocks that are summed together."""

_SAFE = float(1 << 62)
_UNKNOWN, _USABLE, _UNUSABLE = range(3)

Weights = Callable[[Ints], Ints]
"""From places of a run to what one occurrence of each row adds: a row for each number."""


@dataclass(frozen=True, slots=True)
class BlockSums:
    """The sums of a run: a row for each number, a column for each block of the run.

    They do not hold the run, which holds them.
    """

    sums: Ints
    state: npt.NDArray[np.int8]

    def complete(
        self, rows: pa.RecordBatch, width: int, blocks: Ints, weights: Weights, kernel: Kernel
    ) -> Flags:
        """Sum those of these blocks that are not summed yet; which ones are usable.

        `rows` are the run's, with `width` columns of keys; those of a block have one hash.
        """
        todo = np.unique(blocks[self.state[blocks] == _UNKNOWN])
        for start in range(0, len(todo), _CHUNK):
            some = todo[start : start + _CHUNK]
            places = spans(some * BLOCK, np.full(len(some), BLOCK))
            one_key = _of_one_key(rows.columns[1 : 1 + width], places, kernel)
            try:
                amounts = products(weights(places), int64(rows.column("n"))[places])
            except DiffOverflow:  # the sum row by row reports it, with its owner
                self.state[some] = _UNUSABLE
                continue
            by_block = amounts.reshape(len(amounts), len(some), BLOCK)
            fits = (np.abs(by_block.astype(np.float64)).sum(axis=2) < _SAFE).all(axis=0)
            self.sums[:, some] = by_block.sum(axis=2)
            self.state[some] = np.where(one_key & fits, _USABLE, _UNUSABLE)
        usable: Flags = self.state[blocks] == _USABLE
        return usable


def _of_one_key(keys: Sequence[pa.Array], places: Ints, kernel: Kernel) -> Flags:
    """Of each block, whether all of its rows have the key of the first."""
    same, at = np.ones(len(places), np.bool_), pa.array(places)
    first = pa.array(np.repeat(np.arange(0, len(places), BLOCK), BLOCK))
    for column in keys:
        form = key_form(column.take(at), kernel)
        same &= equal_rows(form, form.take(first))
    one_key: Flags = np.logical_and.reduce(same.reshape(-1, BLOCK), axis=1)
    return one_key


def of_run(run: Run, numbers: int, of: object) -> BlockSums:
    """The cached sums of `numbers` numbers over a run; `of` is their key in the run's cache."""
    sums = run.derived.get(of)
    if not isinstance(sums, BlockSums):
        blocks = run.rows.num_rows // BLOCK
        state = np.zeros(blocks, np.int8)
        sums = BlockSums(np.zeros((numbers, blocks), np.int64), state)
        run.derived[of] = sums
    return sums


@dataclass(frozen=True, slots=True)
class CutRanges:
    """Ranges of rows split into whole blocks and the rest at their ends, with their ranges."""

    block: Ints
    of_block: Ints
    low: Ints
    end: Ints
    of_rest: Ints


def cut_ranges(low: Ints, end: Ints) -> CutRanges:
    """The ranges [low, end) of a run, cut into blocks and the rest."""
    which = np.arange(len(low))
    first, last = -(-low // BLOCK), end // BLOCK
    blocks = np.maximum(last - first, 0)
    of_block = np.repeat(which, blocks)
    whole = blocks == 0
    rest_low = np.concatenate((low, np.where(whole, end, last * BLOCK)))
    rest_end = np.concatenate((np.where(whole, end, first * BLOCK), end))
    return CutRanges(spans(first, blocks), of_block, rest_low, rest_end, np.tile(which, 2))
