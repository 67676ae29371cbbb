"""A multiplicity that leaves 64 bits is an error, and exact up to there."""

from itertools import accumulate

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.trace.columns import Groups, group
from streams.trace.exact.diffs import (
    MOST_COPIES,
    DiffOverflow,
    TooManyCopies,
    add_diffs,
    negated,
    products,
    repeat_positions,
    running,
    running_values,
    saturated,
    sum_by,
    sums,
)
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
            sum(int(v) for v, i in zip(values, ids, strict=True) if i == id_)
            for id_ in dict.fromkeys(ids.tolist())
        ]
        groups = group([ids], 30)
        if all(-TOP - 1 <= number <= TOP for number in exact):
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


def test_counts_that_follow_changes() -> None:
    assert running_values(ints(1, 2), ints(0), ints(TOP - 3)).tolist() == [TOP - 2, TOP]
    assert running_values(ints(), ints(), ints()).tolist() == []
    assert running_values(ints(TOP, -TOP), ints(0, 1), ints(-TOP, 5)).tolist() == [0, 5 - TOP]
    assert running_values(ints(TOP, TOP, -TOP), ints(0, 1), ints(0, 0)).tolist() == [
        TOP,
        TOP,
        0,
    ]
    for before, changes in ((TOP, (1,)), (0, (1 << 62, 1 << 62)), (-TOP, (-1, -1))):
        with pytest.raises(DiffOverflow, match="a sum of multiplicities"):
            running_values(ints(*changes), ints(0), ints(before))


def test_saturated_sums_end_where_64_bits_do() -> None:
    values = ints(TOP, 1, TOP, -TOP, -TOP, 7, -TOP, -TOP)
    actual = saturated(values, ints(0, 5)).tolist()
    assert actual == [TOP, TOP, TOP, TOP, 1, 7, 7 - TOP, -TOP - 1]
    assert saturated(ints(1, 2, 3), ints(0, 2)).tolist() == [1, 3, 3]


def test_sums_and_opposites_one_by_one() -> None:
    assert add_diffs(ints(TOP, -TOP), ints(-TOP, -1)).tolist() == [0, -TOP - 1]
    assert negated(ints(TOP, 0, -3)).tolist() == [-TOP, 0, 3]
    for one, other in ((TOP, 1), (-TOP, -2), (TOP, TOP)):
        with pytest.raises(DiffOverflow):
            add_diffs(ints(one), ints(other))
    with pytest.raises(DiffOverflow, match="the opposite of multiplicities"):
        negated(ints(-TOP - 1))


def test_copies() -> None:
    assert repeat_positions(ints(2, 0, 1)).tolist() == [0, 0, 2]
    for counts in ((TOP, TOP), (1 << 62,), (MOST_COPIES, 1)):
        with pytest.raises(TooManyCopies, match="at most 134,217,728 together"):
            repeat_positions(ints(*counts))


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
    clipped = [min(max(total, -TOP - 1), TOP) for total in exact]
    assert saturated(values, starts).tolist() == clipped
    if clipped == exact:
        assert running_values(values, starts, np.zeros(len(starts), np.int64)).tolist() == exact
    wholes = [sum(segment) for segment in segments]
    if all(-TOP - 1 <= total <= TOP for total in wholes):
        assert sums(values, starts).tolist() == wholes
    else:
        with pytest.raises(DiffOverflow):
            sums(values, starts)
