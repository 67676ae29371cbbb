"""A multiplicity that leaves 64 bits is an error, and exact up to there."""

from itertools import accumulate

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.trace.columns import Groups, group
from streams.trace.diffs import DiffOverflow, check_running, products, running, sum_by
from streams.trace.updates import consolidate
from tests.support.flows import kernel

TOP = (1 << 63) - 1


def groups_of(*ids: int) -> Groups:
    return group([np.array(ids, np.int64)], len(ids))


def ints(*values: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ((1, 2, -3), 0),
        ((TOP, -TOP, TOP), TOP),
        ((-TOP - 1, TOP, 1), 0),
        ((-TOP - 1, 0, 0), -TOP - 1),
        ((TOP - 1, 1, 0), TOP),
        ((1 << 62, 1 << 62, -1), TOP),
        ((-(1 << 62), -(1 << 62), 0), -TOP - 1),
        ((-(1 << 62), -(1 << 62), 1), -TOP),
        ((1 << 32, -(1 << 32), 5), 5),
    ],
)
def test_sums_are_exact(values: tuple[int, ...], total: int) -> None:
    groups = groups_of(7, 7, 7, 8)
    assert sum_by(groups, ints(*values, 5)).tolist() == [total, 5]
    assert sum_by(groups, ints(*values, TOP)).tolist() == [total, TOP]


@pytest.mark.parametrize(
    "values", [(1 << 62, 1 << 62), (TOP, 1), (-TOP - 1, -1), (TOP, TOP), (-TOP - 1, -TOP - 1)]
)
def test_a_sum_that_leaves_the_range_is_an_error(values: tuple[int, int]) -> None:
    with pytest.raises(DiffOverflow, match="a sum of multiplicities"):
        sum_by(groups_of(1, 1), ints(*values))


def test_sums_agree_with_pythons_integers() -> None:
    chance = np.random.default_rng(3)
    for _ in range(300):
        ids = chance.integers(0, 4, 30)
        values = chance.integers(-(1 << 60), 1 << 60, 30) << chance.integers(0, 4, 30)
        exact = [
            sum(int(v) for v, i in zip(values, ids, strict=True) if i == each)
            for each in dict.fromkeys(ids.tolist())
        ]
        groups = group([ids], 30)
        if all(-TOP - 1 <= each <= TOP for each in exact):
            assert sorted(sum_by(groups, values).tolist()) == sorted(exact)
        else:
            with pytest.raises(DiffOverflow):
                sum_by(groups, values)


def test_products() -> None:
    assert products(ints(3, -(1 << 40)), ints(-2, 1 << 22)).tolist() == [-6, -(1 << 62)]
    assert products(ints(TOP, 1), ints(1, TOP)).tolist() == [TOP, TOP]
    assert products(ints(), ints()).tolist() == []
    for one, other in ((1 << 53, 1 << 53), (TOP, 2), (1 << 32, 1 << 31), (-(1 << 62), 4)):
        with pytest.raises(DiffOverflow, match="a product of multiplicities"):
            products(ints(one, 1), ints(other, 1))


def test_running_sums() -> None:
    check_running(ints(TOP - 3), ints(1, 2))
    check_running(ints(), ints())
    for before, changes in ((ints(TOP), ints(1)), (ints(0), ints(1 << 62, 1 << 62))):
        with pytest.raises(DiffOverflow):
            check_running(before, changes)


def test_equal_rows_whose_count_leaves_the_range_do_not_vanish() -> None:
    rows = pa.record_batch(
        {"c0": ["x"] * 4, "time": pa.array([1] * 4), "diff": pa.array([1 << 62] * 4)}
    )
    with pytest.raises(DiffOverflow):
        consolidate(rows, kernel())


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9), max_size=5))
def test_running_sums_are_exact_beyond_64_bits(segments: list[list[int]]) -> None:
    values = np.array([value for segment in segments for value in segment], np.int64)
    lengths = [len(segment) for segment in segments]
    starts = np.cumsum([0, *lengths])[: len(lengths)].astype(np.int64)
    high, low = running(values, starts)
    exact = [total for segment in segments for total in accumulate(segment)]
    pairs = zip(high.tolist(), low.tolist(), strict=True)
    assert [(upper << 32) + lower for upper, lower in pairs] == exact
    assert all(0 <= lower < 2**32 for lower in low.tolist())
