"""Sums beyond 64 bits and of floats are exact: against Python's integers and fractions."""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streams.trace.columns import Groups
from streams.trace.exact import bigint_sums, float_sums
from tests.support.examples import examples

weights = st.one_of(st.integers(-3, 3), st.integers(-(2**62), 2**62))
GROUPS = 3


def groups_of(count: int) -> Groups:
    return Groups(np.arange(count) % GROUPS, np.arange(GROUPS))


def stored(digits: bigint_sums.Digits) -> list[int]:
    width = 4 * len(digits)
    size = digits.shape[1]
    array = pa.Array.from_buffers(pa.binary(width), size, [None, bigint_sums.to_bytes(digits)])
    return [int.from_bytes(digits, "little", signed=True) for digits in array.to_pylist()]


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), weights), min_size=1, max_size=20))
@examples(60)
def test_weighted_sums_of_integers(pairs: list[tuple[int, int]]) -> None:
    values = np.array([value for value, _ in pairs], np.int64)
    counts = np.array([weight for _, weight in pairs], np.int64)
    digits = bigint_sums.of_integers(values, bigint_sums.NARROW)
    sums = bigint_sums.weighted_sums(groups_of(len(pairs)), digits, counts)
    want = [sum(v * w for v, w in pairs[g::GROUPS]) for g in range(GROUPS)]
    assert bigint_sums.fits(sums, bigint_sums.NARROW).tolist() == [
        -(2**127) <= w < 2**127 for w in want
    ]
    if all(-(2**127) <= total < 2**127 for total in want):
        assert stored(sums) == want
        array = pa.Array.from_buffers(pa.binary(16), GROUPS, [None, bigint_sums.to_bytes(sums)])
        assert stored(bigint_sums.carry(bigint_sums.of_bytes(array, bigint_sums.WIDE))) == want
        assert stored(bigint_sums.of_bytes(array[1:], bigint_sums.NARROW)) == want[1:]
    for bound in (10**5, 10**18, 10**38, 2**53 + 1):
        below = bigint_sums.magnitude_below(sums, bound).tolist()
        assert below == [abs(total) < bound for total in want]


def test_unsigned_values_are_not_negative() -> None:
    digits = bigint_sums.of_integers(np.array([2**64 - 1], np.uint64), bigint_sums.NARROW)
    assert stored(bigint_sums.carry(digits)) == [2**64 - 1]


doubles = st.floats(width=64)
finite = st.floats(allow_nan=False, allow_infinity=False, width=64)


def nearest(fraction: Fraction) -> float:
    try:
        return float(fraction)
    except OverflowError:
        return math.inf if fraction > 0 else -math.inf


@given(
    st.lists(
        st.tuples(finite, st.one_of(st.integers(-3, 3), weights)), min_size=1, max_size=20
    ),
    st.randoms(),
)
@examples(150)
def test_sums_of_doubles_are_rounded_once(pairs: list[tuple[float, int]], chance) -> None:
    want = [
        nearest(sum((Fraction(v) * w for v, w in pairs[g::GROUPS]), Fraction(0)))
        for g in range(GROUPS)
    ]
    owned = [(g % GROUPS, *pair) for g, pair in enumerate(pairs)]
    for _ in range(2):
        owner = np.array([g for g, _, _ in owned])
        values = np.array([v for _, v, _ in owned], np.float64)
        entries = float_sums.split(values, np.array([w for _, _, w in owned]), owner)
        assert float_sums.nearest(entries, GROUPS).tolist() == want
        carried = float_sums.carry_digits(float_sums.gather(entries))
        assert (
            float_sums.nearest(
                float_sums.load(float_sums.store(carried, GROUPS)), GROUPS
            ).tolist()
            == want
        )
        chance.shuffle(owned)


@given(st.lists(finite, min_size=1, max_size=12), st.lists(finite, max_size=12), st.randoms())
@examples(100)
def test_a_sum_has_one_form_whatever_was_added_and_taken_away(kept, gone, chance) -> None:
    changes = [*((v, 1) for v in kept), *((v, w) for v in gone for w in (1, -1))]
    chance.shuffle(changes)
    total = float_sums.Digits(*np.zeros((3, 0), np.int64))
    for value, weight in changes:  # stored after each
        change = float_sums.split(np.array([value]), np.array([weight]), np.zeros(1, np.int64))
        entries = float_sums.carry_digits(float_sums.gather(float_sums.join(total, change)))
        total = float_sums.load(float_sums.store(entries, 1))
    at_once = float_sums.split(
        np.array(kept), np.ones(len(kept), np.int64), np.zeros(len(kept), np.int64)
    )
    direct = float_sums.carry_digits(float_sums.gather(at_once))
    assert total.bins.tolist() == direct.bins.tolist()
    assert total.digits.tolist() == direct.digits.tolist()
    assert all(-(1 << 31) <= digit < 1 << 31 for digit in total.digits.tolist())
    if not sum(map(Fraction, kept)):
        assert not len(total.bins)


def test_a_sum_that_is_changed_for_long_has_no_more_digits_than_at_first() -> None:
    total, nobody = float_sums.Digits(*np.zeros((3, 0), np.int64)), np.zeros(1, np.int64)
    for value, weight in [(100.0, 1), (3.0, -1), (50.0, 1), *[(1.0, 1)] * 500]:
        change = float_sums.split(np.array([value]), np.array([weight]), nobody)
        change = float_sums.carry_digits(float_sums.gather(change))
        together = float_sums.gather(float_sums.join(total, change))
        total = float_sums.load(float_sums.store(float_sums.carry_digits(together), 1))
        assert max(total.bins) <= 35
    assert float_sums.nearest(total, 1).tolist() == [647.0]


@given(st.lists(doubles, min_size=1, max_size=8))
@examples(60)
def test_infinities_and_nan_decide_and_can_be_retracted(values: list[float]) -> None:
    owner, ones = np.zeros(len(values), np.int64), np.ones(len(values), np.int64)
    array = np.array(values)
    entries = float_sums.split(array, ones, owner)
    with np.errstate(all="ignore"):
        special = [value for value in values if not math.isfinite(value)]
        actual = float_sums.nearest(entries, 1)[0]
        if special:
            want = sum(special)
            assert actual == want or (math.isnan(actual) and math.isnan(want))
        else:
            assert actual == nearest(sum(map(Fraction, values), Fraction(0)))
    difference = float_sums.join(entries, float_sums.split(array, -ones, owner))
    assert float_sums.nearest(difference, 1).tolist() == [0.0]
    assert not len(float_sums.gather(difference).owner)


def test_half_is_rounded_to_even_at_every_place() -> None:
    for exponent in (-1074, -1000, -31, 0, 33, 900):
        unit = math.ldexp(1.0, exponent)
        for mantissa in (2**52, 2**52 + 1, 2**53 - 1):
            if exponent + 53 > 1023:
                continue
            big = math.ldexp(float(mantissa), exponent + 1)
            for small, want in ((unit, None), (unit * 1.5, None)):
                exact = Fraction(big) + Fraction(small)
                entries = float_sums.split(
                    np.array([big, small]), np.ones(2, np.int64), np.zeros(2, np.int64)
                )
                assert float_sums.nearest(entries, 1)[0] == float(exact), (
                    exponent,
                    mantissa,
                    want,
                )
