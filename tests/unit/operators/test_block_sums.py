"""Sums over blocks of a run: ranges cut exactly, each block summed once, or not at all."""

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.operators import block_sums
from streams.trace.arrange.runs import Run
from streams.trace.columns import Ints, spans
from streams.trace.kernel.kernel import Kernel

BLOCK = 4


def run_of(keys: list[int], counts: list[int]) -> Run:
    hashes = np.full(len(keys), 7, np.uint64)
    columns = [pa.array(hashes), pa.array(keys), pa.array(counts, pa.int64())]
    return Run(pa.RecordBatch.from_arrays(columns, names=["h", "k0", "n"]), hashes)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=5))
def test_blocks_and_rests_are_the_ranges(ranges: list[tuple[int, int]]) -> None:
    low = np.array([min(ends) for ends in ranges], np.int64)
    end = np.array([max(ends) for ends in ranges], np.int64)
    with patch.object(block_sums, "BLOCK", BLOCK):
        cut = block_sums.cut_ranges(low, end)
    places = [
        *zip(np.repeat(cut.of_block, BLOCK), _rows_of(cut.block), strict=True),
        *zip(np.repeat(cut.of_rest, cut.end - cut.low), _places(cut.low, cut.end), strict=True),
    ]
    sizes = end - low
    expected = zip(np.repeat(np.arange(len(low)), sizes), spans(low, sizes), strict=True)
    assert sorted(places) == sorted(expected)


def _rows_of(blocks: Ints) -> Ints:
    return spans(blocks * BLOCK, np.full(len(blocks), BLOCK))


def _places(low: Ints, end: Ints) -> Ints:
    return spans(low, end - low)


HUGE = 1 << 62


@pytest.mark.parametrize(
    ("keys", "counts", "weight", "usable"),
    [
        ([1] * 8, [1, 2, 3, 4, 5, 6, 7, -8], 3, [True, True]),
        ([1] * 7 + [2], [1] * 8, 3, [True, False]),
        ([1] * 8, [HUGE, HUGE, -HUGE, -HUGE, 1, 1, 1, 1], 1, [False, True]),
        ([1] * 8, [HUGE, 1, 1, 1, 1, 1, 1, 1], 4, [False, False]),
    ],
    ids=["usable", "two keys of one hash", "beyond 64 bits", "a product beyond 64 bits"],
)
def test_a_block_is_usable_if_its_sums_are_exact_and_of_one_key(
    keys: list[int], counts: list[int], weight: int, usable: list[bool]
) -> None:
    run, asked = run_of(keys, counts), []

    def weights(places: Ints) -> Ints:
        asked.append(len(places))
        return np.full((1, len(places)), weight, np.int64)

    with patch.object(block_sums, "BLOCK", BLOCK):
        sums = block_sums.of_run(run, 1, "rows")
        blocks = np.array([1, 0, 1])
        for _ in range(2):
            is_usable = sums.complete(run.rows, 1, blocks, weights, Kernel())
            assert is_usable.tolist() == [usable[1], usable[0], usable[1]]
        assert block_sums.of_run(run, 1, "rows") is sums
    assert asked == [8]
    for block in np.flatnonzero(usable):
        rows = counts[block * BLOCK : (block + 1) * BLOCK]
        assert sums.sums[0, block] == weight * sum(rows)
